"""Pictures of runs side by side.

Every figure is an object of its own, so it works without a display and from several threads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pisces.errors import RunError
from pisces.quantities import told
from pisces.record.reader import Run
from pisces.report.band import BAND, MIDDLE
from pisces.report.compare import grouped
from pisces.report.estimate import Ends, median_between, time_between
from pisces.report.goal import Goal
from pisces.report.ledger.summary import notes_of
from pisces.report.printed.paper import SCREEN, Paper, literal
from pisces.report.printed.picked import Part, are_alike, draw_picks
from pisces.report.printed.sheets import (
    MOST_SHADED,
    add_legend,
    at_most_one,
    draw_curves,
    draw_target,
    sheet_of,
    tidy,
)
from pisces.report.styles import Style, styles_of

MAX_BARS = 40
LEAST_STALE = 4  # versions that the axes of histograms reach to


@dataclass(frozen=True, slots=True)
class _Group:
    """One protocol's runs and how they are drawn."""

    name: str
    runs: Sequence[Run]
    style: Style


def curves(runs: Iterable[Run], goal: Goal, *, paper: Paper = SCREEN) -> Figure | None:
    """A metric against time: per protocol the median over seeds and, of a few, their range.

    A run that has ended keeps its last value, as long as half of them go on. Markers show the
    median time to the target. None where nothing was evaluated.
    """
    groups = list(_groups(runs))
    if not any(_has_values(run, goal.metric) for group in groups for run in group.runs):
        return None
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        shaded = len(groups) <= MOST_SHADED
        for group in groups:
            _draw_group(axes, group, goal, shaded=shaded)
        if goal.target is not None:
            draw_target(axes, goal.target)
        if any(len(group.runs) > 1 for group in groups):
            axes.set_title(paper.folded(BAND if shaded else MIDDLE), fontsize="small")
        axes.set(xlabel="time (s)", ylabel=literal(told(goal.metric)))
        axes.margins(x=0)
        axes.set_xlim(left=0)
        at_most_one(axes, goal.metric, goal.target or 0.0)
        add_legend(figure, axes, paper)
    return figure


def times(runs: Iterable[Run], goal: Goal, *, paper: Paper = SCREEN) -> Figure:
    """How long each protocol took, the quickest on top: a bar to the median, a dot per seed.

    A run that ended without meeting the target is an open triangle where it ended; where that
    leaves the median open, the bar is hatched and ends at what is sure: the median lies beyond.
    """
    metric, target = goal.metric, goal.needed
    groups = sorted(_groups(runs), key=lambda group: _median_s(group, target, metric)[::-1])
    with paper.drawing():
        figure = Figure(figsize=paper.rows(len(groups)), layout="constrained")
        axes = tidy(figure.subplots())
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color="0.9", linewidth=0.8)
        for place, group in enumerate(groups):
            _draw_times(axes, place, group, target, metric)
        axes.set_yticks(range(len(groups)), [literal(group.name) for group in groups])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel(literal(f"time to {told(metric)} {target:g} (s)"))
        axes.set_title(paper.folded(_key_of(groups, target, metric)), fontsize="small")
    return figure


def histograms(runs: Iterable[Run], *, paper: Paper = SCREEN) -> Figure:
    """How stale the aggregated updates were: one histogram per protocol, seeds pooled."""
    groups = list(_groups(runs))
    counts = [pooled_staleness(group.runs) for group in groups]
    largest = max((max(count, default=0) for count in counts), default=0)
    width = math.ceil((largest + 1) / MAX_BARS)
    with paper.drawing():
        # Each on its own scale upwards: beside a synchronous protocol's 100 % all others look flat.
        figure, panels = sheet_of(
            len(groups),
            "staleness (versions)",
            "aggregated updates (%)",
            sharey=False,
            paper=paper,
        )
        for axes, group, count in zip(panels, groups, counts, strict=True):
            _draw_histogram(axes, group, count, width, largest)
        if largest < LEAST_STALE:  # else few bars would be all of the sheet
            panels[0].set_xlim(-0.6, LEAST_STALE + 0.6)
    return figure


def picks(runs: Iterable[Run], *, paper: Paper = SCREEN) -> Figure:
    """How often each client was picked against how much data it has; a dot per client and seed.

    Where all have about as much, they stand in a row instead, the most picked first. Those that
    were distrusted are crosses.
    """
    groups = list(_groups(runs))
    parts = [[Part.of(run) for run in group.runs] for group in groups]
    in_a_row = are_alike([part.sizes for own in parts for part in own])
    xlabel = "clients, the most picked first" if in_a_row else "samples of the client"
    with paper.drawing():
        figure, panels = sheet_of(len(groups), xlabel, "times picked", sharey=True, paper=paper)
        for axes, group, own in zip(panels, groups, parts, strict=True):
            for part in own:
                draw_picks(axes, group.style, part, in_a_row=in_a_row)
            crosses = any(part.is_distrusted.any() for part in own)
            title = literal(group.name) + ("\n(x: distrusted)" if crosses else "")
            axes.set_title(title, fontsize="medium")
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    return figure


