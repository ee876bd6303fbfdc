"""The average that is published, on numbers small enough to check."""

from __future__ import annotations

import pytest
import torch
from runs import through_json
from worlds import update, view, weights

from pisces.aggregate.average import Averaged, RunningAverage
from pisces.aggregate.mean import DiscountedMean
from pisces.errors import ConfigError
from pisces.policy import Combination
from pisces.seeds import generator


def add(average: RunningAverage, value: float, num_updates: int = 1) -> float:
    """The average with a version of one number."""
    return float(average.add(torch.tensor([value]), num_updates))


def test_the_average_reaches_back_half_of_all_updates_then_the_horizon() -> None:
    average = RunningAverage(horizon=2.0)
    # The first version is all there is.
    assert add(average, 4.0) == 4.0
    # One update after one: 1 / (1 + 1/2) = 2/3 of the way from 4 to 10.
    assert add(average, 10.0) == pytest.approx(8.0)
    # After two: 1 / (1 + 1) = 1/2, which is the horizon's 1 / 2, too; then the horizon's for ever.
    assert add(average, 6.0) == pytest.approx(7.0)
    assert add(average, 6.0) == pytest.approx(6.5)


def test_a_version_counts_by_the_updates_it_is_made_of() -> None:
    average = RunningAverage(horizon=4.0)
    add(average, 0.0, 8)
    # A version of three: 3 / 4 of the way to 8. One of four or more: all of the way.
    assert add(average, 8.0, 3) == pytest.approx(6.0)
    assert add(average, 9.0, 4) == 9.0
    assert add(average, 1.0, 5) == 1.0


def test_versions_are_not_changed_in_place() -> None:
    average = RunningAverage(horizon=4.0)
    versions = [torch.tensor([value]) for value in (1.0, 5.0, 9.0)]
    values = [average.add(version, 1) for version in versions]
    assert [float(v) for v in versions] == [1.0, 5.0, 9.0]
    assert [float(v) for v in values] == pytest.approx([1.0, 11 / 3, 19 / 3])  # by 1, 2/3, 1/2


def test_an_average_goes_on_from_saved_state() -> None:
    first, second, none = (RunningAverage(horizon=4.0) for _ in range(3))
    second.restore(through_json(first.state()))
    assert second.value is None
    add(first, 1.0)
    add(first, 5.0)
    second.restore(through_json(first.state()))
    assert add(second, 9.0) == add(first, 9.0) != add(none, 9.0)


@pytest.mark.parametrize("horizon", [0.0, -1.0, float("nan")])
def test_a_senseless_horizon_is_refused(horizon: float) -> None:
    with pytest.raises(ConfigError, match="horizon above 0 updates"):
        Averaged(DiscountedMean(), horizon=horizon)


# --- as an aggregator -----------------------------------------------------------------------------


def combine(rule: Averaged, now: float, *values: float) -> Combination:
    """One parameter at `now`, and clients that came from there to `values`."""
    updates = [update(client, [value], base=[now]) for client, value in enumerate(values)]
    return rule.combine(weights([now]), updates, view([100] * 4), generator(1, "aggregate"))


def published(made: Combination) -> float:
    assert made.published is not None
    return float(made.published.flat)


def test_the_average_is_published_and_training_goes_on_from_the_version_itself() -> None:
    rule = Averaged(DiscountedMean(), horizon=4.0)
    assert published(combine(rule, 0.0, 4.0)) == 4.0
    # A version of two after one: 2 / (2 + 1/2) = 4/5 of the way from 4 to 9.
    made = combine(rule, 4.0, 8.0, 10.0)
    assert published(made) == pytest.approx(8.0)
    assert made.weights.flat.tolist() == [9.0]
    assert made.coefficients == (0.5, 0.5)
