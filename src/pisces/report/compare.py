"""Protocols side by side: time to a target and speed-up, paired by seed.

A run that ended without meeting the target is never left out. Its time to target is unknown but
longer than the run, so a speed-up involving it is known only as an interval, and everything said
about speed-ups is computed for both ends of these intervals: where the ends agree the number is
exact, otherwise it is a bound and marked as one.

A run that was interrupted or is not over is another matter: where it stands says when somebody
lost patience, not how good its protocol is. It is counted, and has no say in anything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.record.summary import Counts
from pisces.report.estimate import ANYTHING, Ends, Estimate, estimate, ratio, time_between
from pisces.report.goal import Goal
from pisces.stop import gain, worst

BySeed: TypeAlias = Mapping[int | None, "Result"]
AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol: medians over its seeds, but the largest `max_staleness`.

    Besides these there are `num_cut_short` runs that were interrupted or are not over; a protocol
    that has no others has no medians.

    The speed-up is the reference's over this protocol (time of this / time of the reference) on the
    seeds both have; None where there are none. `time_to_target_s` is None when fewer than half
    reached the target.
    """

    protocol: str
    seeds: tuple[int | None, ...]
    reached: int
    time_to_target_s: float | None
    speedup: Estimate | None
    versions: float | None
    updates: float | None
    max_staleness: int | None
    final: float | None
    wall_s: float | None
    num_cut_short: int = 0

    @property
    def known_speedup(self) -> Estimate | None:
        """The speed-up, if anything is known of its median."""
        found = self.speedup
        return None if found is None or found.known[0] is None else found

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints, which makes null of what is not finite; its keys are public."""
        found = self.speedup or Estimate(0, *ANYTHING, *ANYTHING, *ANYTHING)
        median, bound = found.known
        return {
            "protocol": self.protocol,
            "seeds": self.seeds,
            "reached": self.reached,
            "time_to_target_s": self.time_to_target_s,
            "num_pairs": found.num,
            "speedup": median,
            "speedup_bound": bound,
            "speedup_min": found.min,
            "speedup_max": found.max,
            "speedup_low": found.low if found.has_interval else None,
            "speedup_high": found.high if found.has_interval else None,
            "versions": self.versions,
            "updates": self.updates,
            "max_staleness": self.max_staleness,
            "final": self.final,
            "wall_s": self.wall_s,
            "speedup_most": found.most if bound == ">=" else None,
            "num_cut_short": self.num_cut_short,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """One run against the target: when it met it, if it did, and what it came to."""

    time_s: float | None
    counts: Counts
    wall_s: float | None

    @property
    def between(self) -> Ends:
        """Between which values the time lies."""
        return time_between(self.time_s, self.counts.at)


def compare(
    runs: Iterable[Run], target: float, *, metric: str = "accuracy", reference: str | None = None
) -> list[Row]:
    """One row per protocol: the reference, then the fastest first.

    Those whose time is not known follow by how many of their runs reached the target, then by their
    final value. Without a reference it is Pisces, or where there is none the fastest.
    """
    groups = by_protocol(runs)
    if not groups:
        raise RunError("there are no runs to compare: give at least one run folder")
    Goal(metric, target).check(run for group in groups.values() for run in group.values())
    results = {name: _results(group, target, metric) for name, group in groups.items()}
    if reference is None:
        fastest = min(results, key=lambda name: _standing(results[name]))
        reference = "pisces" if "pisces" in results else fastest
    if reference not in results:
        raise RunError(f"no run of the reference {reference!r}: choose one of {', '.join(results)}")
    rows = [_row(name, group, results[reference], metric) for name, group in results.items()]
    rows = [replace(r, num_cut_short=len(groups[r.protocol]) - len(r.seeds)) for r in rows]
    return sorted(rows, key=lambda row: (row.protocol != reference, *_place(row, metric)))


def in_order(runs: Iterable[AnyRun], rows: Iterable[Row]) -> list[AnyRun]:
    """Runs as their protocols stand in a table: all that is told of them is in one order."""
    places = {row.protocol: place for place, row in enumerate(rows)}
    return sorted(runs, key=lambda run: places[run.protocol])


def drawn_of(runs: Sequence[AnyRun], goal: Goal) -> tuple[Sequence[AnyRun], Goal]:
    """Which of these runs are drawn, and what they are held against, if they can be.

    Runs cut short are drawn only where there are no others, and held against the target only where
    there is a single one: two that somebody stopped early say nothing of who is faster.
    """
    goal.check(runs)
    over = [run for run in runs if not run.counts.is_cut_short]
    if over or len(runs) == 1:
        return over or runs, goal
    return runs, replace(goal, target=None)


def _results(
    runs: Mapping[int | None, Run], target: float, metric: str
) -> dict[int | None, Result]:
    return {
        seed: Result(run.time_to_target(target, metric), run.counts, run.wall_s)
        for seed, run in runs.items()
        if not run.counts.is_cut_short
    }


def grouped(runs: Iterable[AnyRun]) -> dict[str, list[AnyRun]]:
    """Runs by protocol, in the order given, each once: for all that draws and pairs no seeds."""
    groups: dict[str, list[AnyRun]] = {}
    for run in dict.fromkeys(runs):
        groups.setdefault(run.protocol, []).append(run)
    return groups


def by_protocol(runs: Iterable[Run]) -> dict[str, dict[int | None, Run]]:
    """Runs by protocol, in the order given, and seed; two of the same kind cannot be told apart."""
    groups: dict[str, dict[int | None, Run]] = {}
    for run in runs:
        other = groups.setdefault(run.protocol, {}).setdefault(run.seed, run)
        if other != run:
            raise RunError(
                f"a protocol has one run per seed, but {other.path} and {run.path} are both "
                f"{run.name}: leave one out"
            )
    return groups


def _row(protocol: str, results: BySeed, reference: BySeed, metric: str) -> Row:
    counts = [result.counts for result in results.values()]
    times = [result.time_s for result in results.values()]
    staleness = [c.max_staleness for c in counts if c.max_staleness is not None]
    return Row(
        protocol=protocol,
        seeds=tuple(results),
        reached=sum(time is not None for time in times),
        time_to_target_s=_median(times, unknown=math.inf),
        speedup=None if results is reference else paired_speedup(results, reference),
        versions=_median([c.versions for c in counts], unknown=math.inf),
        updates=_median([c.num_updates for c in counts], unknown=math.inf),
        max_staleness=max(staleness, default=None),
        # A run without a value counts, too: leaving it out would flatter its protocol.
        final=_median([c.final.get(metric) for c in counts], unknown=worst(metric)),
        wall_s=_median([result.wall_s for result in results.values()], unknown=math.inf),
    )


def paired_speedup(results: BySeed, reference: BySeed) -> Estimate | None:
    """How much faster the reference met the target, over the seeds both have."""
    shared = [(results[s], reference[s]) for s in results if s in reference]
    found = estimate([ratio(a.between, b.between) for a, b in shared])
    return None if found is None else found.above_zero()


def _median(values: Iterable[float | None], unknown: float) -> float | None:
    known = [unknown if value is None else value for value in values]
    middle = float(np.median(known)) if known else math.inf
    return middle if math.isfinite(middle) else None


def _standing(results: BySeed) -> tuple[float, float]:
    """The smaller, the better: share of runs that did not get there, then the median time."""
    times = [math.inf if r.time_s is None else r.time_s for r in results.values()] or [math.inf]
    return float(np.mean(np.isinf(times))), float(np.median(times))


def _place(row: Row, metric: str) -> tuple[float, float, float]:
    """The smaller, the further up."""
    time = math.inf if row.time_to_target_s is None else row.time_to_target_s
    final = worst(metric) if row.final is None else row.final
    return time, -row.reached, -gain(final, metric)
