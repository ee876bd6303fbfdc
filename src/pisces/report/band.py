"""Curves of several runs as one: their median, and the range around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from pisces.report.arrays import Floats

Curve: TypeAlias = tuple[Floats, Floats]

MIDDLE = "median over seeds, as long as half of them go on"
BAND = f"{MIDDLE}; shaded: least to greatest"


def band(curves: Sequence[Curve], *, hold: bool = True) -> tuple[Floats, Floats, Floats, Floats]:
    """A common time grid, and on it the least, median and greatest value of some step curves.

    The grid begins where all have a value and ends where fewer than half go on: what a few slow
    ones come to is no median of all. A curve that has ended keeps its last value until then, or,
    without `hold`, counts no more.
    """
    if not curves:
        return (np.empty(0),) * 4
    start = max(times[0] for times, _ in curves)
    end = sorted(times[-1] for times, _ in curves)[len(curves) // 2]
    grid = np.unique(np.concatenate([times for times, _ in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    held = np.array([v[np.searchsorted(t, grid, side="right") - 1] for t, v in curves])
    if hold:
        return grid, held.min(axis=0), np.median(held, axis=0), held.max(axis=0)
    held[np.array([grid > times[-1] for times, _ in curves])] = np.nan
    return grid, np.nanmin(held, axis=0), np.nanmedian(held, axis=0), np.nanmax(held, axis=0)
