"""Pictures out of run folders, as PNG or SVG by the file's suffix.

Every figure is an object of its own: nothing here touches matplotlib's global state, so it works
without a display and from several threads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from pisces.record.reader import Run
from pisces.report.compare import by_protocol

Floats: TypeAlias = NDArray[np.float64]
Curve: TypeAlias = tuple[Floats, Floats]
Dash: TypeAlias = str | tuple[int, tuple[int, ...]]

# Okabe and Ito's colours, told apart also by the colour-blind; yellow is left out on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Black and white printers and the fully colour-blind go by these.
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
MAX_BARS = 40
PANEL = (3.2, 2.7)  # width and height in inches of one of several panels
WIDE_LABEL = 40  # letters; two columns of longer ones do not fit on a sheet
PNG_DPI = 150


@dataclass(frozen=True, slots=True)
class _Group:
    """One protocol's runs and how they are drawn."""

    name: str
    runs: Sequence[Run]
    colour: str
    dash: Dash


def accuracy_over_time(
    runs: Iterable[Run],
    path: str | Path,
    target: float | None = None,
    *,
    metric: str = "accuracy",
) -> None:
    """A metric against time: per protocol the median over seeds and, shaded, their range.

    A run that has ended keeps its last value. Markers show the median time to the target.
    """
    path = _drawable(path)
    figure = Figure(layout="constrained")
    axes = _tidy(figure.subplots())
    groups = list(_groups(runs))
    for group in groups:
        _draw_group(axes, group, target, metric)
    if target is not None:
        _draw_target(axes, target)
    if any(len(group.runs) > 1 for group in groups):
        axes.set_title("median over seeds, shaded: least to greatest", fontsize="small")
    axes.set(xlabel="time (s)", ylabel=metric.replace("_", " "))
    axes.margins(x=0)
    axes.set_xlim(left=0)
    _add_legend(figure, axes)
    _save(figure, path)


def staleness(runs: Iterable[Run], path: str | Path) -> None:
    """How stale the aggregated updates were: one histogram per protocol, seeds pooled."""
    path = _drawable(path)
    groups = list(_groups(runs))
    counts = [_pooled_staleness(group.runs) for group in groups]
    largest = max((max(count, default=0) for count in counts), default=0)
    width = math.ceil((largest + 1) / MAX_BARS)
    # Each on its own scale upwards: beside a synchronous protocol's 100 % all others look flat.
    figure, panels = _panels(
        len(groups), "staleness (versions)", "aggregated updates (%)", sharey=False
    )
    for axes, group, count in zip(panels, groups, counts, strict=True):
        _draw_histogram(axes, group, count, width, largest)
    _save(figure, path)


def involvement(runs: Iterable[Run], path: str | Path) -> None:
    """How often each client was picked against how much data it has; a dot per client and seed."""
    path = _drawable(path)
    groups = list(_groups(runs))
    figure, panels = _panels(len(groups), "samples of the client", "times picked", sharey=True)
    for axes, group in zip(panels, groups, strict=True):
        for part in (run.tally().involvement() for run in group.runs):
            axes.plot(
                part.num_examples,
                part.num_started,
                "o",
                color=group.colour,
                markersize=4,
                markeredgewidth=0,
                alpha=0.5,
                rasterized=True,  # a vector picture of a million dots is of no use to anybody
            )
        axes.set_title(group.name, fontsize="medium")
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    _save(figure, path)


def _groups(runs: Iterable[Run]) -> Iterator[_Group]:
    groups = by_protocol(runs)
    if not groups:
        raise RunError("there are no runs to draw: give at least one run folder")
    for (name, group), colour, dash in zip(
        groups.items(), cycle(COLOURS), cycle(DASHES), strict=False
    ):
        yield _Group(name, list(group.values()), colour, dash)


# --- curves ---------------------------------------------------------------------------------------


