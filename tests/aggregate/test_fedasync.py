"""Mixing one after the other, on numbers small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update, view, weights

from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.staleness import Discount
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update, Weights

CONSTANT = Discount("constant")


def combine(
    rule: Aggregator, current: Weights, updates: Sequence[Update], version: int = 0
) -> Combination:
    return rule.combine(current, updates, view(version=version), generator(1, "aggregate"))


def test_one_update_is_mixed_in_by_its_staleness() -> None:
    # Three behind: a = 0.8 / 2 = 0.4. 0.6 (10, 0) + 0.4 (20, 5) = (14, 2), whatever its base.
    one = update(0, [20.0, 5.0], base=[7.0, 7.0], version=0)
    made = combine(Mixing(0.8), weights([10.0, 0.0]), [one], version=3)
    assert made.weights.flat.tolist() == pytest.approx([14.0, 2.0])
    assert made.coefficients == pytest.approx((0.4,))


def test_the_rate_is_not_compounded() -> None:
    # Half of what is left, every time: from 16 to 0 by 8, 4, 2.
    rule, current = Mixing(0.5), weights([16.0])
    for version, expected in enumerate([8.0, 4.0, 2.0]):
        current = combine(rule, current, [update(0, [0.0], version=version)], version).weights
        assert current.flat.tolist() == [expected]


def test_several_are_mixed_in_order_of_arrival_then_of_tasks() -> None:
    # From 0, half of the way each: to 8 (arrived at 1), 4; to 0 (at 2, task 3), 2; to 10 (at 2,
    # task 9), 6. Of the first 1/8 is left, of the second 1/4, of the third 1/2.
    updates = [
        update(0, [10.0], arrived_at=2.0, task_id=9),
        update(1, [8.0], arrived_at=1.0, task_id=12),
        update(2, [0.0], arrived_at=2.0, task_id=3),
    ]
    made = combine(Mixing(0.5, CONSTANT), weights([0.0]), updates)
    assert made.weights.flat.tolist() == [6.0]
    assert made.coefficients == (0.5, 0.125, 0.25)


def test_each_by_its_own_staleness() -> None:
    # alpha 1/2. Fresh: 1/2 of the way from 0 to 8, 4; then 5 behind, hinge 1/11: 1/22 of the way
    # from 4 to 26, 5. Coefficients 1/2 x 21/22 and 1/22.
    updates = [update(0, [8.0], version=5), update(1, [26.0], version=0)]
    made = combine(Mixing(0.5, Discount("hinge")), weights([0.0]), updates, version=5)
    assert made.weights.flat.tolist() == pytest.approx([5.0])
    assert made.coefficients == pytest.approx((21 / 44, 1 / 22))


def test_with_alpha_1_and_no_discount_the_last_one_replaces_the_model() -> None:
    rng = generator(1, "models")
    models = rng.normal(size=(3, 5)) * [[1e3], [1.0], [1e-3]]
    updates = [update(c, m.tolist(), num_buffers=2) for c, m in enumerate(models)]
    current = weights(rng.normal(size=5).tolist(), num_buffers=2)
    made = combine(Mixing(1.0, CONSTANT), current, updates, version=9)
    assert torch.equal(made.weights.flat, updates[-1].weights.flat)  # bit for bit
    assert made.coefficients == (0.0, 0.0, 1.0)


def test_buffers_mix_with_the_same_rates() -> None:
    # 1/4 of the way from (0, 8) to (4, 16), against neither of its base's.
    one = update(0, [4.0, 16.0], base=[1.0, 99.0], num_buffers=1)
    made = combine(Mixing(0.25, CONSTANT), weights([0.0, 8.0], num_buffers=1), [one])
    assert made.weights.flat.tolist() == [1.0, 10.0]


numbers = st.floats(-100.0, 100.0, width=32)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(numbers, min_size=1, max_size=5),
    current=numbers,
    lags=st.lists(st.integers(0, 30), min_size=5, max_size=5),
    alpha=st.floats(0.01, 1.0),
)
def test_the_coefficients_tell_what_was_done(
    values: list[float], current: float, lags: list[int], alpha: float
) -> None:
    """The new model is the old one and the updates', each as often as it says."""
    updates = [update(c, [x], version=30 - lags[c]) for c, x in enumerate(values)]
    made = combine(Mixing(alpha), weights([current]), updates, version=30)
    kept = 1 - sum(made.coefficients)
    told = kept * current + sum(c * x for c, x in zip(made.coefficients, values, strict=True))
    assert -1e-9 <= kept < 1
    assert float(made.weights.flat) == pytest.approx(told, abs=1e-3)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, float("nan")])
def test_a_senseless_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha: must be above 0 and at most 1, not"):
        Mixing(alpha)
