"""The best of many: the short cuts find what the long way would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.seeds import generator
from pisces.select.top import choose, nth_largest, nth_smallest


@pytest.mark.parametrize(
    "kind", ["spread", "few values", "sorted", "all alike", "most alike", "one far away"]
)
@pytest.mark.parametrize("num", [1, 999, 2000, 50_000])
def test_the_nth_smallest_is_that_of_the_sorted(kind: str, num: int) -> None:
    rng = np.random.default_rng(num)
    values = {
        "spread": rng.lognormal(size=num),
        "few values": rng.integers(0, 3, num) / 2,
        "sorted": np.arange(num) / 7,
        "all alike": np.ones(num),
        "most alike": np.where(rng.random(num) < 0.9, 1.0, rng.lognormal(size=num)),
        "one far away": np.append(np.zeros(num - 1), 1e9),
    }[kind]
    ordered = np.sort(values)
    for place in {0, num // 3, num // 2, num - 1}:
        assert nth_smallest(values, place) == ordered[place]
    assert nth_largest(values, 1) == ordered[-1]
    assert nth_largest(values, num) == ordered[0]


def test_what_very_many_share_is_counted_and_not_sorted_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # np.partition would find it too, but ten times slower at a million.
    values = np.random.default_rng(1).lognormal(size=50_000)
    values[::2] = 1.0
    monkeypatch.delattr(np, "partition")
    assert nth_smallest(values, 25_000) == 1.0


def test_a_sample_that_misleads_does_no_harm() -> None:
    values = np.arange(50_000.0)
    values[::500] = 7.0  # exactly those the sample looks at
    assert nth_smallest(values, 40_000) == np.sort(values)[40_000]


@settings(max_examples=40)
@given(out_of=st.integers(1, 10**7), seed=st.integers(0, 99))
def test_choosing_one_is_the_draw_of_choosing_many(out_of: int, seed: int) -> None:
    one, many = generator(seed, "one"), generator(seed, "one")
    assert choose(1, out_of, one).tolist() == many.choice(out_of, 1, replace=False).tolist()
    assert one.random() == many.random()  # and leaves the generator where that would
