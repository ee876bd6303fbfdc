"""What is kept of a run, and `results.json`: all that is kept of a study.

Pages and pictures are made from it alone, so that they can be drawn anew without the runs. It has
one line per run and few digits, for its place is beside the code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pisces.errors import RunError
from pisces.explain import explain
from pisces.record.reader import Run
from pisces.record.summary import time_to_target
from pisces.record.writer import replace_file
from pisces.report.arrays import Floats
from pisces.report.estimate import ANYTHING, Ends
from pisces.study.facts import Facts
from pisces.study.measures import MEASURES, measure_all
from pisces.study.plan import Picture
from pisces.study.runs import Planned

RESULTS = "results.json"
MOST_POINTS = 100  # of a curve
MOST_VERSIONS = 25  # of the count of versions, which is almost a straight line
NUM_BINS = 40  # of the loss dynamics
DIGITS = 5

Column: TypeAlias = tuple[float | None, ...]
Key: TypeAlias = tuple[str, str, float | None, int]


@dataclass(frozen=True, slots=True)
class Clients:
    """Columns with a value per client, in the order of clients."""

    num_examples: Column
    num_started: Column
    staleness_min: Column  # of its aggregated updates; None: there was none
    staleness_median: Column
    staleness_max: Column


@dataclass(frozen=True, slots=True)
class Losses:
    """Mean loss of the updates that arrived in a stretch of time, by who sent them."""

    times: Column  # the middle of each stretch
    honest: Column
    corrupted: Column


@dataclass(frozen=True, slots=True)
class Record:
    """One run: what was measured, and what pictures are drawn from."""

    case: str
    variant: str
    x: float | None
    seed: int
    digest: str
    metric: str
    target: float
    measures: dict[str, Ends]
    times: Column
    values: Column
    versions_at: Column  # instants of as many ...
    versions: Column  # ... versions, evenly chosen
    made_with: str
    trained_by: str
    wall_s: float
    clients: Clients | None = None
    losses: Losses | None = None

    @property
    def key(self) -> Key:
        """What it is called among the runs of its study."""
        return self.case, self.variant, self.x, self.seed


def record_of(run: Run, plan: Planned, facts: Facts, pictures: Sequence[Picture]) -> Record:
    """What is kept of a finished run, as far as the study's pictures need it."""
    chosen = sorted({*_thinned(len(facts.times), MOST_POINTS), *_first_met(facts)})
    needs = _needs(plan, pictures)
    versions = _thinned(len(facts.aggregated_at), MOST_VERSIONS) if needs.versions else []
    return Record(
        case=plan.case,
        variant=plan.variant,
        x=plan.x,
        seed=plan.seed,
        digest=plan.digest,
        metric=facts.metric,
        target=plan.target,
        measures={name: _rounded_ends(ends) for name, ends in measure_all(facts).items()},
        times=_column(facts.times[chosen]),
        values=_column(facts.values[chosen]),
        versions_at=_column(facts.aggregated_at[versions]),
        versions=_column(np.array(versions, np.float64) + 1),
        made_with=run.summary.get("made_with", ""),
        trained_by=run.summary.get("trained_by", ""),
        wall_s=rounded(run.summary.get("wall_s")) or 0.0,
        clients=_clients(facts) if needs.clients else None,
        losses=_losses(facts) if facts.corrupted and needs.losses else None,
    )


class Needs(NamedTuple):
    """What a study's pictures are drawn from, beside curves."""

    clients: bool
    versions: bool
    losses: bool


def _needs(plan: Planned, pictures: Sequence[Picture]) -> Needs:
    by_client = plan.is_first and not {"involvement", "staleness"}.isdisjoint(pictures)
    return Needs(by_client, "aggregations" in pictures, "losses" in pictures)


def lent(record: Record, plan: Planned, pictures: Sequence[Picture]) -> Record | None:
    """A record of the same run as another study keeps it; none if its pictures need more."""
    needs = _needs(plan, pictures)
    lacks_losses = needs.losses and plan.config.spoilt_share > 0 and record.losses is None
    if lacks_losses or (needs.clients and record.clients is None):
        return None
    if needs.versions and not record.versions_at:
        return None
    return replace(
        record,
        case=plan.case,
        variant=plan.variant,
        x=plan.x,
        clients=record.clients if needs.clients else None,
        losses=record.losses if needs.losses else None,
        versions_at=record.versions_at if needs.versions else (),
        versions=record.versions if needs.versions else (),
    )


def _clients(facts: Facts) -> Clients:
    clients = sorted(facts.num_examples)
    own = [facts.staleness.get(client, []) for client in clients]
    return Clients(
        num_examples=tuple(facts.num_examples[client] for client in clients),
        num_started=tuple(facts.num_started.get(client, 0) for client in clients),
        staleness_min=tuple(min(s, default=None) for s in own),
        staleness_median=tuple(float(np.median(s)) if s else None for s in own),
        staleness_max=tuple(max(s, default=None) for s in own),
    )


