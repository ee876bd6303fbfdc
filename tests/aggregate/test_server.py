"""Server optimisers, on numbers small enough to check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from worlds import update, view, weights

from pisces.aggregate.average import Averaged
from pisces.aggregate.clip import Clipped
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.port import SimilarityMean
from pisces.aggregate.server import Adam, AMSGrad, Momentum, Optimized, Rule, Yogi
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator

RULES = [
    Momentum(0.5),
    Adam(0.1),
    Yogi(0.1),
    AMSGrad(0.1, patience=2),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


def combine(rule: Aggregator, now: float, step: float, staleness: int = 0) -> Combination:
    """One parameter at `now`, and a client that has gone by `step`."""
    version = 9
    one = update(0, [now + step], base=[now], version=version - staleness)
    seen = view(version=version)
    return rule.combine(weights([now]), [one], seen, generator(1, "aggregate"))


def steps(rule: Rule, *pseudo: float, staleness: int = 0) -> list[float]:
    """How far each of these steps of a plain mean leads, one after the other."""
    optimized = Optimized(DiscountedMean(reference="base"), rule)
    return [float(combine(optimized, 0.0, step, staleness).weights.flat) for step in pseudo]


def test_momentum_by_hand() -> None:
    # u = 4, 1 + 4/2 = 3, -1 + 3/2 = 1/2; twice that.
    assert steps(Momentum(rate=2.0, beta=0.5), 4.0, 1.0, -1.0) == [8.0, 6.0, 1.0]


def test_adam_by_hand() -> None:
    # From m 0, v 1^2. A step of 1: m = 1/2, v = 1/2 + 1/2 = 1, so 10 x 1/2 / (1 + 1).
    # One of 7: m = 1/4 + 7/2 = 15/4, v = 1/2 + 49/2 = 25, so 10 x 15/4 / (5 + 1).
    rule = Adam(rate=10.0, beta1=0.5, beta2=0.5, tau=1.0)
    assert steps(rule, 1.0, 7.0) == pytest.approx([2.5, 6.25])


def test_yogi_by_hand() -> None:
    # From m 0, v 1^2. A step of 1: v stays, m = 1/2, so 16 x 1/2 / 2. One of 4, more than v:
    # m = 1/4 + 2 = 9/4, v = 1 + 16/2 = 9, so 16 x 9/4 / (3 + 1).
    # One of 2, less than v: m = 9/8 + 1 = 17/8, v = 9 - 4/2 = 7.
    rule = Yogi(rate=16.0, beta1=0.5, beta2=0.5, tau=1.0)
    expected = [4.0, 9.0, 16 * 17 / 8 / (7**0.5 + 1)]
    assert steps(rule, 1.0, 4.0, 2.0) == pytest.approx(expected)


def test_amsgrad_by_hand() -> None:
    # From m 0, v 0. A step of 2: m = 1, v = 4/4 = 1, so 8 x 1 / (1 + 1).
    # None: m = 1/2, v = 3/4, but 1 was the most, so 8 x 1/2 / 2.
    # One of 4: m = 1/4 + 2 = 9/4, v = 9/16 + 16/4 = 73/16, the most now.
    rule = AMSGrad(rate=8.0, beta1=0.5, beta2=0.75, tau=1.0)
    expected = [4.0, 2.0, 8 * 9 / 4 / ((73 / 16) ** 0.5 + 1)]
    assert steps(rule, 2.0, 0.0, 4.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("patience", "staleness", "expected"),
    # 8 x 1 / (1 + 1) = 4 as above, divided by the staleness beyond patience.
    [(None, 5, 4.0), (5, 5, 4.0), (4, 5, 0.8), (0, 0, 4.0), (0, 1, 4.0), (0, 2, 2.0)],
)
def test_patience_ends_where_updates_are_stale(
    patience: int | None, staleness: int, expected: float
) -> None:
    rule = AMSGrad(rate=8.0, beta1=0.5, beta2=0.75, tau=1.0, patience=patience)
    assert steps(rule, 2.0, staleness=staleness) == pytest.approx([expected])


def test_the_stalest_update_is_what_counts() -> None:
    # Steps of 1 and 3, from this version and three versions ago: 4 as above, divided by 3.
    rule = AMSGrad(rate=8.0, beta1=0.5, beta2=0.75, tau=1.0, patience=2)
    updates = [update(0, [1.0], version=9), update(1, [3.0], version=6)]
    optimized = Optimized(DiscountedMean(reference="base"), rule)
    made = optimized.combine(weights([0.0]), updates, view(version=9), generator(1, "aggregate"))
    assert float(made.weights.flat) == pytest.approx(4 / 3)


def test_buffers_and_coefficients_are_the_inner_ones() -> None:
    # Half the samples each. The parameter goes by 2 x (1 + 3) / 2, the buffer to (20 + 40) / 2.
    updates = [update(c, v, num_buffers=1) for c, v in enumerate([[1.0, 20.0], [3.0, 40.0]])]
    optimized = Optimized(DiscountedMean(reference="base"), Momentum(rate=2.0))
    now = weights([5.0, 10.0], num_buffers=1)
    made = optimized.combine(now, updates, view(), generator(1, "aggregate"))
    assert made.weights.flat.tolist() == [9.0, 30.0]
    assert made.coefficients == (0.5, 0.5)
    assert optimized.state().arrays["rule/momentum"].tolist() == [2.0]


numbers = st.floats(-100.0, 100.0, width=32)


@settings(max_examples=60, deadline=None)
@given(runs=st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=4))
def test_rate_1_without_momentum_is_the_inner_aggregator_bit_for_bit(
    runs: list[list[float]],
) -> None:
    plain, now = DiscountedMean(reference="base", server_rate=0.7), weights([0.1, 1e-9, 50.0, 3.0])
    optimized = Optimized(plain, Momentum(rate=1.0, beta=0.0))
    for values in runs:
        updates = [update(0, values), update(1, values[::-1], num_examples=33)]
        rng = generator(1, "aggregate")
        one, other = (a.combine(now, updates, view(), rng) for a in (plain, optimized))
        assert torch.equal(one.weights.flat, other.weights.flat)
        now = one.weights


def test_floats_would_not_have_come_back_by_themselves() -> None:
    # So the test above can fail: from 50, a way of 1e-9 - 50 leads to 0.
    now, there = torch.tensor(50.0), torch.tensor(1e-9)
    assert now + (there - now) != there


@every_rule
def test_a_version_that_is_not_finite_leaves_no_trace(rule: Rule) -> None:
    optimized, other = (Optimized(DiscountedMean(reference="base"), rule) for _ in range(2))
    for one in (optimized, other):
        combine(one, 0.0, 2.0)
    assert not bool(combine(optimized, 0.0, float("inf")).weights.flat.isfinite())
    assert torch.equal(
        combine(optimized, 0.0, 1.0).weights.flat, combine(other, 0.0, 1.0).weights.flat
    )


def test_a_square_beyond_floats_is_not_remembered_for_ever() -> None:
    # 1e30 squared is infinite: the parameter stays where it is, once.
    assert steps(Adam(1.0), 1e30, 2.0) == [0.0, *steps(Adam(1.0), 2.0)]


@every_rule
def test_every_rule_goes_on_from_saved_state(rule: Rule) -> None:
    """Bit for bit, also through JSON."""
    draws = generator(1, "steps").normal(size=12).tolist()
    first, second = (Optimized(DiscountedMean(reference="base"), rule) for _ in range(2))
    for k, step in enumerate(draws):
        if k == 6:
            second.restore(through_json(first.state()))
        made = combine(first, 1.0, step, staleness=k % 4)
        if k >= 6:
            assert torch.equal(
                combine(second, 1.0, step, staleness=k % 4).weights.flat, made.weights.flat
            )
    fresh = Optimized(DiscountedMean(reference="base"), rule)
    assert not torch.equal(combine(fresh, 1.0, draws[-1]).weights.flat, made.weights.flat)


def test_what_the_inner_aggregator_remembers_is_saved_too() -> None:
    inner = SimilarityMean()
    optimized = Optimized(inner, Momentum())
    inner.combine(weights([0.0]), [update(0, [4.0])], view(), generator(1, "aggregate"))
    assert optimized.state().part("inner").arrays["movement"].tolist() == [4.0]
    other = SimilarityMean()
    Optimized(other, Momentum()).restore(through_json(optimized.state()))
    assert other.state().arrays["movement"].tolist() == [4.0]


def test_an_average_goes_around_not_inside() -> None:
    around = Averaged(Optimized(DiscountedMean(), Momentum()), horizon=4.0)
    assert combine(around, 0.0, 2.0).published is not None
    with pytest.raises(ConfigError, match="put the average around the optimiser"):
        Optimized(Averaged(DiscountedMean(), horizon=4.0), Momentum())
    with pytest.raises(ConfigError, match="an average already"):
        Averaged(Clipped(around, norm=1.0), horizon=4.0)


class Secretive(DiscountedMean):
    """Publishes something else without a word."""

    def combine(self, *args: Any) -> Combination:
        made = super().combine(*args)
        return replace(made, published=made.weights)


def test_who_publishes_without_saying_so_is_found_out() -> None:
    with pytest.raises(ConfigError, match="put the average around the optimiser"):
        combine(Optimized(Secretive(), Momentum()), 0.0, 2.0)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("rule", [Momentum, Adam, Yogi, AMSGrad])
@pytest.mark.parametrize("rate", [0.0, -1.0, NAN, INF])
def test_a_senseless_rate_is_refused(rule: type, rate: float) -> None:
    with pytest.raises(ConfigError, match="rate above 0, not"):
        rule(rate)


@pytest.mark.parametrize("beta", [-0.1, 1.0, NAN])
def test_a_senseless_beta_is_refused(beta: float) -> None:
    for make in (
        lambda: Momentum(beta=beta),
        lambda: Adam(1.0, beta1=beta),
        lambda: Yogi(1.0, beta2=beta),
        lambda: AMSGrad(1.0, beta2=beta),
    ):
        with pytest.raises(ConfigError, match="at least 0 and below 1, not"):
            make()


@pytest.mark.parametrize("rule", [Adam, Yogi, AMSGrad])
@pytest.mark.parametrize("tau", [0.0, -1.0, NAN, INF])
def test_a_senseless_tau_is_refused(rule: type, tau: float) -> None:
    with pytest.raises(ConfigError, match="tau above 0, not"):
        rule(1.0, tau=tau)


def test_senseless_patience_is_refused() -> None:
    with pytest.raises(ConfigError, match="staleness of 0 or more, not -1"):
        AMSGrad(1.0, patience=-1)
