"""Curves of many runs: per protocol their median and range, where single lines would be a fog."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.quantities import begun, counted, told
from pisces.report.arrays import Floats
from pisces.report.band import BAND, band
from pisces.report.compare import grouped
from pisces.report.figures.comparison import RUNS_OVER_TIME, compared, looks_of
from pisces.report.figures.figure import Figure, Trace, label, nothing, numbers, over_time, thinned
from pisces.report.goal import Goal
from pisces.report.ledger.summary import ReadRun

NAME = "bands"
MOST_POINTS = 400  # of one line


def median_curves(runs: Sequence[ReadRun], goal: Goal) -> Figure:
    """A metric against time: a line per protocol, and around it the least to the greatest."""
    with compared(runs, goal) as why_not:
        if why_not:
            return nothing(RUNS_OVER_TIME, why_not)
        groups = grouped(runs)
        curves_of = {p: [run.curve(goal.metric) for run in own] for p, own in groups.items()}
    title = f"{told(goal.metric)} of {counted(len(runs), 'run')}"
    looks, traces = looks_of(list(groups)), []
    for name, curves in curves_of.items():
        grid, low, middle, high = band([curve for curve in curves if len(curve[0])])
        if len(grid):
            traces += _traces(name, looks[name], grid, low, middle, high)
    return Figure(title, f"{begun(BAND)}.", traces, over_time(NAME, goal))


def _traces(
    name: str, look: tuple[str, str], grid: Floats, low: Floats, middle: Floats, high: Floats
) -> list[Trace]:
    colour, dash = look
    # Where any of the three moves it is kept, so that the shade stays around the line.
    kept = np.unique(np.concatenate([thinned(v, MOST_POINTS) for v in (low, middle, high)]))
    times = numbers(grid[kept])
    edge = {"type": "scatter", "mode": "lines", "x": times, "hoverinfo": "skip"}
    flat = {"width": 0, "shape": "hv", "color": colour}
    shared = {"legendgroup": label(name), "showlegend": False}
    return [
        {**edge, **shared, "y": numbers(low[kept]), "line": flat},
        {
            **edge,
            **shared,
            "y": numbers(high[kept]),
            "line": flat,
            "fill": "tonexty",
            "fillcolor": _faint(colour),
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": label(name),
            "legendgroup": label(name),
            "x": times,
            "y": numbers(middle[kept]),
            "line": {"color": colour, "dash": dash, "width": 2, "shape": "hv"},
            "hovertemplate": "%{fullData.name}: %{y:.4g} at %{x:,.4~g} s<extra></extra>",
        },
    ]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