def _losses(facts: Facts) -> Losses:
    edges = np.linspace(0.0, facts.end_s, NUM_BINS + 1)
    place = np.digitize(facts.arrived_at, edges[1:-1])
    spoilt = np.isin(facts.arrived_from, list(facts.corrupted))
    known = ~np.isnan(facts.losses)
    means = [
        [_mean(facts.losses[known & who & (place == bin_)]) for bin_ in range(NUM_BINS)]
        for who in (~spoilt, spoilt)
    ]
    middles = (edges[:-1] + edges[1:]) / 2
    return Losses(_column(middles), tuple(means[0]), tuple(means[1]))


def _mean(values: Floats) -> float | None:
    return rounded(values.mean()) if len(values) else None


def _thinned(num: int, most: int) -> list[int]:
    """Of so many places at most some (and the last), evenly chosen."""
    step = max(1, math.ceil(num / most))
    return sorted({*range(0, num, step), *([num - 1] if num else [])})


def _first_met(facts: Facts) -> list[int]:
    """The place of the first value that meets the target, so that a curve shows when that was."""
    by_place = enumerate(facts.values.tolist())
    place = time_to_target(by_place, facts.target, facts.metric)
    return [] if place is None else [int(place)]


def rounded(value: float | None) -> float | None:
    """The value in few digits; None if it is no number."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def _column(values: Iterable[float]) -> Column:
    return tuple(rounded(float(value)) for value in values)


def _rounded_ends(ends: Ends) -> Ends:
    low, high = (rounded(end) if math.isfinite(end) else end for end in ends)
    return (ANYTHING[0] if low is None else low, ANYTHING[1] if high is None else high)


# --- results.json ---------------------------------------------------------------------------------


def load(folder: Path) -> list[Record]:
    """The records of a study; none where there are no results yet."""
    path = folder / RESULTS
    if not path.exists():
        return []
    try:
        runs = list(json.loads(path.read_bytes())["runs"])
    except json.JSONDecodeError as error:
        raise RunError(f"{path}, line {error.lineno}: {error.msg}; restore the file") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"cannot read {path}: {error!r}; restore it or remove it") from error
    shape = TypeAdapter(Record)
    return [_record(values, f"{path}, line {n}", shape) for n, values in enumerate(runs, start=2)]


def _record(values: Any, where: str, shape: TypeAdapter[Record]) -> Record:
    """The record of one line, or an error that says where it is damaged."""
    try:
        record = _parsed(values)
        shape.validate_json(json.dumps(asdict(record)), strict=True)
        _check_parts(record)
    except ValidationError as error:
        told = explain(error, where, ()).splitlines()[0]
    except KeyError as error:
        told = f"{where}: there is no {error}"
    except (ValueError, TypeError, AttributeError) as error:
        told = f"{where}: {error}"
    else:
        return record
    raise RunError(
        f"{told}; restore the line, or remove it to have its run collected or made again"
    )


def _check_parts(record: Record) -> None:
    """What types do not say: names that are known, ends in order, columns that go together."""
    unknown = record.measures.keys() - MEASURES.keys()
    if unknown:
        raise ValueError(f"unknown measures: {', '.join(sorted(unknown))}")
    for name, (low, high) in record.measures.items():
        if not low <= high:
            raise ValueError(f"{name} must lie between two ends, not {low} and {high}")
    for one, other in (("times", "values"), ("versions_at", "versions")):
        if len(getattr(record, one)) != len(getattr(record, other)):
            raise ValueError(f"{one} and {other} must be of one length")
    for name in ("clients", "losses"):
        part = getattr(record, name)
        if part is not None and len({len(column) for column in astuple(part)}) > 1:
            raise ValueError(f"{name} must have columns of one length")


def save(folder: Path, records: Sequence[Record]) -> None:
    """Write the records, one per line."""
    lines = ",\n".join(_text(record) for record in records)
    replace_file(folder / RESULTS, f'{{"runs": [\n{lines}\n]}}\n'.encode())


def _text(record: Record) -> str:
    values = asdict(record)
    values["measures"] = {name: _from_ends(ends) for name, ends in record.measures.items()}
    present = {key: value for key, value in values.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), allow_nan=False)


def _from_ends(ends: Ends) -> Any:
    """A number where it is known, [1015, null] for "more than 1015", null for nothing."""
    low, high = (end if math.isfinite(end) else None for end in ends)
    return low if low == high else [low, high]


def _to_ends(name: str, value: Any) -> Ends:
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise ValueError(f"{name} must be a number or two, not {value}")
    low, high = pair
    return (ANYTHING[0] if low is None else low, ANYTHING[1] if high is None else high)


def _parsed(values: dict[str, Any]) -> Record:
    for name, kind in (("clients", Clients), ("losses", Losses)):
        if name in values:
            values[name] = kind(**{key: tuple(part) for key, part in values[name].items()})
    for name in ("times", "values", "versions_at", "versions"):
        values[name] = tuple(values[name])
    measures = {name: _to_ends(name, value) for name, value in values.pop("measures").items()}
    return Record(**{"x": None, **values}, measures=measures)