def _has_values(run: Run, metric: str) -> bool:
    return bool(np.isfinite(run.curve(metric)[1]).any())


def _groups(runs: Iterable[Run]) -> Iterator[_Group]:
    groups = grouped(runs)
    if not groups:
        raise RunError("there are no runs to draw: give at least one run folder")
    for name, style in styles_of(groups).items():
        yield _Group(name, groups[name], style)


# --- curves ---------------------------------------------------------------------------------------


def _draw_group(axes: Axes, group: _Group, goal: Goal, *, shaded: bool) -> None:
    label, metric, target = literal(group.name), goal.metric, goal.target
    if target is not None:
        times = [run.time_to_target(target, metric) for run in group.runs]
        label += f": {_reached(times)}"
        _mark_target(axes, group, times, target)
    curves = [run.curve(metric) for run in group.runs]
    draw_curves(axes, group.style, curves, label, shaded=shaded)


def _mark_target(axes: Axes, group: _Group, times: Sequence[float | None], target: float) -> None:
    median = _median_time(times)
    if median < math.inf:
        colour = group.style.colour
        # It often stands where the axis ends: there it is whole, too.
        axes.plot(
            median, target, "o", color=colour, markeredgecolor="white", zorder=4, clip_on=False
        )


def _reached(times: Sequence[float | None]) -> str:
    """The legend's words on when the target was met."""
    num, median = sum(time is not None for time in times), _median_time(times)
    if num == len(times):
        return f"{median:,.0f} s"
    words = f"reached by {num} of {len(times)}"
    return words if median == math.inf else f"{median:,.0f} s ({words})"


def _median_time(times: Sequence[float | None]) -> float:
    return float(np.median([math.inf if time is None else time for time in times]))


# --- bars -----------------------------------------------------------------------------------------


def _median_s(group: _Group, target: float, metric: str) -> Ends:
    times = [(run.time_to_target(target, metric), run.counts.at) for run in group.runs]
    return median_between([time_between(time, end) for time, end in times])


def _key_of(groups: Sequence[_Group], target: float, metric: str) -> str:
    """What the marks mean, of those that there are."""
    times = [run.time_to_target(target, metric) for group in groups for run in group.runs]
    met = any(time is not None for time in times)
    return "; ".join(
        [
            "bar: median",
            *(["dot: a seed"] if met else []),
            *(["triangle: ended without it"] if None in times else []),
        ]
    )


def _draw_times(axes: Axes, place: int, group: _Group, target: float, metric: str) -> None:
    times = [run.time_to_target(target, metric) for run in group.runs]
    (least, most), colour = _median_s(group, target, metric), group.style.colour
    ended = [run.counts.at for run, time in zip(group.runs, times, strict=True) if time is None]
    look = {"alpha": 0.6} if most < math.inf else {"alpha": 0.2, "hatch": "///"}
    axes.barh(place, least, height=0.7, color=colour, **look)
    met = [time for time in times if time is not None]
    axes.plot(met, [place] * len(met), "o", color="black", markersize=3, zorder=4)
    axes.plot(ended, [place] * len(ended), ">", color="black", fillstyle="none", markersize=4)


# --- histograms -----------------------------------------------------------------------------------


def pooled_staleness(runs: Iterable[Run]) -> Counter[int]:
    """How many aggregated updates had which staleness."""
    pooled: Counter[int] = Counter()
    for run in runs:
        pooled.update(notes_of(run).staleness)
    return pooled


def _draw_histogram(
    axes: Axes, group: _Group, count: Counter[int], width: int, largest: int
) -> None:
    total = max(count.total(), 1)
    values, shares = np.array(list(count), float), 100 * np.array(list(count.values())) / total
    starts = np.arange(0, largest + 1, width)
    heights, _ = np.histogram(values, [*starts, largest + width], weights=shares)
    axes.bar(starts + (width - 1) / 2, heights, width=0.9 * width, color=group.style.colour)
    mean = float(values @ shares) / 100
    text = f"mean {mean:.1f}, max {max(count)}" if count else "no updates"
    axes.set_title(f"{literal(group.name)}\n{text}", fontsize="medium")
