"""Drawing by weight: the short cut for many draws as the long way would."""

from __future__ import annotations

import numpy as np
import pytest

from pisces.seeds import generator
from pisces.select import draw as drawing
from pisces.select.draw import draw


def test_few_are_drawn_out_of_many_in_proportion_to_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in the test of the draw by noise: of weights 6, 3, 1 the first two are {0, 1} with
    # probability 0.6 x 3/4 + 0.3 x 6/7 = 0.707; the deviation over 4000 draws is 0.007.
    monkeypatch.setattr(drawing, "MANY", 3)
    rng, weights = generator(2, "draw"), np.array([6.0, 3.0, 1.0])
    firsts = [int(draw(weights, 1, rng)[0]) for _ in range(4000)]
    assert np.bincount(firsts, minlength=3) / 4000 == pytest.approx([0.6, 0.3, 0.1], abs=0.035)
    pairs = [set(draw(weights, 2, rng).tolist()) == {0, 1} for _ in range(4000)]
    assert np.mean(pairs) == pytest.approx(0.707, abs=0.035)


def test_weights_of_zero_are_drawn_last_out_of_many_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MANY", 4)
    rng, weights = generator(3, "draw"), np.array([0.0, 2.0, 0.0, 1.0])
    assert all(set(draw(weights, 2, rng).tolist()) == {1, 3} for _ in range(50))
    assert sorted(draw(weights, 4, rng)) == sorted(draw(weights, 9, rng)) == [0, 1, 2, 3]
    assert len(draw(weights, 0, rng)) == 0


def test_a_pool_of_many_needs_no_noise_for_all() -> None:
    weights = np.ones(2 * drawing.MANY)
    rng, after = generator(4, "draw"), generator(4, "draw")
    assert len(set(draw(weights, 100, rng).tolist())) == 100
    after.random(200)  # two numbers for each of them, whatever the size of the pool
    assert rng.random() == after.random()
