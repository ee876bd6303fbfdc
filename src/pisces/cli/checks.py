"""Before anything starts: one run of each variant and point is built, to see whether it can be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pisces.config import Config
from pisces.errors import ConfigError, DataError, MissingDataError, MissingPackageError
from pisces.policy import ANSWERS
from pisces.study.runs import Planned
from pisces.study.work import Work

Wanted: TypeAlias = tuple[Work, Planned]


@dataclass(slots=True)
class Checked:
    """What can be run, and what cannot: study/case and why."""

    runnable: list[Wanted] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)  # data or a package that is not there
    spoilt: dict[str, str] = field(default_factory=dict)  # data that cannot be read


def check(works: Sequence[Work]) -> Checked:
    """Sort what is left of some studies; a setting that is wrong is an error."""
    checked = Checked()
    left = [(work, run) for work in works for run in work.left()]
    for wanted in _worlds(left):
        _build(wanted, checked)
    cannot = checked.lacking.keys() | checked.spoilt.keys()
    checked.runnable = [(work, run) for work, run in left if name_of(work, run) not in cannot]
    return checked


def name_of(work: Work, run: Planned) -> str:
    """The study and the case."""
    return f"{work.name}/{run.case}"


def label_of(run: Planned) -> str:
    """The variant and the point."""
    return run.variant if run.x is None else f"{run.variant} {run.x:g}"


def _worlds(left: Sequence[Wanted]) -> Collection[Sequence[Wanted]]:
    """One run of each variant and point, those together that differ in nothing but the protocol.

    Data and model of such are the same, and building them is what takes time.
    """
    first: dict[tuple[str, str, str, float | None], Wanted] = {}
    for work, run in left:
        first.setdefault((work.name, *run.key[:3]), (work, run))
    worlds: dict[str, list[Wanted]] = {}
    for work, run in first.values():
        worlds.setdefault(_world(run.config), []).append((work, run))
    return worlds.values()


def _world(config: Config) -> str:
    return config.model_dump_json(exclude={"protocol", "protocols", *ANSWERS})


def _build(wanted: Sequence[Wanted], checked: Checked) -> None:
    """Build the world of some runs, and in it every protocol."""
    from pisces import build  # torch is slow to import

    names = [name_of(work, run) for work, run in wanted]
    at = wanted[0]
    try:
        simulation = build.simulation(at[1].config)
        for at in wanted:
            replace(simulation, policies=build.policies_of(at[1].config))
    except (MissingDataError, MissingPackageError) as error:
        checked.lacking.update(dict.fromkeys(names, str(error)))
    except DataError as error:
        checked.spoilt.update(dict.fromkeys(names, str(error)))
    except ConfigError as error:
        raise ConfigError(f"{name_of(*at)}, {label_of(at[1])}: {error}") from error
