"""What a replay comes to: aggregations, how they compare, and what nobody can know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

Terms = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Act:
    """Something a pacer decided; of when the world made it happen nothing is known."""

    kind: Literal["aggregated", "dropped", "called off"]
    at: float
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A version: made of which tasks, how stale, how long they had waited, and by which terms."""

    at: float
    version: int
    tasks: tuple[int, ...]
    staleness: tuple[int, ...]
    waits_s: tuple[float, ...]
    reason: str | None = None
    terms: Terms = field(default_factory=dict)


@dataclass(slots=True)
class Unknown:
    """How often a replay had to take the run's word for what would have been otherwise."""

    num_impossible: int = 0  # starts of clients whose update still waited
    num_unwanted: int = 0  # starts for which this pace had no slot
    num_unfilled: int = 0  # turns in which it would have started more
    num_other_versions: int = 0  # starts from another version than in the run
    num_given_up: int = 0  # tasks the run called off, and this pace would not have
    num_wasted: int = 0  # updates of tasks this pace had called off
    num_unanswered: int = 0  # tasks this pace asked for what there is, which came later as a whole


@dataclass(frozen=True, slots=True)
class Numbers:
    """A pace in numbers; None where there is nothing to count."""

    num_aggregations: int
    num_updates: int  # aggregated
    interval_median_s: float | None
    interval_p95_s: float | None
    updates_mean: float | None
    staleness_mean: float | None
    staleness_p95: float | None
    staleness_max: int | None
    bound: float | None  # of the staleness, where the pace has one
    num_dropped: int
    wait_mean_s: float | None  # of an aggregated update

    @classmethod
    def of(
        cls, aggregations: Sequence[Aggregation], num_dropped: int, bound: float | None
    ) -> Numbers:
        """Count them."""
        intervals = np.diff([aggregation.at for aggregation in aggregations])
        staleness = np.array([s for a in aggregations for s in a.staleness])
        waits_s = np.array([s for a in aggregations for s in a.waits_s])
        return cls(
            num_aggregations=len(aggregations),
            num_updates=len(staleness),
            interval_median_s=_percentile(intervals, 50),
            interval_p95_s=_percentile(intervals, 95),
            updates_mean=len(staleness) / len(aggregations) if aggregations else None,
            staleness_mean=float(staleness.mean()) if len(staleness) else None,
            staleness_p95=_percentile(staleness, 95),
            staleness_max=int(staleness.max()) if len(staleness) else None,
            bound=bound,
            num_dropped=num_dropped,
            wait_mean_s=float(waits_s.mean()) if len(waits_s) else None,
        )


def _percentile(values: Any, share: float) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None


@dataclass(frozen=True, slots=True)
class Difference:
    """An instant at which one made a version and the other did not, or made it of other updates."""

    at: float
    recorded: Aggregation | None
    replayed: Aggregation | None
    terms: Terms  # of the replayed pace, also where it made none


@dataclass(frozen=True, slots=True)
class Check:
    """The run's own pace over its own log: it must decide what was decided."""

    num_recorded: int
    num_replayed: int
    num_same: int
    most_apart_s: float  # instants of the same aggregations: 0 in virtual time
    differs_at: float | None
    why: tuple[str, ...]  # what may explain it, where something differs

    @property
    def is_same(self) -> bool:
        """Was everything decided as it was?"""
        return self.differs_at is None


@dataclass(frozen=True)
class Replayed:
    """A run's log with another pace, beside what was recorded.

    Everything up to `differs_at` is exact (None: all of it); from there on it is an estimate, as
    `caveats` say in words.
    """

    path: Path
    name: str
    changes: tuple[str, ...]
    check: Check
    recorded: Numbers
    replayed: Numbers
    aggregations: tuple[Aggregation, ...]
    aggregations_recorded: tuple[Aggregation, ...]
    refusals: Mapping[float, Terms]
    differs_at: float | None
    differs_version: int | None
    differs_in: str | None
    ended: tuple[float, str] | None  # when and why this pace would have ended the run
    ends_at: float
    unknown: Unknown
    caveats: tuple[str, ...]

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Every instant at which they differ."""
        mine, theirs = _by_instant(self.aggregations), _by_instant(self.aggregations_recorded)
        return tuple(
            self._difference(at, theirs.get(at, []), mine.get(at, []))
            for at in sorted({*mine, *theirs})
            if _tasks(mine.get(at, [])) != _tasks(theirs.get(at, []))
        )

    def _difference(
        self, at: float, theirs: Sequence[Aggregation], mine: Sequence[Aggregation]
    ) -> Difference:
        terms = mine[0].terms if mine else self.refusals.get(at, {})
        return Difference(at, next(iter(theirs), None), next(iter(mine), None), terms)

    def as_json(self) -> dict[str, Any]:
        """All of it by name."""
        return {
            "folder": str(self.path),
            "run": self.name,
            "changes": list(self.changes),
            "check": {**asdict(self.check), "is_same": self.check.is_same},
            "recorded": asdict(self.recorded),
            "replayed": asdict(self.replayed),
            "exact_until_s": self.differs_at,
            "exact_until_version": self.differs_version,
            "differs_in": self.differs_in,
            "ended": self.ended and {"at": self.ended[0], "reason": self.ended[1]},
            "unknown": asdict(self.unknown),
            "caveats": list(self.caveats),
            "differences": [asdict(difference) for difference in self.differences],
            "aggregations": [asdict(aggregation) for aggregation in self.aggregations],
        }


def _by_instant(aggregations: Sequence[Aggregation]) -> dict[float, list[Aggregation]]:
    found: dict[float, list[Aggregation]] = {}
    for aggregation in aggregations:
        found.setdefault(aggregation.at, []).append(aggregation)
    return found


def _tasks(aggregations: Sequence[Aggregation]) -> list[set[int]]:
    return [set(aggregation.tasks) for aggregation in aggregations]
