"""The best of many: the highest scores, lots among equals, and the value at a place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

SAMPLE = 100  # values that tell whether very many are alike


def top(scores: Floats, num: int, rng: np.random.Generator) -> Ids:
    """Where the `num` highest scores are (all, if there are fewer); ties at the end are drawn."""
    num = min(num, len(scores))
    if num <= 0:
        return np.empty(0, np.int64)
    worst = nth_largest(scores, num)
    better, tied = (scores > worst).nonzero()[0], (scores == worst).nonzero()[0]
    if len(tied) == 1:  # nothing to draw
        return np.concatenate([better, tied])
    return np.concatenate([better, tied[choose(num - len(better), len(tied), rng)]])


def choose(num: int, out_of: int, rng: np.random.Generator) -> Ids:
    """So many different places below `out_of`, each as likely as any other."""
    if num == 1:  # the same draw at a quarter of the price
        return np.array([rng.integers(out_of)])
    return rng.choice(out_of, num, replace=False)


def nth_largest(values: Floats, num: int) -> float:
    """The value at place `num`, counted from 1, when the largest comes first."""
    return float(values.max()) if num == 1 else nth_smallest(values, len(values) - num)


def nth_smallest(values: Floats, place: int) -> float:
    """The value at `place`, counted from 0, when the smallest comes first.

    `np.partition` is the way, except for a value that very many share, such as the guess for all
    clients nobody has heard from: at a million it takes 20 ms and more instead of 2. Those are
    counted, in 1 ms; a look at a few values tells whether that may pay.
    """
    step = len(values) // SAMPLE
    if step >= SAMPLE:
        sample = np.sort(values[::step])
        likely = sample[place // step]
        if np.count_nonzero(sample == likely) > SAMPLE // 10 and _stands(likely, values, place):
            return float(likely)
    return float(np.partition(values, place)[place])


def _stands(value: np.float64, values: Floats, place: int) -> bool:
    """Is it this value that stands at `place`, the smallest coming first?"""
    num_less = np.count_nonzero(values < value)
    return bool(num_less <= place < num_less + np.count_nonzero(values == value))
