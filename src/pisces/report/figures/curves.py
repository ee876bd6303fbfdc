"""How good the model is, over time."""

from __future__ import annotations

import numpy as np

from pisces.quantities import duration, told
from pisces.report.arrays import Floats
from pisces.report.figures.figure import (
    Figure,
    Trace,
    axis,
    label,
    nothing,
    numbers,
    over_time,
    thinned,
)
from pisces.report.goal import Goal
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import best_of, reached_at
from pisces.report.styles import BLUE, ORANGE

NAME = "curve"


def curve(ledger: Ledger, goal: Goal) -> Figure:
    """A metric against time, with the target and when it was met."""
    with ledger.lock:
        metric, target = goal.metric, goal.target
        times, values = ledger.curve(metric)
        if not len(times):
            what = f"The {told(metric)} was never" if ledger.metrics else "No version was"
            return nothing(told(metric), f"{what} evaluated yet.")
        reached = reached_at(ledger, target, metric)
        words = _words(ledger, metric, target, reached)
    return Figure(
        f"{told(metric)} over time",
        words,
        [_line(times, values, metric), *_mark(reached, target, float(times[-1]))],
        _layout(goal, values),
    )


def _words(ledger: Ledger, metric: str, target: float | None, reached: float | None) -> str:
    times, values = ledger.curve(metric)
    best = best_of(ledger, metric)
    now = "not a number" if np.isnan(values[-1]) else f"{values[-1]:.4g}"
    text = f"The {told(metric)} is {now} after {duration(float(times[-1]))}"
    if best is not None:
        text += f", {best:.4g} at best"
    if target is None:
        return f"{text}."
    if reached is None:
        is_over = ledger.notes.reason not in (None, "interrupted")
        return f"{text}; the target {target:g} {'was' if is_over else 'is'} not reached" + (
            "." if is_over else " yet."
        )
    return f"{text}; the target {target:g} was reached after {duration(reached)}."


def _line(times: Floats, values: Floats, metric: str) -> Trace:
    kept = thinned(values)
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) <= 60 else "lines",
        "x": numbers(times[kept]),
        "y": numbers(values[kept]),
        "name": label(told(metric)),
        "line": {"color": BLUE, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.4g} at %{x:,.4~g} s<extra></extra>",
        "showlegend": False,
    }


def _mark(reached: float | None, target: float | None, end: float) -> list[Trace]:
    if reached is None or target is None:
        return []
    side = "left" if reached > end / 2 else "right"  # where there is room for its words
    return [
        {
            "type": "scatter",
            "mode": "markers+text",
            "x": [reached],
            "y": [target],
            "text": [f"{duration(reached)}"],
            "textposition": f"bottom {side}",
            "marker": {"color": ORANGE, "size": 10, "symbol": "diamond"},
            "hovertemplate": "target met at %{x:,.4~g} s<extra></extra>",
            "showlegend": False,
        }
    ]


def _layout(goal: Goal, values: Floats) -> dict[str, object]:
    layout = over_time(NAME, goal)
    largest = np.nanmax(values, initial=-np.inf)
    if goal.metric.rpartition("_")[2] == "perplexity" and largest > 1000:
        layout["yaxis"] = axis(told(goal.metric), type="log")
        for text in layout.get("annotations", ()):  # on such an axis they stand at logarithms
            text["y"] = float(np.log10(text["y"]))
    return layout
