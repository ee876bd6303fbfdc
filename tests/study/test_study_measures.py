"""Every measure on one run written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import line, write

from pisces.record.reader import Run
from pisces.report.estimate import ANYTHING
from pisces.study.facts import Facts
from pisces.study.measures import MEASURES, measure_all, rank_correlation

# Two clients at a time for 100 s:
#   task 0, client 0:  0 .. 10, aggregated at 40 as version 1, fresh
#   task 1, client 1:  0 .. 40, aggregated at 40
#   task 2, client 0: 40 .. 60, aggregated at 60 as version 2, fresh
#   task 3, client 2: 40 .. 80, aggregated at 80 as version 3, stale by 1
#   task 4, client 0: 60 .. 90, aggregated at 90 as version 4, stale by 1
# Running: 2 clients for 10 s, 1 for 30, 2 for 40 (40 .. 80), 1 for 10, none for 10: 140 client-
# seconds of 200. In the buffer: task 0 from 10 to 40, so 30 s of 100.
STARTED = [(0, 0, 0, 0.0), (1, 1, 0, 0.0), (2, 0, 1, 40.0), (3, 2, 1, 40.0), (4, 0, 2, 60.0)]
ARRIVED = [(0, 0, 10.0, 2.0), (1, 1, 40.0, 3.0), (2, 0, 60.0, 1.0), (3, 2, 80.0, None)]
ARRIVED += [(4, 0, 90.0, 0.5)]
AGGREGATED = [(40.0, [0, 1], [0, 0]), (60.0, [2], [0]), (80.0, [3], [1]), (90.0, [4], [1])]
ACCURACY = {0.0: 0.1, 30.0: 0.4, 60.0: 0.6, 70.0: 0.8, 80.0: 0.7, 90.0: 0.9, 100.0: 0.8}


def lines() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"kind": "joined", "at": 0.0, "client": c, "num_examples": n}
        for c, n in enumerate((50, 20, 10, 5))
    ]
    found += [
        {"kind": "started", "at": at, "task": t, "client": c, "version": v}
        for t, c, v, at in STARTED
    ]
    found += [
        {"kind": "arrived", "at": at, "task": t, "client": c, "loss": loss}
        for t, c, at, loss in ARRIVED
    ]
    found += [
        {"kind": "aggregated", "at": at, "version": n + 1, "tasks": t, "staleness": s}
        for n, (at, t, s) in enumerate(AGGREGATED)
    ]
    found.append({"kind": "distrusted", "at": 95.0, "client": 1})
    order = ["joined", "arrived", "aggregated", "started", "distrusted"]
    return sorted(found, key=lambda line: (line["at"], order.index(line["kind"])))


def written(
    folder: Path,
    accuracies: Mapping[float, float],
    lines: Sequence[Mapping[str, Any]] = (),
    end: float = 100.0,
) -> Run:
    evaluated = [line("evaluated", at, version=0, accuracy=v) for at, v in accuracies.items()]
    return Run(write(folder, [*lines, *evaluated, line("stopped", end, reason="time")], None))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return written(tmp_path, ACCURACY, lines())


def facts(run: Run, target: float = 0.6) -> Facts:
    # The fixture writes evaluations after everything else; they move no clock backwards.
    return Facts.of(run, target, "accuracy", concurrency=2, corrupted=[1, 3])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_to_target", 60.0),
        ("updates_to_target", 3.0),  # at 10, 40 and 60
        ("versions_to_target", 2.0),
        ("final", 0.8),
        ("best", 0.9),
        ("late", (0.8 + 0.7 + 0.9 + 0.8) / 4),  # from 66.7 s on
        ("versions", 4.0),
        ("updates", 5.0),
        ("mean_staleness", 0.4),
        ("max_staleness", 1.0),
        ("own_staleness_range", 1.0),  # client 0: 0, 0, 1
        ("clients_idle", 0.3),
        ("updates_wait", 0.3),
        ("corrupted_used", 0.2),  # task 1, of five
        ("corrupted_picked", 0.2),  # client 1 once, client 3 never, of five
        ("corrupted_distrusted", 0.5),
        ("honest_distrusted", 0.0),
    ],
)
def test_a_measure(run: Run, name: str, value: float) -> None:
    assert MEASURES[name].of(facts(run)) == pytest.approx((value, value))


def test_smoothness_is_about_the_trend(run: Run) -> None:
    # 0.8 0.7 0.9 0.8 about their line 0.77 + 0.02 i: residuals 0.03 -0.09 0.09 -0.03, squares
    # 0.018, over 4 - 2 degrees of freedom: 0.009, of which the root.
    low, high = MEASURES["late_sd"].of(facts(run))
    assert low == high == pytest.approx(math.sqrt(0.009))


def test_rounding_is_not_roughness(run: Run) -> None:
    straight = replace(facts(run), times=np.arange(90.0, 101.0), values=np.full(11, 0.1 + 0.2))
    assert MEASURES["late_sd"].of(straight) == (0.0, 0.0)
    rising = replace(straight, values=straight.times / 300)
    assert MEASURES["late_sd"].of(rising) == (0.0, 0.0)


def test_a_target_that_was_not_met_took_longer_than_the_run(run: Run) -> None:
    found = measure_all(facts(run, target=0.95))
    assert found["time_to_target"] == (100.0, math.inf)
    assert found["updates_to_target"] == (5.0, math.inf)
    assert found["versions_to_target"] == (4.0, math.inf)


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx((1.0, 1.0))
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx((-1.0, -1.0))
    # Ranks 1 2 3 4 against 1.5 1.5 3.5 3.5: covariance 4, variances 5 and 4.
    expected = 4 / math.sqrt(20)
    assert rank_correlation([1, 2, 3, 4], [0, 0, 1, 1]) == pytest.approx((expected, expected))
    assert rank_correlation([5, 5, 5], [1, 2, 3]) == ANYTHING
    assert rank_correlation([], []) == ANYTHING


def test_of_a_run_in_which_nothing_happened_little_is_known(tmp_path: Path) -> None:
    found = measure_all(facts(written(tmp_path, {0.0: 0.1}, end=0.0)))
    for name in ("mean_staleness", "clients_idle", "updates_wait", "late_sd", "picked_by_size"):
        assert found[name] == ANYTHING
    assert found["versions"] == (0.0, 0.0)