def _draw_group(axes: Axes, group: _Group, target: float | None, metric: str) -> None:
    label = group.name
    if target is not None:
        times = [run.time_to_target(target, metric) for run in group.runs]
        label += f": {_reached(times)}"
        _mark_target(axes, group, times, target)
    _draw_curves(axes, group, [run.curve(metric) for run in group.runs], label)


def _draw_curves(axes: Axes, group: _Group, curves: Sequence[Curve], label: str) -> None:
    grid, low, middle, high = band([curve for curve in curves if len(curve[0])])
    axes.step(
        grid, middle, where="post", label=label, color=group.colour, linestyle=group.dash, zorder=3
    )
    if len(curves) > 1:
        axes.fill_between(grid, low, high, step="post", color=group.colour, alpha=0.15, linewidth=0)


def _draw_target(axes: Axes, target: float) -> None:
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


def _mark_target(axes: Axes, group: _Group, times: Sequence[float | None], target: float) -> None:
    median = _median_time(times)
    if median < math.inf:
        axes.plot(median, target, "o", color=group.colour, markeredgecolor="white", zorder=4)


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


def _reached(times: Sequence[float | None]) -> str:
    """The legend's words on when the target was met."""
    num, median = sum(time is not None for time in times), _median_time(times)
    if num == len(times):
        return f"{median:,.0f} s"
    words = f"reached by {num} of {len(times)}"
    return words if median == math.inf else f"{median:,.0f} s ({words})"


def _median_time(times: Sequence[float | None]) -> float:
    return float(np.median([math.inf if time is None else time for time in times]))


# --- histograms -----------------------------------------------------------------------------------


def _pooled_staleness(runs: Sequence[Run]) -> Counter[int]:
    pooled: Counter[int] = Counter()
    for run in runs:
        for line in run.events("aggregated"):
            pooled.update(line["staleness"])
    return pooled


def _draw_histogram(
    axes: Axes, group: _Group, count: Counter[int], width: int, largest: int
) -> None:
    total = max(count.total(), 1)
    values, shares = np.array(list(count), float), 100 * np.array(list(count.values())) / total
    starts = np.arange(0, largest + 1, width)
    heights, _ = np.histogram(values, [*starts, largest + width], weights=shares)
    axes.bar(starts + (width - 1) / 2, heights, width=0.9 * width, color=group.colour)
    mean = float(values @ shares) / 100
    text = f"mean {mean:.1f}, max {max(count)}" if count else "no updates"
    axes.set_title(f"{group.name}\n{text}", fontsize="medium")


# --- sheets ---------------------------------------------------------------------------------------


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Below the frame, where it hides nothing; the sheet grows with it."""
    _, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) <= WIDE_LABEL else 1
    figure.set_size_inches(7.0, 4.0 + 0.22 * math.ceil(len(labels) / columns))
    figure.legend(loc="outside lower center", ncols=columns, frameon=False)


def _panels(num: int, xlabel: str, ylabel: str, *, sharey: bool) -> tuple[Figure, list[Axes]]:
    """As many panels as protocols, in a row of up to three or else about a square."""
    columns = num if num <= 3 else math.ceil(math.sqrt(num))
    rows = math.ceil(num / columns)
    size = (max(columns * PANEL[0], 4.0), rows * PANEL[1] + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=sharey, squeeze=False).ravel()
    for axes in grid[num:]:
        axes.remove()
    for axes in grid[:num]:
        _tidy(axes)
        axes.tick_params(labelbottom=True)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    figure.supxlabel(xlabel, fontsize="medium")
    figure.supylabel(ylabel, fontsize="medium")
    return figure, list(grid[:num])


def _tidy(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def _drawable(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"a plot is saved as .png or .svg, not {path.name!r}: change its suffix")
    return path


def _save(figure: Figure, path: Path) -> None:
    # No date, so that the same runs give the same picture.
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=PNG_DPI, metadata=metadata)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; choose another place"
        ) from error
