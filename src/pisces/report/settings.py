"""The settings of runs, dotted and side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as shortened
from typing import Any

from pisces.quantities import listed
from pisces.record.reader import MAY_DIFFER, Run
from pisces.report.ledger.summary import ReadRun

FOREMOST = ("data.dataset", "model.name")  # other worlds altogether
MOST_KEYS = 3  # settings that are named
MOST_SIDES = 8  # columns beside each other


@dataclass(frozen=True, slots=True)
class Side:
    """Runs that differ in nothing but their seed."""

    name: str
    seeds: tuple[int | None, ...]
    settings: Mapping[str, Any]
    run: Run  # one of them


def dotted(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings by their whole names: `data.alpha`."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= dotted(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat


def world_of(run: Run) -> dict[str, Any]:
    """All settings but those that may differ in a comparison, dotted."""
    return dotted({key: value for key, value in run.config.items() if key not in MAY_DIFFER})


def differences_of_world(runs: Sequence[Run]) -> tuple[Run, list[str]] | None:
    """The first run that met another world than the first, and in what they differ."""
    first = world_of(runs[0])
    for run in runs[1:]:
        world = world_of(run)
        different = [key for key in {**first, **world} if first.get(key) != world.get(key)]
        if different:
            return run, sorted(different, key=lambda key: (key not in FOREMOST, key))
    return None


def told_apart(runs: Sequence[ReadRun]) -> list[ReadRun]:
    """Runs of one protocol with other settings are of two: `pisces, staleness_bound=5`.

    Those that were told apart before stay so.
    """
    own = {run.path: _own_settings(run) for run in runs}
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(run.protocol, []).append(own[run.path])
    keys = {protocol: _differing(group) for protocol, group in groups.items()}
    return [replace(run, called=_called(run, own[run.path], keys[run.protocol])) for run in runs]


def _own_settings(run: Run) -> dict[str, Any]:
    """Those of the protocol, and of what replaces its parts."""
    return dotted({**run.replaced_parts, **run.protocol_settings})


def _differing(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """What these do not have alike; what only some tell of is no difference one can name."""
    shared = [key for key in group[0] if all(key in one for one in group)]
    return [key for key in shared if any(one[key] != group[0][key] for one in group)]


def _called(run: ReadRun, own: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    if not keys:
        return run.called
    told = [f"{key}={_in_short(own[key])}" for key in keys[:MOST_KEYS]]
    more = [f"{len(keys) - MOST_KEYS} more"] if len(keys) > MOST_KEYS else []
    return ", ".join([run.protocol, *told, *more])


def _in_short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else shortened(value).strip("'")


def apart(one: object, other: object, keys: Sequence[str]) -> str:
    """That two runs differ in these settings; of many the first few are named."""
    more = [f"{len(keys) - MOST_KEYS} more"] if len(keys) > MOST_KEYS else []
    told = listed([*keys[:MOST_KEYS], *more])
    return f"not the same world: {one} and {other} differ in {told}"


def sides(runs: Sequence[Run]) -> list[Side]:
    """Runs by their settings, seeds aside."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {k: v for k, v in dotted(run.config).items() if k != "seed"}
        groups.setdefault(repr(sorted(settings.items())), []).append(run)
    return [_side(group) for group in groups.values()]


def _side(runs: Sequence[Run]) -> Side:
    settings = {key: value for key, value in dotted(runs[0].config).items() if key != "seed"}
    return Side(runs[0].protocol, tuple(run.seed for run in runs), settings, runs[0])


def common(columns: Sequence[Side]) -> dict[str, Any]:
    """Settings that all have, and have alike."""
    first, *others = columns
    return {
        key: value
        for key, value in first.settings.items()
        if all(key in side.settings and side.settings[key] == value for side in others)
    }
