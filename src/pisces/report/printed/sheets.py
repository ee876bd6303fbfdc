"""Sheets of paper to draw on, and what is drawn on several of them: one look for all pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from pisces.report.band import Curve, band
from pisces.report.printed.paper import MOST_COLUMNS, SCREEN, Paper
from pisces.report.styles import Style

MOST_SHADED = 7  # more of them, over each other, are a fog


# --- curves ---------------------------------------------------------------------------------------


def draw_curves(
    axes: Axes,
    style: Style,
    curves: Sequence[Curve],
    label: str,
    *,
    hold: bool = True,
    shaded: bool = True,
) -> None:
    """The median of some step curves and, if `shaded`, their range; `hold` as in `band`."""
    grid, low, middle, high = band([curve for curve in curves if len(curve[0])], hold=hold)
    axes.step(
        grid, middle, where="post", label=label, color=style.colour, linestyle=style.dash, zorder=3
    )
    if shaded and len(curves) > 1:
        axes.fill_between(grid, low, high, step="post", color=style.colour, alpha=0.15, linewidth=0)


def draw_target(axes: Axes, target: float, *, named: bool = True) -> None:
    """A line and, where there is room, its name outside the frame, where no curve can cross it."""
    axes.axhline(target, color="0.4", linewidth=0.8, zorder=1)
    if not named:
        return
    axes.annotate(
        f"target\n{target:g}",
        (1, target),
        xycoords=("axes fraction", "data"),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color="0.3",
        fontsize="small",
    )


def draw_dots(axes: Axes, style: Style, x: ArrayLike, y: ArrayLike) -> None:
    """A dot for each of very many; the more there are, the fainter."""
    num = max(1, np.size(x))
    axes.plot(
        x,
        y,
        "o",
        color=style.colour,
        markersize=4,
        markeredgewidth=0,
        alpha=max(0.05, min(0.5, 1500 / num)),
        rasterized=True,  # a vector picture of a million dots is of no use to anybody
    )


def at_most_one(axes: Axes, metric: str, target: float = 0.0) -> None:
    """Where the metric is an accuracy, leave out what none can be, unless it is asked for."""
    if metric.rpartition("_")[2] == "accuracy" and target <= 1:
        axes.set_ylim(top=min(1.0, axes.get_ylim()[1]))


# --- paper ----------------------------------------------------------------------------------------


def add_legend(figure: Figure, axes: Axes, paper: Paper = SCREEN) -> None:
    """One for all panels, below them, where it hides nothing; the sheet grows with it."""
    handles, labels = axes.get_legend_handles_labels()
    widest = max(map(len, labels), default=1)
    columns = max(1, min(MOST_COLUMNS, len(labels), paper.letters // widest))
    width, height = figure.get_size_inches()
    rows = math.ceil(len(labels) / columns)
    figure.set_size_inches(*paper.with_legend(width, height, rows))
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
    )


def sheet_of(
    num: int, xlabel: str, ylabel: str, *, sharey: bool, paper: Paper = SCREEN
) -> tuple[Figure, list[Axes]]:
    """As many panels as protocols, in a row of up to three or else about a square."""
    rows, columns = paper.grid(num)
    figure = Figure(figsize=paper.sheet(rows, columns), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=sharey, squeeze=False).ravel()
    for axes in grid[num:]:
        axes.remove()
    for axes in grid[:num]:
        tidy(axes)
        axes.tick_params(labelbottom=True)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    figure.supxlabel(xlabel, fontsize="medium")
    figure.supylabel(ylabel, fontsize="medium")
    return figure, list(grid[:num])


def tidy(axes: Axes) -> Axes:
    """The axes with less ink."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes
