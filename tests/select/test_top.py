"""Drawing and ranking many: the short cuts find what the long way would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.seeds import generator
from pisces.select import top as tools
from pisces.select.top import choose, draw, nth_largest, nth_smallest


@pytest.mark.parametrize("kind", ["spread", "few values", "sorted", "all alike", "one far away"])
@pytest.mark.parametrize("num", [1, 999, 2000, 50_000])
def test_the_nth_smallest_is_that_of_the_sorted(kind: str, num: int) -> None:
    rng = np.random.default_rng(num)
    values = {
        "spread": rng.lognormal(size=num),
        "few values": rng.integers(0, 3, num) / 2,
        "sorted": np.arange(num) / 7,
        "all alike": np.ones(num),
        "one far away": np.append(np.zeros(num - 1), 1e9),
    }[kind]
    ordered = np.sort(values)
    for place in {0, num // 3, num // 2, num - 1}:
        assert nth_smallest(values, place) == ordered[place]
    assert nth_largest(values, 1) == ordered[-1]
    assert nth_largest(values, num) == ordered[0]


@settings(max_examples=40)
@given(out_of=st.integers(1, 10**7), seed=st.integers(0, 99))
def test_choosing_one_is_the_draw_of_choosing_many(out_of: int, seed: int) -> None:
    one, many = generator(seed, "one"), generator(seed, "one")
    assert choose(1, out_of, one).tolist() == many.choice(out_of, 1, replace=False).tolist()
    assert one.random() == many.random()  # and leaves the generator where that would


def test_few_are_drawn_out_of_many_in_proportion_to_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in the test of the draw by noise: of weights 6, 3, 1 the first two are {0, 1} with
    # probability 0.6 x 3/4 + 0.3 x 6/7 = 0.707; the deviation over 4000 draws is 0.007.
    monkeypatch.setattr(tools, "MANY", 3)
    rng, weights = generator(2, "draw"), np.array([6.0, 3.0, 1.0])
    firsts = [int(draw(weights, 1, rng)[0]) for _ in range(4000)]
    assert np.bincount(firsts, minlength=3) / 4000 == pytest.approx([0.6, 0.3, 0.1], abs=0.035)
    pairs = [set(draw(weights, 2, rng).tolist()) == {0, 1} for _ in range(4000)]
    assert np.mean(pairs) == pytest.approx(0.707, abs=0.035)


def test_weights_of_zero_are_drawn_last_out_of_many_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MANY", 4)
    rng, weights = generator(3, "draw"), np.array([0.0, 2.0, 0.0, 1.0])
    assert all(set(draw(weights, 2, rng).tolist()) == {1, 3} for _ in range(50))
    assert sorted(draw(weights, 4, rng)) == sorted(draw(weights, 9, rng)) == [0, 1, 2, 3]
    assert len(draw(weights, 0, rng)) == 0


def test_a_pool_of_many_needs_no_noise_for_all() -> None:
    weights = np.ones(2 * tools.MANY)
    rng, after = generator(4, "draw"), generator(4, "draw")
    assert len(set(draw(weights, 100, rng).tolist())) == 100
    after.random(200)  # two numbers for each of them, whatever the size of the pool
    assert rng.random() == after.random()
