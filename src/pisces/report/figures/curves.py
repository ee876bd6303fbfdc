"""How good the model is, over time."""

from __future__ import annotations

import numpy as np

from pisces.report.facts import Floats
from pisces.report.figures.figure import (
    BLUE,
    ORANGE,
    Columns,
    Figure,
    Trace,
    across,
    axis,
    label,
    layout_of,
    nothing,
    numbers,
    seconds,
    thinned,
    told,
)
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import best_of, metric_of, reached_at, target_of

NAME = "curve"


def curve(ledger: Ledger, metric: str | None = None, target: float | None = None) -> Figure:
    """A metric against time, with the target and when it was met; by default those of `stop`."""
    with ledger.lock:
        usual = metric_of(ledger)
        metric = usual if metric is None else metric
        if target is None and metric == usual:
            target = target_of(ledger)
        times, values = (np.empty(0),) * 2 if metric is None else ledger.curve(metric)
        if metric is None or not len(times):
            what = "No version was" if metric is None else f"{told(metric)} was never"
            return nothing(NAME, told(metric or "metric"), f"{what} evaluated yet.")
        reached = reached_at(ledger, target, metric)
        words = _words(ledger, metric, target, reached)
    return Figure(
        NAME,
        f"{told(metric)} over time",
        words,
        [_line(times, values, metric), *_mark(reached, target)],
        _layout(metric, values, target),
        Columns(**{"at": times, metric: values}),
    )


def _words(ledger: Ledger, metric: str, target: float | None, reached: float | None) -> str:
    times, values = ledger.curve(metric)
    best = best_of(ledger, metric)
    now = "not a number" if np.isnan(values[-1]) else f"{values[-1]:.4g}"
    text = f"The {told(metric)} is {now} after {seconds(float(times[-1]))}"
    if best is not None:
        text += f", {best:.4g} at best"
    if target is None:
        return f"{text}."
    if reached is None:
        is_over = ledger.notes.reason not in (None, "interrupted")
        return f"{text}; the target {target:g} {'was' if is_over else 'is'} not reached" + (
            "." if is_over else " yet."
        )
    return f"{text}; the target {target:g} was reached after {seconds(reached)}."


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


def _mark(reached: float | None, target: float | None) -> list[Trace]:
    if reached is None or target is None:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers+text",
            "x": [reached],
            "y": [target],
            "text": [f"{seconds(reached)}"],
            "textposition": "bottom right",
            "marker": {"color": ORANGE, "size": 10, "symbol": "diamond"},
            "hovertemplate": "target met at %{x:,.4~g} s<extra></extra>",
            "showlegend": False,
        }
    ]


def _layout(metric: str, values: Floats, target: float | None) -> dict[str, object]:
    goal = {} if target is None else across(target, f"target {target:g}")
    layout = layout_of(NAME, "time (s)", told(metric), **goal)
    layout["xaxis"]["rangemode"] = "tozero"
    largest = np.nanmax(values, initial=-np.inf)
    if metric.rpartition("_")[2] == "perplexity" and largest > 1000:
        layout["yaxis"] = axis(told(metric), type="log")
        for goal_part in (*layout.get("shapes", ()), *layout.get("annotations", ())):
            for key in goal_part.keys() & {"y", "y0", "y1"}:
                if "text" in goal_part:  # of a logarithmic axis, texts stand at logarithms
                    goal_part[key] = float(np.log10(goal_part[key]))
    return layout
