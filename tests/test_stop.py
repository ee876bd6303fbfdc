"""When a run is over, and which reason comes first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from pisces.stop import Stop, best, gain, meets, worst
from pisces.types import Evaluated


def seen(values: Sequence[float], metric: str = "accuracy") -> list[Evaluated]:
    return [Evaluated(float(i), i, {metric: value}) for i, value in enumerate(values)]


def test_without_limits_it_goes_on() -> None:
    assert Stop().reason(1e9, 10**6, 10**6, seen([1.0] * 50)) is None


@pytest.mark.parametrize(
    ("stop", "before", "after"),
    # (now, version, updates): the limit itself ends the run.
    [
        (Stop(time_s=10.0), (9.99, 0, 0), (10.0, 0, 0)),
        (Stop(versions=3), (0.0, 2, 9), (0.0, 3, 9)),
        (Stop(updates=7), (0.0, 9, 6), (0.0, 9, 7)),
    ],
    ids=["time", "versions", "updates"],
)
def test_a_limit_is_reached_at_its_value(
    stop: Stop,
    before: tuple[float, int, int],
    after: tuple[float, int, int],
    request: pytest.FixtureRequest,
) -> None:
    assert stop.reason(*before, []) is None
    assert stop.reason(*after, []) == request.node.callspec.id


@pytest.mark.parametrize(
    ("metric", "values", "reached"),
    [
        ("accuracy", [0.7, 0.8], True),
        ("accuracy", [0.9, 0.79], False),  # it had it and lost it again: the last one counts
        ("accuracy", [], False),
        ("accuracy", [math.nan], False),
        ("loss", [0.8], True),  # less is more
        ("loss", [0.81], False),
        ("loss", [math.nan], False),
        ("train_loss", [0.5], True),
        ("perplexity", [0.5], True),
    ],
)
def test_the_target_is_met_by_the_last_evaluation(
    metric: str, values: list[float], reached: bool
) -> None:
    stop = Stop(target=0.8, metric=metric)
    assert (stop.reason(0.0, 0, 0, seen(values, metric)) == "target") is reached


def test_a_target_for_a_metric_nobody_measures_is_never_met() -> None:
    assert Stop(target=0.1, metric="f1").reason(0.0, 0, 0, seen([1.0])) is None


@pytest.mark.parametrize(
    ("values", "over"),
    [
        ([0.5, 0.4], False),  # one without a new best
        ([0.5, 0.4, 0.4], True),  # two
        ([0.5, 0.5, 0.5], True),  # as good is not better
        ([0.5, 0.4, 0.6], False),
        ([0.1, 0.2, 0.3, 0.4], False),
        ([0.1, 0.4, 0.3, 0.2], True),
        ([], False),
        ([math.nan, 0.1, 0.2], False),  # anything is better than no number
        ([0.5, math.nan, math.nan], True),
        ([math.nan, math.nan, math.nan], True),
    ],
)
def test_patience_ends_after_so_many_without_a_new_best(values: list[float], over: bool) -> None:
    assert (Stop(patience=2).reason(0.0, 0, 0, seen(values)) == "patience") is over


def test_patience_with_a_loss_waits_for_less() -> None:
    stop = Stop(patience=2, metric="loss")
    assert stop.reason(0.0, 0, 0, seen([0.5, 0.4, 0.3], "loss")) is None
    assert stop.reason(0.0, 0, 0, seen([0.3, 0.4, 0.5], "loss")) == "patience"


def test_patience_for_a_metric_nobody_measures_does_not_run_out() -> None:
    assert Stop(patience=1, metric="f1").reason(0.0, 0, 0, seen([0.5] * 9)) is None


def test_the_target_comes_before_every_limit() -> None:
    stop = Stop(time_s=1.0, versions=1, updates=1, target=0.5, patience=1)
    assert stop.reason(2.0, 2, 2, seen([0.6])) == "target"
    assert stop.reason(2.0, 2, 2, seen([0.4])) == "time"
    assert stop.reason(0.0, 2, 2, seen([0.4])) == "versions"
    assert stop.reason(0.0, 0, 2, seen([0.4])) == "updates"


def test_looking_at_one_version_again_does_not_cost_patience() -> None:
    stop = Stop(patience=2)
    slow = [Evaluated(float(at), at // 5, {"accuracy": 0.1 * (at // 5)}) for at in range(20)]
    assert stop.reason(20.0, 3, 0, slow) is None
    flat = [*slow, *(Evaluated(20.0 + v, v, {"accuracy": 0.1}) for v in (4, 5))]
    assert stop.reason(22.0, 5, 0, flat) == "patience"


@pytest.mark.parametrize(
    ("metric", "good", "bad"), [("accuracy", 0.9, 0.1), ("train_loss", 0.1, 0.9)]
)
def test_better_is_more_or_less(metric: str, good: float, bad: float) -> None:
    assert gain(good, metric) > gain(bad, metric) > gain(worst(metric), metric)
    assert best([bad, good, bad], metric) == good
    assert best([], metric) is None
    assert meets(good, bad, metric)
    assert meets(good, good, metric)
    assert not meets(bad, good, metric)
    assert not meets(math.nan, bad, metric)
