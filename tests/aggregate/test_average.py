"""The average that is published, on numbers small enough to check."""

from __future__ import annotations

import pytest
from worlds import update, view, weights

from pisces.aggregate.average import Averaged
from pisces.aggregate.mean import DiscountedMean
from pisces.errors import ConfigError
from pisces.policy import Combination
from pisces.seeds import generator


def combine(rule: Averaged, now: float, *values: float) -> Combination:
    """One parameter at `now`, and clients that came from there to `values`."""
    updates = [update(client, [value], base=[now]) for client, value in enumerate(values)]
    return rule.combine(weights([now]), updates, view([100] * 4), generator(1, "aggregate"))


def published(made: Combination) -> float:
    assert made.published is not None
    return float(made.published.flat)


def test_training_goes_on_from_the_version_itself() -> None:
    rule = Averaged(DiscountedMean(), horizon=2.0)
    combine(rule, 0.0, 4.0)
    made = combine(rule, 4.0, 8.0)
    assert made.weights.flat.tolist() == [8.0]
    assert made.coefficients == (1.0,)


def test_the_average_reaches_back_half_of_all_updates_then_the_horizon() -> None:
    rule = Averaged(DiscountedMean(), horizon=2.0)
    # The first version is all there is.
    assert published(combine(rule, 0.0, 4.0)) == 4.0
    # One update after one: 1 / (1 + 1/2) = 2/3 of the way from 4 to 10.
    assert published(combine(rule, 4.0, 10.0)) == pytest.approx(8.0)
    # After two: 1 / (1 + 1) = 1/2, which is the horizon's 1 / 2, too; then the horizon's for ever.
    assert published(combine(rule, 10.0, 6.0)) == pytest.approx(7.0)
    assert published(combine(rule, 6.0, 6.0)) == pytest.approx(6.5)


def test_a_version_counts_by_the_updates_it_is_made_of() -> None:
    rule = Averaged(DiscountedMean(), horizon=4.0)
    combine(rule, 0.0, 0.0, 0.0, 0.0, 0.0)  # four
    combine(rule, 0.0, 0.0, 0.0, 0.0, 0.0)  # eight
    # A version of three: 3 / 4 of the way to 8. One of four or more: all of the way.
    assert published(combine(rule, 0.0, 8.0, 8.0, 8.0)) == pytest.approx(6.0)
    assert published(combine(rule, 8.0, 9.0, 9.0, 9.0, 9.0)) == pytest.approx(9.0)


def test_a_version_that_is_not_finite_leaves_no_trace() -> None:
    rule = Averaged(DiscountedMean(), horizon=2.0)
    combine(rule, 0.0, 4.0)
    assert combine(rule, 4.0, float("inf")).published is None
    assert published(combine(rule, 4.0, 10.0)) == pytest.approx(8.0)  # as if it had never been


@pytest.mark.parametrize("horizon", [0.0, -1.0, float("nan")])
def test_a_senseless_horizon_is_refused(horizon: float) -> None:
    with pytest.raises(ConfigError, match="horizon above 0 updates"):
        Averaged(DiscountedMean(), horizon=horizon)
