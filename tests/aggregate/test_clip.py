"""Clipping, on vectors small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from worlds import update, view, weights

from pisces.aggregate.clip import Clipped
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.server import Momentum, Optimized
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update, Weights


class Seen(Aggregator):
    """Does nothing but look."""

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        self.updates = updates
        return Combination(weights, (0.25,) * len(updates))


def clipped(updates: Sequence[Update], norm: float) -> list[list[float]]:
    """The updates' weights as an inner aggregator sees them."""
    seen = Seen()
    Clipped(seen, norm=norm).combine(weights([0.0]), updates, view(), generator(1, "aggregate"))
    return [u.weights.flat.tolist() for u in seen.updates]


def test_clipping_by_hand() -> None:
    # (3, 4) of length 5 becomes (1.5, 2) of length 2.5; (0, 2) may stay. Each from its own base,
    # and the buffer, which is last, is neither measured nor changed.
    long = update(0, [4.0, 6.0, 90.0], base=[1.0, 2.0, 7.0], num_buffers=1)
    short = update(1, [1.0, 3.0, 90.0], base=[1.0, 1.0, 7.0], num_buffers=1)
    assert clipped([long, short], norm=2.5) == [[2.5, 4.0, 90.0], [1.0, 3.0, 90.0]]


def test_what_is_short_enough_is_not_copied() -> None:
    updates, seen = [update(0, [0.3, 0.4]), update(1, [3.0, 4.0])], Seen()
    rule = Clipped(seen, norm=0.5)
    made = rule.combine(weights([0.0]), updates, view(), generator(1, "aggregate"))
    assert made.coefficients == (0.25, 0.25)
    assert seen.updates[0] is updates[0]
    assert updates[1].weights.flat.tolist() == [3.0, 4.0]
    assert (seen.updates[1].client, seen.updates[1].base) == (1, updates[1].base)


def test_a_length_beyond_floats_is_no_way_at_all() -> None:
    # The square of 1e30 is infinite, and so is the way from -3e38 to 3e38 itself.
    updates = [update(0, [1e30, 1.0], base=[1.0, 2.0]), update(1, [3e38, 1.0], base=[-3e38, 2.0])]
    first, second = clipped(updates, norm=1.0)
    assert first == [1.0, 2.0]
    assert second == torch.tensor([-3e38, 2.0]).tolist()


def test_the_inner_aggregator_combines_what_is_left() -> None:
    # From 10, steps of 8 cut to 2 and of -1, half each: 10 + 1 - 0.5.
    updates = [update(0, [18.0], base=[10.0]), update(1, [9.0], base=[10.0])]
    rule = Clipped(DiscountedMean(reference="base"), norm=2.0)
    made = rule.combine(weights([10.0]), updates, view(), generator(1, "aggregate"))
    assert made.weights.flat.tolist() == [10.5]
    assert made.coefficients == (0.5, 0.5)


points = st.lists(st.floats(-1000, 1000, width=32), min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(start=points, end=points, norm=st.floats(1e-3, 1e3))
def test_no_update_is_longer_and_none_turns(
    start: list[float], end: list[float], norm: float
) -> None:
    flat = torch.tensor(clipped([update(0, end, base=start)], norm)[0], dtype=torch.float64)
    base, there = (torch.tensor(x, dtype=torch.float64) for x in (start, end))
    way, whole = flat - base, there - base
    rounding = 1e-3  # of values up to 1000, in float32
    assert float(way.norm()) <= norm + rounding
    assert float((way - whole * min(1.0, norm / (float(whole.norm()) or 1.0))).norm()) <= rounding


def test_what_the_inner_aggregator_remembers_goes_on() -> None:
    first, second = (
        Clipped(Optimized(DiscountedMean(reference="base"), Momentum()), norm=1.0) for _ in range(2)
    )
    rng, one = generator(1, "aggregate"), [update(0, [0.5])]
    first.combine(weights([0.0]), one, view(), rng)
    second.restore(through_json(first.state()))
    made, again = (r.combine(weights([0.0]), one, view(), rng) for r in (first, second))
    assert made.weights.flat.tolist() == again.weights.flat.tolist() == pytest.approx([0.95])


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_norm_is_refused(norm: float) -> None:
    with pytest.raises(ConfigError, match="norm above 0, not"):
        Clipped(DiscountedMean(), norm=norm)
