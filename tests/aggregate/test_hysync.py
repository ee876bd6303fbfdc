"""One by one or as a mean, on numbers small enough to check."""

from __future__ import annotations

import pytest
import torch
from worlds import update, view, weights

from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.hysync import Hybrid
from pisces.aggregate.staleness import Discount
from pisces.errors import ConfigError
from pisces.policy import Combination
from pisces.seeds import generator

# Version 3: fresh with 100 samples, three behind with 300.
UPDATES = [
    update(0, [8.0], version=3, num_examples=100),
    update(1, [16.0], base=[9.0], version=0, num_examples=300),
]


def combine(rule: Hybrid | Mixing, num: int = 2) -> Combination:
    return rule.combine(weights([4.0]), UPDATES[:num], view(version=3), generator(1, "aggregate"))


def test_a_crowd_is_merged_first() -> None:
    # The mean by samples is 1/4 x 8 + 3/4 x 16 = 14. It is mixed in by 0.8 (1/4 x 1 + 3/4 x 1/2) =
    # 0.5: 4 + 0.5 (14 - 4) = 9.
    made = combine(Hybrid(1, alpha=0.8))
    assert made.weights.flat.tolist() == pytest.approx([9.0])
    assert made.coefficients == pytest.approx((0.125, 0.375))


@pytest.mark.parametrize(("threshold", "num"), [(2, 2), (2, 1), (9, 2)])
def test_few_are_mixed_one_by_one(threshold: int, num: int) -> None:
    made, expected = combine(Hybrid(threshold, alpha=0.8), num), combine(Mixing(0.8), num)
    assert torch.equal(made.weights.flat, expected.weights.flat)
    assert made.coefficients == expected.coefficients


def test_buffers_of_a_crowd_mix_against_the_current_model() -> None:
    # Half of the way from (0, 8) to the mean (2, 24).
    updates = [update(c, [2.0, b], base=[5, 5], num_buffers=1) for c, b in enumerate([16.0, 32.0])]
    rule = Hybrid(1, 0.5, Discount("constant"))
    current = weights([0.0, 8.0], num_buffers=1)
    made = rule.combine(current, updates, view(), generator(1, "aggregate"))
    assert made.weights.flat.tolist() == [1.0, 16.0]


def test_senseless_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="threshold: must be at least 0 updates, not -1"):
        Hybrid(-1)
    with pytest.raises(ConfigError, match="alpha: must be above 0"):
        Hybrid(1, alpha=0.0)
