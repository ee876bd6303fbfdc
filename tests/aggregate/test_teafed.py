"""A mean mixed in, on numbers small enough to check."""

from __future__ import annotations

import pytest
import torch
from worlds import update, view, weights

from pisces.aggregate.staleness import Discount
from pisces.aggregate.teafed import MixedMean
from pisces.errors import ConfigError
from pisces.seeds import generator

RNG = generator(1, "aggregate")

# Version 3. Client 0 is fresh, f = 1, with 100 samples; client 1 three behind, f = 1/2, with 600:
# weights 100 and 300, so u = 1/4 (8, 0) + 3/4 (16, 4) = (14, 3).
UPDATES = [
    update(0, [8.0, 0.0], version=3, num_examples=100),
    update(1, [16.0, 4.0], base=[9.0, 9.0], version=0, num_examples=600),
]


def test_the_mean_is_mixed_in_by_the_mean_discount() -> None:
    # a = 0.8 x (1 + 1/2) / 2 = 0.6. 0.4 (4, 8) + 0.6 (14, 3) = (10, 5).
    made = MixedMean(0.8).combine(weights([4.0, 8.0]), UPDATES, view(version=3), RNG)
    assert made.weights.flat.tolist() == pytest.approx([10.0, 5.0])
    assert made.coefficients == pytest.approx((0.15, 0.45))


def test_buffers_mix_in_the_same_way() -> None:
    # a = 1/2: half of the way from (4, 8) to (0, 16).
    one = update(0, [0.0, 16.0], base=[5.0, 5.0], num_buffers=1)
    rule = MixedMean(0.5, Discount("constant"))
    made = rule.combine(weights([4.0, 8.0], num_buffers=1), [one], view(version=7), RNG)
    assert made.weights.flat.tolist() == [2.0, 12.0]


def test_the_order_does_not_matter() -> None:
    rule, current, now = MixedMean(), weights([1.0, 2.0]), view(version=3)
    one, other = (rule.combine(current, u, now, RNG) for u in (UPDATES, UPDATES[::-1]))
    assert torch.allclose(one.weights.flat, other.weights.flat)
    assert one.coefficients == pytest.approx(other.coefficients[::-1])


def test_a_senseless_alpha_is_refused() -> None:
    with pytest.raises(ConfigError, match="alpha: must be above 0 and at most 1, not 2"):
        MixedMean(2)
