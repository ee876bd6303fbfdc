"""What is measured of a run, by name: each one function of its facts.

A measure gives the two ends between which its value lies (see `pisces.report.estimate`): a run that
ended without meeting the target took longer than it lasted, and nobody knows how much longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pisces.record.summary import time_to_target
from pisces.report.arrays import Floats
from pisces.report.estimate import ANYTHING, Ends, time_between
from pisces.stop import best
from pisces.study.facts import Facts

LATE = 2 / 3  # the last third of a run is late
LEAST_SD = 1e-9  # a spread below it is the rounding of the line's fit


@dataclass(frozen=True, slots=True)
class Measure:
    """How a number is taken from a run, what it is called and how it is written."""

    of: Callable[[Facts], Ends]
    label: str
    text: Callable[[float], str]
    unit: str = ""  # of its number, where it has one

    @property
    def label_with_unit(self) -> str:
        """What an axis of it is called."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def measure_all(facts: Facts) -> dict[str, Ends]:
    """Every measure of a run."""
    return {name: measure.of(facts) for name, measure in MEASURES.items()}


# --- the target -----------------------------------------------------------------------------------


def reached_at(facts: Facts) -> float | None:
    """When the target was first met, if it was."""
    pairs = zip(facts.times.tolist(), facts.values.tolist(), strict=True)
    return time_to_target(pairs, facts.target, facts.metric)


def _time_to_target(facts: Facts) -> Ends:
    return time_between(reached_at(facts), facts.end_s)


def _until_target(instants: Callable[[Facts], Floats]) -> Callable[[Facts], Ends]:
    """How many of these instants there were until the target was met."""

    def count(facts: Facts) -> Ends:
        at = reached_at(facts)
        if at is None:
            return float(len(instants(facts))), math.inf
        return _exactly(int(np.searchsorted(instants(facts), at, side="right")))

    return count


# --- how good -------------------------------------------------------------------------------------


def _final(facts: Facts) -> Ends:
    return _exactly(facts.values[-1]) if len(facts.values) else ANYTHING


def _best(facts: Facts) -> Ends:
    found = best(facts.values[~np.isnan(facts.values)].tolist(), facts.metric)
    return ANYTHING if found is None else _exactly(found)


def _late_values(facts: Facts) -> tuple[Floats, Floats]:
    late = facts.times >= LATE * facts.end_s
    return facts.times[late], facts.values[late]


def _late(facts: Facts) -> Ends:
    _, values = _late_values(facts)
    return _exactly(values.mean()) if len(values) else ANYTHING


def _late_sd(facts: Facts) -> Ends:
    """The spread about the straight line through the values: still learning is not rough."""
    times, values = _late_values(facts)
    if len(values) < 3 or np.isnan(values).any():
        return ANYTHING
    line = np.polynomial.Polynomial.fit(times, values, 1)
    spread = float(np.std(values - line(times), ddof=2))
    return _exactly(spread if spread >= LEAST_SD else 0.0)


# --- staleness, idleness --------------------------------------------------------------------------


def _all_staleness(facts: Facts) -> list[int]:
    return [staleness for own in facts.staleness.values() for staleness in own]


def _mean_staleness(facts: Facts) -> Ends:
    pooled = _all_staleness(facts)
    return _exactly(np.mean(pooled)) if pooled else ANYTHING


def _max_staleness(facts: Facts) -> Ends:
    pooled = _all_staleness(facts)
    return _exactly(max(pooled)) if pooled else ANYTHING


def _own_range(facts: Facts) -> Ends:
    """The most by which the staleness of any one client's updates varied."""
    ranges = [max(own) - min(own) for own in facts.staleness.values()]
    return _exactly(max(ranges)) if ranges else ANYTHING


def _clients_idle(facts: Facts) -> Ends:
    """How much of the concurrency that is allowed went unused."""
    if facts.end_s == 0:
        return ANYTHING
    return _exactly(1 - facts.running_s / (facts.end_s * facts.concurrency))


