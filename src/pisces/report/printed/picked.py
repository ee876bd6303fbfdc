"""Who was picked how often: by how much data it has or, where all have as much, in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pisces.record.reader import Run
from pisces.report.ledger.summary import involvement, notes_of
from pisces.report.printed.sheets import draw_dots
from pisces.report.styles import Style

ALIKE = 0.05  # sizes that differ by no more than this share of the largest


@dataclass(frozen=True, slots=True)
class Part:
    """Of each client of a run, how much data it has, how often it was picked, and trust."""

    sizes: NDArray[np.int64]
    picks: NDArray[np.int64]
    is_distrusted: NDArray[np.bool_]

    @classmethod
    def of(cls, run: Run) -> Part:
        """From its log."""
        part = involvement(notes_of(run))
        distrusted = np.isin(part.clients, run.counts.distrusted)
        return cls(part.num_examples, part.num_started, distrusted)


def are_alike(sizes: Sequence[NDArray[np.int64]]) -> bool:
    """Are they so nearly the same that dots by size would be one column?"""
    known = np.concatenate(sizes)
    return len(known) > 0 and float(np.ptp(known)) <= ALIKE * float(known.max())


def draw_picks(axes: Axes, style: Style, part: Part, *, in_a_row: bool) -> None:
    """A dot each, in a row or by size; a cross for one that was distrusted."""
    order = np.argsort(-part.picks, kind="stable")
    picks, crossed = part.picks[order], part.is_distrusted[order]
    x = np.arange(1, len(order) + 1) if in_a_row else part.sizes[order]
    draw_dots(axes, style, x[~crossed], picks[~crossed])
    axes.plot(x[crossed], picks[crossed], "x", color="black", markersize=5, zorder=3)
