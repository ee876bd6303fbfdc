"""Curves of many runs: per protocol their median and range, where single lines would be a fog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pisces.record.reader import Run
from pisces.report.compare import by_protocol
from pisces.report.figures.comparison import looks_of
from pisces.report.figures.figure import (
    Figure,
    Trace,
    across,
    counted,
    label,
    layout_of,
    nothing,
    numbers,
    thinned,
    told,
)
from pisces.report.sheets import BAND, Floats, band

NAME = "bands"
MOST_POINTS = 400  # of one line


def median_curves(runs: Sequence[Run], target: float | None, metric: str) -> Figure:
    """A metric against time: a line per protocol, and around it the least to the greatest."""
    title = f"{told(metric)} of {counted(len(runs), 'run')}"
    groups = {name: list(own.values()) for name, own in by_protocol(runs).items()}
    looks, traces = looks_of(list(groups)), []
    columns: dict[str, list[Any]] = {k: [] for k in ("protocol", "time_s", "low", "median", "high")}
    for name, own in groups.items():
        curves = [curve for curve in (run.curve(metric) for run in own) if len(curve[0])]
        grid, low, middle, high = band(curves)
        if not len(grid):
            continue
        traces += _traces(name, looks[name], grid, low, middle, high)
        columns["protocol"] += [name] * len(grid)
        for key, values in (("time_s", grid), ("low", low), ("median", middle), ("high", high)):
            columns[key] += numbers(values)
    if not traces:
        return nothing(NAME, title, "Nothing was evaluated.")
    goal = {} if target is None else across(target, f"target {target:g}")
    layout = layout_of(NAME, "time (s)", told(metric), **goal)
    layout["xaxis"]["rangemode"] = "tozero"
    return Figure(NAME, title, f"{BAND}.", traces, layout, columns)


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
