"""Sheets of paper to draw on, and what is drawn on several of them: one look for all pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pisces.errors import ConfigError, RunError

Floats: TypeAlias = NDArray[np.float64]
Curve: TypeAlias = tuple[Floats, Floats]
Dash: TypeAlias = str | tuple[int, tuple[int, ...]]

# Okabe and Ito's colours, told apart also by the colour-blind; yellow is left out on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Black and white printers and the fully colour-blind go by these.
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
PANEL = (3.2, 2.7)  # width and height in inches of one of several panels
WIDE_LABEL = 40  # letters; two columns of longer ones do not fit on a sheet
PNG_DPI = 150


@dataclass(frozen=True, slots=True)
class Style:
    """How one of several things is drawn on every sheet."""

    colour: str
    dash: Dash


def styles() -> Iterator[Style]:
    """One after the other, for ever."""
    for colour, dash in zip(cycle(COLOURS), cycle(DASHES), strict=False):
        yield Style(colour, dash)


# --- curves ---------------------------------------------------------------------------------------


def draw_curves(axes: Axes, style: Style, curves: Sequence[Curve], label: str) -> None:
    """The median of some step curves and, shaded, their range."""
    grid, low, middle, high = band([curve for curve in curves if len(curve[0])])
    axes.step(
        grid, middle, where="post", label=label, color=style.colour, linestyle=style.dash, zorder=3
    )
    if len(curves) > 1:
        axes.fill_between(grid, low, high, step="post", color=style.colour, alpha=0.15, linewidth=0)


def draw_target(axes: Axes, target: float) -> None:
    """A line, and its name outside the frame where no curve can cross it."""
    axes.axhline(target, color="0.4", linewidth=0.8, zorder=1)
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


def band(curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats, Floats]:
    """A common time grid, and on it the least, median and greatest value of some step curves.

    The grid begins where all have a value; a curve that has ended keeps its last one.
    """
    if not curves:
        return (np.empty(0),) * 4
    start = max(times[0] for times, _ in curves)
    grid = np.unique(np.concatenate([times for times, _ in curves]))
    grid = grid[grid >= start]
    held = np.array([v[np.searchsorted(t, grid, side="right") - 1] for t, v in curves])
    return grid, held.min(axis=0), np.median(held, axis=0), held.max(axis=0)


# --- paper ----------------------------------------------------------------------------------------


def add_legend(figure: Figure, axes: Axes) -> None:
    """Below the frame, where it hides nothing; the sheet grows with it."""
    _, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) <= WIDE_LABEL else 1
    figure.set_size_inches(7.0, 4.0 + 0.22 * math.ceil(len(labels) / columns))
    figure.legend(loc="outside lower center", ncols=columns, frameon=False)


def sheet_of(num: int, xlabel: str, ylabel: str, *, sharey: bool) -> tuple[Figure, list[Axes]]:
    """As many panels as protocols, in a row of up to three or else about a square."""
    columns = num if num <= 3 else math.ceil(math.sqrt(num))
    rows = math.ceil(num / columns)
    size = (max(columns * PANEL[0], 4.0), rows * PANEL[1] + 0.4)
    figure = Figure(figsize=size, layout="constrained")
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


def drawable(path: str | Path) -> Path:
    """The path, if a picture can be saved there."""
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"a plot is saved as .png or .svg, not {path.name!r}: change its suffix")
    return path


def save(figure: Figure, path: Path) -> None:
    """Write the picture, and its folder if need be."""
    # No date, so that the same runs give the same picture.
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=PNG_DPI, metadata=metadata)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; choose another place"
        ) from error
