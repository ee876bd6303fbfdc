"""How much sooner one protocol gets to a target than others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pisces.errors import RunError
from pisces.report.compare import Row, compare
from pisces.report.figures.comparison import NO_RUNS, empty, goal_of, grouped, held, looks_of
from pisces.report.figures.figure import (
    GREY,
    Cell,
    Figure,
    Trace,
    counted,
    label,
    layout_of,
    nothing,
    seconds,
    told,
)
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun

# --- time to target -------------------------------------------------------------------------------


def compare_times(
    ledgers: Sequence[Ledger], target: float | None = None, metric: str | None = None
) -> Figure:
    """Time to the target: a bar to the median of each protocol, a dot per run.

    A run that ended, or is, without it is an open triangle where it is now; where half or more are,
    the bar is paler: the median lies beyond.
    """
    name, title = "compare-times", "time to target"
    with held(ledgers):
        target, metric = goal_of(ledgers, target, metric)
        groups = grouped([ReadRun.of(ledger) for ledger in ledgers])
        if not groups or metric is None or target is None:
            return nothing(name, title, NO_RUNS if not groups else "No target is set: give one.")
        found = {
            protocol: [(run, run.time_to_target(target, metric)) for run in own]
            for protocol, own in groups.items()
        }
        ends = {run.path: run.ledger.notes.at for own in groups.values() for run in own}
    looks = looks_of(list(groups))
    medians = {p: float(np.median([_time(t) for _, t in own])) for p, own in found.items()}
    order = sorted(groups, key=lambda protocol: medians[protocol])
    traces, columns = [], empty("protocol", "run", "seed", "time_to_target_s", "at")
    for place, protocol in enumerate(order):
        last = max(ends[run.path] for run, _ in found[protocol])
        traces += _time_traces(
            place, found[protocol], medians[protocol], last, looks[protocol], ends
        )
        for run, time in found[protocol]:
            values = (protocol, str(run.path), run.seed, time, ends[run.path])
            for key, value in zip(columns, values, strict=True):
                columns[key].append(value)
    layout = layout_of(
        name,
        f"time to {told(metric)} {target:g} (s)",
        "",
        barmode="overlay",
        height=_height(len(order)),
    )
    layout["yaxis"] |= _category(order)
    layout["xaxis"]["rangemode"] = "tozero"
    words = [_time_words(protocol, found[protocol], medians[protocol]) for protocol in order]
    return Figure(name, title, "; ".join(words) + ".", traces, layout, columns)


def _time(time: float | None) -> float:
    return np.inf if time is None else time


def _time_traces(
    place: int,
    found: Sequence[tuple[ReadRun, float | None]],
    median: float,
    last: float,
    look: tuple[str, str],
    ends: Mapping[Any, float],
) -> list[Trace]:
    is_known = median < np.inf
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": [median if is_known else last],
        "y": [place],
        "width": 0.6,
        "marker": {"color": look[0], "opacity": 0.6 if is_known else 0.2},
        "hovertemplate": "median %{x:,.4~g} s<extra></extra>"
        if is_known
        else "beyond<extra></extra>",
        "showlegend": False,
    }
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [ends[run.path] if time is None else time for run, time in found],
        "y": [place] * len(found),
        "text": [label(run.name) for run, _ in found],
        "marker": {
            "color": look[0],
            "size": 9,
            "symbol": ["triangle-right-open" if t is None else "circle" for _, t in found],
        },
        "hovertemplate": "%{text}: %{x:,.4~g} s<extra></extra>",
        "showlegend": False,
    }
    return [bar, dots]


def _time_words(protocol: str, found: Sequence[tuple[ReadRun, float | None]], median: float) -> str:
    num = sum(time is not None for _, time in found)
    reached = f"reached by {num or 'none'} of {len(found)}"
    if median == np.inf:
        return f"{protocol}: {reached}"
    middle = seconds(median) + (" in the median" if len(found) > 1 else "")
    return f"{protocol}: {middle}, {reached}"


def _height(num: int) -> int:
    return 130 + 44 * max(2, num)


def _category(names: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [label(name) for name in names],
        "range": [len(names) - 0.4, -0.6],
        "zeroline": False,
    }


# --- speed-ups ------------------------------------------------------------------------------------


def compare_speedups(
    ledgers: Sequence[Ledger],
    target: float | None = None,
    metric: str | None = None,
    reference: str | None = None,
) -> Figure:
    """Speed-ups of the reference over the others, paired by seed, with their intervals.

    As `pisces.report.compare` has them: a run that ended without the target counts as a bound.
    """
    name, title = "compare-speedups", "speed-up to the target"
    with held(ledgers):
        target, metric = goal_of(ledgers, target, metric)
        runs = [ReadRun.of(ledger) for ledger in ledgers]
        if not runs or metric is None or target is None:
            return nothing(name, title, NO_RUNS if not runs else "No target is set: give one.")
        try:
            rows = compare(runs, target, metric=metric, reference=reference)
        except RunError as error:
            return nothing(name, title, f"{error}.")
    others = [row for row in rows[1:] if row.speedup is not None]
    first = rows[0].protocol
    if not others:
        why = "is not known yet: it takes two protocols with a run that is over, of the same seed."
        return nothing(name, title, f"How much faster {first} is {why}")
    looks = looks_of([row.protocol for row in rows])
    traces = [_speedup_trace(place, row, looks) for place, row in enumerate(others)]
    layout = layout_of(name, f"speed-up of {first} (1: none)", "", height=_height(len(others)))
    layout["yaxis"] |= _category([row.protocol for row in others])
    layout["xaxis"]["rangemode"] = "tozero"
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1}
    layout["shapes"] = [{**line, "line": {"color": GREY, "width": 1.5, "dash": "dash"}}]
    words = "; ".join(_speedup_words(first, row) for row in others) + "."
    return Figure(name, title, words, traces, layout, _speedup_columns(others))


def _speedup_trace(place: int, row: Row, looks: Mapping[str, tuple[str, str]]) -> Trace:
    low, high = _ends(row)
    middle = row.speedup or 0.0
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [middle],
        "y": [place],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, (middle if high is None else high) - middle)],
            "arrayminus": [max(0.0, middle - (middle if low is None else low))],
            "thickness": 2,
            "width": 6,
        },
        "marker": {
            "color": looks[row.protocol][0],
            "size": 11,
            "symbol": {"": "circle", ">=": "triangle-right", "<=": "triangle-left"}[
                row.speedup_bound
            ],
        },
        "hovertemplate": f"{label(_speedup_text(row))}<extra></extra>",
        "showlegend": False,
    }


def _ends(row: Row) -> tuple[float | None, float | None]:
    """The interval where there is one, else the range."""
    if row.speedup_low is None and row.speedup_high is None:
        return row.speedup_min, row.speedup_max
    return row.speedup_low, row.speedup_high


def _speedup_text(row: Row) -> str:
    low, high = _ends(row)
    text = f"{row.speedup_bound} {row.speedup:.2f}x".strip()
    if row.num_pairs > 1:
        ends = " to ".join("?" if end is None else f"{end:.2f}x" for end in (low, high))
        is_interval = row.speedup_low is not None or row.speedup_high is not None
        text += f", {'95 % interval' if is_interval else 'range'} {ends}"
    return f"{text}, {counted(row.num_pairs, 'pair')}"


def _speedup_words(first: str, row: Row) -> str:
    return f"{first} over {row.protocol}: {_speedup_text(row)}"


def _speedup_columns(rows: Sequence[Row]) -> dict[str, list[Cell]]:
    return {
        "protocol": [row.protocol for row in rows],
        "speedup": [row.speedup for row in rows],
        "bound": [row.speedup_bound for row in rows],
        "low": [_ends(row)[0] for row in rows],
        "high": [_ends(row)[1] for row in rows],
        "pairs": [row.num_pairs for row in rows],
        "time_to_target_s": [row.time_to_target_s for row in rows],
    }
