"""Port's mean: samples, staleness and direction, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from worlds import update, view, weights

from pisces.aggregate.port import SimilarityMean
from pisces.errors import ConfigError
from pisces.policy import Combination
from pisces.seeds import generator
from pisces.types import Update


def combined(
    mean: SimilarityMean, current: Sequence[float], updates: Sequence[Update], version: int = 4
) -> Combination:
    seen = view([100] * 4, buffer=updates, version=version)
    return mean.combine(weights(current), updates, seen, generator(0, "aggregate"))


def moved_right() -> SimilarityMean:
    """Whose model has just gone from (0, 0) to (1, 0)."""
    mean = SimilarityMean(half_staleness=2.0, staleness_weight=1.0, similarity_weight=0.5)
    combined(mean, [0.0, 0.0], [update(0, [1.0, 0.0], version=4)])
    return mean


def test_before_the_model_has_moved_samples_and_staleness_decide() -> None:
    # beta 10, staleness 0 and 10: 1 and 1/2; cosines unknown: 1/2 each. 1.5 and 1.0 x samples
    # 100 and 300: 150 and 300 of 450.
    updates = [
        update(0, [1.0, 0.0], version=12, num_examples=100),
        update(1, [0.0, 1.0], version=2, num_examples=300),
    ]
    made = combined(SimilarityMean(), [0.0, 0.0], updates, version=12)
    assert made.coefficients == pytest.approx((1 / 3, 2 / 3))
    assert made.weights.flat.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_who_points_where_the_model_goes_counts_more() -> None:
    # beta 2, mu 0.5. Along: cos 1 -> 0.5 + fresh 1 = 1.5. Across, 2 behind: cos 0 -> 0.25 + 0.5 =
    # 0.75. Back: cos -1 -> 0 + 1 = 1. Twice as many samples for the one across: 1.5, all of 4.
    updates = [
        update(0, [3.0, 0.0], base=[1.0, 0.0], version=5),
        update(1, [0.0, 5.0], base=[0.0, 0.0], version=3, num_examples=200),
        update(2, [0.0, 0.0], base=[1.0, 0.0], version=5),
    ]
    made = combined(moved_right(), [1.0, 0.0], updates, version=5)
    assert made.coefficients == pytest.approx((1.5 / 4, 1.5 / 4, 1.0 / 4))
    # 1 + 0.375 x 2 - 0.25 x 1, 0.375 x 5
    assert made.weights.flat.tolist() == pytest.approx([1.5, 1.875])


def test_it_is_the_last_movement_that_counts() -> None:
    mean = moved_right()
    combined(mean, [1.0, 0.0], [update(0, [1.0, 9.0], base=[1.0, 0.0], version=5)], version=5)
    assert mean.state().arrays["movement"].tolist() == [0.0, 9.0]


def test_who_went_nowhere_is_neither_with_the_model_nor_against_it() -> None:
    # (1 + 0.25) against (1 + 0.5)
    updates = [
        update(0, [1.0, 0.0], base=[1.0, 0.0], version=5),
        update(1, [2.0, 0.0], base=[1.0, 0.0], version=5),
    ]
    made = combined(moved_right(), [1.0, 0.0], updates, version=5)
    assert made.coefficients == pytest.approx((1.25 / 2.75, 1.5 / 2.75))


def test_too_long_to_tell_its_direction_is_no_direction() -> None:
    updates = [
        update(0, [1e30, 0.0], base=[1.0, 0.0], version=5),
        update(1, [2.0, 0.0], base=[1.0, 0.0], version=5),
    ]
    made = combined(moved_right(), [1.0, 0.0], updates, version=5)
    assert all(0 < c < 1 for c in made.coefficients)
    assert sum(made.coefficients) == pytest.approx(1.0)


def test_buffers_have_no_direction() -> None:
    mean = SimilarityMean()
    current = weights([0.0, 0.0, 7.0], num_buffers=1)
    updates = [update(0, [1.0, 0.0, 9.0], num_buffers=1)]
    seen = view([100], buffer=updates)
    made = mean.combine(current, updates, seen, generator(0, "aggregate"))
    assert mean.state().arrays["movement"].tolist() == [1.0, 0.0]
    assert made.weights.flat.tolist() == [1.0, 0.0, 9.0]


def test_where_everybody_turns_back_and_nothing_else_counts_samples_decide() -> None:
    mean = SimilarityMean(staleness_weight=0.0)
    combined(mean, [0.0, 0.0], [update(0, [1.0, 0.0], version=4)])
    updates = [
        update(i, [0.0, 0.0], base=[1.0, 0.0], version=5, num_examples=100 * (i + 1))
        for i in range(2)
    ]
    made = combined(mean, [1.0, 0.0], updates, version=5)
    assert made.coefficients == pytest.approx((1 / 3, 2 / 3))


def test_state_is_the_movement_and_nothing_before_there_is_one() -> None:
    mean = SimilarityMean()
    assert mean.state().arrays == {}
    other = SimilarityMean()
    other.restore(moved_right().state())
    assert torch.equal(other.state().arrays["movement"], torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"staleness_weight": -1.0}, "staleness_weight"),
        ({"similarity_weight": float("nan")}, "similarity_weight"),
        ({"staleness_weight": 0.0, "similarity_weight": 0.0}, "not both 0"),
        ({"half_staleness": 0.0}, "half_staleness"),
    ],
)
def test_settings_that_make_no_weights_are_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SimilarityMean(**settings)