def _updates_wait(facts: Facts) -> Ends:
    """The share of the time in which updates lay there because others were waited for."""
    return _exactly(facts.buffered_s / facts.end_s) if facts.end_s else ANYTHING


# --- who took part --------------------------------------------------------------------------------


def _picked_by_size(facts: Facts) -> Ends:
    clients = list(facts.num_examples)
    sizes = [facts.num_examples[client] for client in clients]
    picked = [facts.num_started.get(client, 0) for client in clients]
    return rank_correlation(sizes, picked)


def rank_correlation(x: ArrayLike, y: ArrayLike) -> Ends:
    """Spearman's: 1 where more of one always means more of the other; unknown where all are equal.

    Ties share the mean of their ranks.
    """
    by_x, by_y = _ranks(np.asarray(x)), _ranks(np.asarray(y))
    if len(by_x) == 0 or np.ptp(by_x) == 0 or np.ptp(by_y) == 0:
        return ANYTHING
    return _exactly(np.corrcoef(by_x, by_y)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks


def _distrusted(facts: Facts, among: Collection[int]) -> Ends:
    return _exactly(len(facts.distrusted.intersection(among)) / len(among)) if among else ANYTHING


def _corrupted_picked(facts: Facts) -> Ends:
    """How many of the tasks went to corrupted clients."""
    if not facts.corrupted or not facts.num_started:
        return ANYTHING
    bad = sum(facts.num_started.get(client, 0) for client in facts.corrupted)
    return _exactly(bad / sum(facts.num_started.values()))


def _corrupted_used(facts: Facts) -> Ends:
    """How many of the updates in the model came from corrupted clients."""
    if not facts.corrupted or not facts.staleness:
        return ANYTHING
    bad = sum(len(facts.staleness.get(client, ())) for client in facts.corrupted)
    return _exactly(bad / len(_all_staleness(facts)))


def _honest(facts: Facts) -> Collection[int]:
    return facts.num_examples.keys() - facts.corrupted


def _exactly(value: float | np.floating[Any]) -> Ends:
    known = float(value)
    return ANYTHING if math.isnan(known) else (known, known)


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _small(value: float) -> str:
    return f"{value:.2g}"


def _two_places(value: float) -> str:
    return f"{value:.2f}"


MEASURES: Mapping[str, Measure] = {
    "time_to_target": Measure(_time_to_target, "time to target", _seconds, "s"),
    "updates_to_target": Measure(
        _until_target(lambda f: f.arrived_at), "updates to target", _count
    ),
    "versions_to_target": Measure(
        _until_target(lambda f: f.aggregated_at), "versions to target", _count
    ),
    "final": Measure(_final, "final", _number),
    "best": Measure(_best, "best", _number),
    "late": Measure(_late, "late mean", _number),
    "late_sd": Measure(_late_sd, "late sd", _small),
    "versions": Measure(lambda f: _exactly(len(f.aggregated_at)), "versions", _count),
    "updates": Measure(lambda f: _exactly(len(f.arrived_at)), "updates", _count),
    "mean_staleness": Measure(_mean_staleness, "mean staleness", _two_places),
    "max_staleness": Measure(_max_staleness, "max staleness", _count),
    "own_staleness_range": Measure(_own_range, "a client's staleness range", _count),
    "clients_idle": Measure(_clients_idle, "clients idle", _share, "share"),
    "updates_wait": Measure(_updates_wait, "updates wait", _share, "share"),
    "picked_by_size": Measure(_picked_by_size, "picks with size (rank)", _two_places),
    "corrupted_used": Measure(_corrupted_used, "corrupted updates used", _share, "share"),
    "corrupted_picked": Measure(_corrupted_picked, "corrupted picked", _share, "share"),
    "corrupted_distrusted": Measure(
        lambda f: _distrusted(f, f.corrupted), "corrupted distrusted", _share, "share"
    ),
    "honest_distrusted": Measure(
        lambda f: _distrusted(f, _honest(f)), "honest distrusted", _share, "share"
    ),
}
