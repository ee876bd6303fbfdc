"""Parts of equally many: by hand, and whatever the order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import NAN

from pisces.select.quantiles import parts


def test_parts_by_hand() -> None:
    # Known: 1, 3, 5, 7, 9. Of 3 parts the first ends at place ceil(5/3) = 2, counted from 1 (3),
    # the second at ceil(10/3) = 4 (7).
    values = np.array([5.0, 1.0, 9.0, 3.0, 7.0, NAN])
    assert parts(values, 3).tolist() == [1, 0, 2, 0, 1, 3]
    assert parts(values, 1).tolist() == [0, 0, 0, 0, 0, 1]


def test_nobody_known() -> None:
    assert parts(np.array([NAN, NAN]), 3).tolist() == [3, 3]
    assert parts(np.array([]), 3).tolist() == []


def test_equal_values_share_a_part() -> None:
    assert parts(np.array([2.0, 2.0, 2.0, 2.0]), 2).tolist() == [0, 0, 0, 0]
    # 1, 1, 1, 2: the first half ends at 1, and all ones are in it
    assert parts(np.array([1.0, 2.0, 1.0, 1.0]), 2).tolist() == [0, 1, 0, 0]


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(0, 999), unique=True, max_size=40), num=st.integers(1, 7))
def test_different_values_make_equal_parts(values: list[int], num: int) -> None:
    found = parts(np.array(values, np.float64), num)
    sizes = np.bincount(found, minlength=num)
    assert len(sizes) == num
    assert max(sizes) - min(sizes) <= 1
    assert (np.diff(found[np.argsort(values)]) >= 0).all()  # no larger value in an earlier part
