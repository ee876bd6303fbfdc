"""Clients put into equally large parts by a fact of theirs, such as the fast, middle and slow."""

from __future__ import annotations

import numpy as np

from pisces.select.top import Floats, Ids, nth_smallest


def parts(values: Floats, num: int) -> Ids:
    """Which of `num` parts each value falls into, the smallest values into part 0.

    The parts are as large as each other where no two values are equal; equal values share a part,
    so it does not matter in which order they stand. A value nobody knows (NaN) is in part `num`.
    """
    unknown = np.isnan(values)
    found: Ids = np.zeros(len(values), np.int64)
    for end in _ends(values[~unknown], num):
        found += values > end
    found[unknown] = num
    return found


def _ends(known: Floats, num: int) -> list[float]:
    """The largest value of each part but the last."""
    if not len(known):
        return []
    places = [-(-len(known) * part // num) - 1 for part in range(1, num)]
    return [nth_smallest(known, place) for place in places]
