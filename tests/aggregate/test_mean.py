"""The discounted mean: FedAvg's, FedBuff's and Pisces' rules on numbers small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update, view, weights

from pisces.aggregate.mean import DiscountedMean
from pisces.policy import Combination
from pisces.seeds import generator
from pisces.types import Update, Weights
from pisces.words import Reference


def combine(
    rule: DiscountedMean, current: Weights, updates: Sequence[Update], version: int = 0
) -> Combination:
    return rule.combine(current, updates, view(version=version), generator(1, "aggregate"))


def test_fedavg_weighs_by_samples() -> None:
    # 1/4 (2, 4) + 3/4 (4, 0) = (3.5, 1); where the mean starts from does not matter.
    updates = [update(0, [2.0, 4.0], num_examples=100), update(1, [4.0, 0.0], num_examples=300)]
    made = combine(DiscountedMean(), weights([1.0, 2.0]), updates)
    assert made.weights.flat.tolist() == [3.5, 1.0]
    assert made.coefficients == (0.25, 0.75)


def test_staleness_does_not_count_unless_asked() -> None:
    made = combine(DiscountedMean(), weights([0.0]), [update(0, [9.0], version=2)], version=10)
    assert made.weights.flat.tolist() == [9.0]


# Version 3. Client 0 is fresh and moved by (1, 2); client 1 is three behind, which counts
# (1 + 3)^-1/2 = 1/2, and moved by (2, 0) from its own base. Half each, whatever their samples:
# (10, 10) + 1/2 (1, 2) + 1/4 (2, 0) = (11, 11).
FEDBUFF_UPDATES = [
    update(0, [1.0, 2.0], version=3, num_examples=1),
    update(1, [3.0, 1.0], base=[1.0, 1.0], version=0, num_examples=999),
]


def test_fedbuff_adds_discounted_changes() -> None:
    rule = DiscountedMean(share="equal", staleness_penalty=0.5, reference="base")
    made = combine(rule, weights([10.0, 10.0]), FEDBUFF_UPDATES, version=3)
    assert made.weights.flat.tolist() == [11.0, 11.0]
    assert made.coefficients == (0.5, 0.25)


def test_the_server_rate_scales_the_step_and_the_reported_coefficients() -> None:
    # Half of the step (1, 1).
    rule = DiscountedMean(share="equal", staleness_penalty=0.5, reference="base", server_rate=0.5)
    made = combine(rule, weights([10.0, 10.0]), FEDBUFF_UPDATES, version=3)
    assert made.weights.flat.tolist() == [10.5, 10.5]
    assert made.coefficients == (0.25, 0.125)


def test_pisces_mixes_into_the_current_model() -> None:
    # Shares 1/4 and 3/4; the second is three behind: 3/4 x 1/2 = 3/8. From (0, 8):
    # (0, 8) + 1/4 (4, 0) + 3/8 (8, -8) = (4, 5).
    updates = [
        update(0, [4.0, 8.0], version=3, num_examples=100),
        update(1, [8.0, 0.0], base=[7.0, 7.0], version=0, num_examples=300),
    ]
    rule = DiscountedMean(staleness_penalty=0.5)
    made = combine(rule, weights([0.0, 8.0]), updates, version=3)
    assert made.weights.flat.tolist() == [4.0, 5.0]
    assert made.coefficients == (0.25, 0.375)


@pytest.mark.parametrize(
    ("penalty", "coefficient"),
    # Eight behind: 9^0, 9^-1/2, 9^-1.
    [(0.0, 1.0), (0.5, 1 / 3), (1.0, 1 / 9)],
)
def test_the_penalty_is_the_exponent_of_the_discount(penalty: float, coefficient: float) -> None:
    rule = DiscountedMean(staleness_penalty=penalty)
    made = combine(rule, weights([0.0]), [update(0, [9.0], version=2)], version=10)
    assert made.coefficients == pytest.approx((coefficient,))
    assert made.weights.flat.tolist() == pytest.approx([9.0 * coefficient])


@pytest.mark.parametrize(("reference", "parameter"), [("base", 2.0), ("current", 1.75)])
def test_buffers_mix_against_the_current_model_at_rate_1(
    reference: Reference, parameter: float
) -> None:
    # One update, three behind (1/2), server rate 1/2. Parameter 1, buffer 10 now; the client went
    # from (0, 2) to (4, 20). Parameter: 1 + 1/4 x 4 against its base, 1 + 1/4 x 3 against the
    # current. Buffer: 10 + 1/2 (20 - 10) = 15, not against 2 and not at half the rate.
    rule = DiscountedMean(
        share="equal", staleness_penalty=0.5, reference=reference, server_rate=0.5
    )
    one = update(0, [4.0, 20.0], base=[0.0, 2.0], version=0, num_buffers=1)
    made = combine(rule, weights([1.0, 10.0], num_buffers=1), [one], version=3)
    assert made.weights.flat.tolist() == [parameter, 15.0]
    assert made.coefficients == (0.25,)


def test_nothing_it_is_given_is_changed() -> None:
    current = weights([1.0, 10.0], num_buffers=1)
    updates = [update(c, [4.0, 20.0], base=[0.0, 2.0], num_buffers=1) for c in range(2)]
    made = combine(DiscountedMean(reference="base"), current, updates)
    assert current.flat.tolist() == [1.0, 10.0]
    assert all(u.weights.flat.tolist() == [4.0, 20.0] for u in updates)
    assert all(u.base.flat.tolist() == [0.0, 2.0] for u in updates)
    assert made.weights.layout is current.layout
    assert made.weights.flat.data_ptr() != current.flat.data_ptr()


def test_keeps_no_state_and_draws_nothing() -> None:
    rng = generator(1, "aggregate")
    rule = DiscountedMean(staleness_penalty=0.5)
    rule.combine(weights([1.0]), [update(0)], view(), rng)
    assert rule.state().values == {}
    assert rng.random() == generator(1, "aggregate").random()


numbers = st.floats(-100.0, 100.0, width=32)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(numbers, min_size=1, max_size=6),
    current=numbers,
    sizes=st.lists(st.integers(1, 10_000), min_size=6, max_size=6),
    lags=st.lists(st.integers(0, 30), min_size=6, max_size=6),
    penalty=st.floats(0.0, 2.0),
)
def test_mixing_never_leaves_the_range_of_the_models_it_mixes(
    values: list[float], current: float, sizes: list[int], lags: list[int], penalty: float
) -> None:
    """With rate 1 and reference `current` the coefficients are shares that sum to at most 1."""
    updates = [
        update(c, [x], version=30 - lags[c], num_examples=sizes[c]) for c, x in enumerate(values)
    ]
    rule = DiscountedMean(staleness_penalty=penalty)
    made = combine(rule, weights([current]), updates, version=30)
    low, high = min([*values, current]), max([*values, current])
    assert low - 1e-3 <= made.weights.flat.item() <= high + 1e-3
    assert 0 < sum(made.coefficients) <= 1 + 1e-9


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5))
def test_fedbuff_with_equal_and_fresh_clients_is_fedavg(values: list[list[float]]) -> None:
    current = [1.0, -2.0, 3.0]
    updates = [update(c, x, base=current) for c, x in enumerate(values)]
    fedbuff = DiscountedMean(share="equal", staleness_penalty=0.5, reference="base")
    one = combine(fedbuff, weights(current), updates)
    other = combine(DiscountedMean(), weights(current), updates)
    assert torch.allclose(one.weights.flat, other.weights.flat, atol=1e-4)
