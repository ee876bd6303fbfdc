"""Norm clipping on numbers small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from worlds import update, view, weights

from pisces.aggregate.clip import Clipped
from pisces.aggregate.mean import DiscountedMean
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.types import Update


def clipped(*, factor: float = 1.0, window: int = 64) -> Clipped:
    return Clipped(DiscountedMean(reference="base"), factor=factor, window=window)


def step(rule: Clipped, updates: Sequence[Update]) -> list[float]:
    """How far the parameters move from the origin."""
    made = rule.combine(weights([0.0, 0.0]), updates, view(), generator(1, "aggregate"))
    return [float(x) for x in made.weights.flat]


def test_a_long_update_is_cut_to_the_median() -> None:
    # Norms 5, 1 and 2, so the median is 2: (3, 4) becomes 2/5 of it, (1.2, 1.6). A third of
    # (1.2, 1.6) + (0, 1) + (2, 0) = (3.2, 2.6).
    updates = [update(0, [3.0, 4.0]), update(1, [0.0, 1.0]), update(2, [2.0, 0.0])]
    assert step(clipped(), updates) == pytest.approx([3.2 / 3, 2.6 / 3])


def test_the_factor_widens_the_limit() -> None:
    updates = [update(0, [3.0, 4.0]), update(1, [0.0, 1.0]), update(2, [2.0, 0.0])]
    assert step(clipped(factor=2.5), updates) == pytest.approx([5 / 3, 5 / 3])


def test_lengths_are_measured_from_where_the_client_began() -> None:
    # It went from 10 to 11: one step, however far from the origin.
    one = update(0, [11.0, 10.0], base=[10.0, 10.0])
    assert step(clipped(), [one]) == pytest.approx([1.0, 0.0])


def test_the_median_is_of_recent_updates() -> None:
    rule = clipped(window=3)
    for _ in range(3):
        step(rule, [update(0, [1.0, 0.0])])
    # Norms 1, 1 and 9: the newcomer is cut to 1. The next one meets 1, 9 and 9.
    assert step(rule, [update(1, [9.0, 0.0])]) == pytest.approx([1.0, 0.0])
    assert step(rule, [update(1, [9.0, 0.0])]) == pytest.approx([9.0, 0.0])


def test_buffers_are_neither_measured_nor_cut() -> None:
    # One parameter, one buffer. The parameters moved by 1 and 3, median 2: 3 becomes 2.
    updates = [
        update(0, [1.0, 100.0], base=[0.0, 0.0], num_buffers=1),
        update(1, [3.0, 50.0], base=[0.0, 0.0], num_buffers=1),
    ]
    current = weights([0.0, 0.0], num_buffers=1)
    made = clipped().combine(current, updates, view(), generator(1, "aggregate"))
    assert made.weights.flat.tolist() == pytest.approx([1.5, 75.0])


def test_a_client_that_did_not_move_is_no_trouble() -> None:
    assert step(clipped(), [update(0, [0.0, 0.0])]) == [0.0, 0.0]


@pytest.mark.parametrize(("factor", "window"), [(0.0, 64), (-1.0, 64), (float("nan"), 64), (1, 0)])
def test_senseless_settings_are_refused(factor: float, window: int) -> None:
    with pytest.raises(ConfigError, match="clipping needs a factor above 0"):
        clipped(factor=factor, window=window)
