"""Trackers by name, with the options of a config; those of one's own as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from reprlib import repr as shortened
from typing import TypeAlias

from pisces.errors import ConfigError, MissingPackageError
from pisces.explain import known
from pisces.record.trackers.base import Tracker, name_of
from pisces.tables import Record

Trackers: TypeAlias = Sequence[str | Tracker]


def _csv(_options: Record) -> Tracker:
    from pisces.record.trackers.csv import CSV

    return CSV()


def _tensorboard(_options: Record) -> Tracker:
    from pisces.record.trackers.tensorboard import TensorBoard

    return TensorBoard()


def _mlflow(options: Record) -> Tracker:
    from pisces.record.trackers.mlflow import MLflow

    return MLflow(options.mlflow_uri, experiment=options.project, model=options.track_model)


def _wandb(options: Record) -> Tracker:
    from pisces.record.trackers.wandb import WandB

    return WandB(project=options.project, mode=options.wandb_mode, model=options.track_model)


TRACKERS: Mapping[str, Callable[[Record], Tracker]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
    "csv": _csv,
}
PACKAGES = ("tensorboard", "mlflow", "wandb")  # those that need one, of the same name


def check(names: Sequence[str]) -> None:
    """Are these names of trackers whose packages are here? Quick: nothing is imported."""
    for name in names:
        known(name, TRACKERS, "record.trackers")
        if name in PACKAGES and find_spec(name) is None:
            raise MissingPackageError(
                f"record.trackers: {name} needs the package of that name, which is not here: "
                f"pip install 'pisces-fl[{name}]'"
            )


def made(
    given: Trackers, options: Record | None = None, out: str | Path | None = None
) -> list[Tracker]:
    """Trackers for a run in the folder `out`, before there is one: what cannot be is refused."""
    if isinstance(given, str):
        raise ConfigError(f"trackers: must be a list, such as [{given!r}], not {given!r} alone")
    check([one for one in given if isinstance(one, str)])
    options = options or Record()
    trackers = [
        TRACKERS[one](options) if isinstance(one, str) else _own(one)
        for one in dict.fromkeys(given)
    ]
    for tracker in trackers:
        if out is None and getattr(tracker, "needs_folder", False):
            raise ConfigError(
                f"trackers: {name_of(tracker)} writes to the run's folder, and there is none: say "
                "where with out, or hand over a tracker that says so itself (docs/trackers.md)"
            )
    return trackers


def of(options: Record, out: str | Path) -> list[Tracker]:
    """Those of a config."""
    return made(options.trackers, options, out)


def _own(one: Tracker) -> Tracker:
    if isinstance(one, type) or not all(
        callable(getattr(one, verb, None)) for verb in ("begin", "track", "end")
    ):
        raise ConfigError(
            f"trackers: must be names ({', '.join(TRACKERS)}) or objects with begin, track and "
            f"end, such as of a class that inherits from pisces.Tracker, not {shortened(one)}"
        )
    return one
