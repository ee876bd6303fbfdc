"""How much sooner one protocol gets to a target than others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pisces.errors import RunError
from pisces.quantities import counted, duration, told
from pisces.report.compare import compare, grouped
from pisces.report.estimate import (
    Ends,
    Estimate,
    ends_in_words,
    median_between,
    median_in_words,
    time_between,
)
from pisces.report.figures.comparison import compared, looks_of
from pisces.report.figures.figure import Figure, Trace, in_lines, label, layout_of, nothing
from pisces.report.goal import Goal
from pisces.report.ledger.summary import ReadRun
from pisces.report.styles import GREY

# --- time to target -------------------------------------------------------------------------------


def compare_times(runs: Sequence[ReadRun], goal: Goal) -> Figure:
    """Time to the target: a bar to the median of each protocol, a dot per run.

    A run that ended, or is, without it is an open triangle where it is now; where that leaves the
    median open, the bar is paler and ends at what is sure: the median lies beyond.
    """
    name, title = "compare-times", "time to target"
    with compared(runs, goal, needs_target=True) as why_not:
        if why_not:
            return nothing(title, why_not)
        metric, target, groups = goal.metric, goal.needed, grouped(runs)
        found = {
            protocol: [(run, run.time_to_target(target, metric)) for run in own]
            for protocol, own in groups.items()
        }
        ends = {run.path: run.ledger.notes.at for own in groups.values() for run in own}
    looks = looks_of(list(groups))
    medians = {
        protocol: median_between([time_between(time, ends[run.path]) for run, time in own])
        for protocol, own in found.items()
    }
    order = sorted(groups, key=lambda protocol: medians[protocol][::-1])
    traces: list[Trace] = []
    for place, protocol in enumerate(order):
        traces += _time_traces(place, found[protocol], medians[protocol], looks[protocol], ends)
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
    return Figure(title, "; ".join(words) + ".", traces, layout)


def _time_traces(
    place: int,
    found: Sequence[tuple[ReadRun, float | None]],
    median: Ends,
    look: tuple[str, str],
    ends: Mapping[Any, float],
) -> list[Trace]:
    is_known = median[1] < math.inf
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": [median[0]],
        "y": [place],
        "width": 0.6,
        "marker": {"color": look[0], "opacity": 0.6 if is_known else 0.2},
        "hovertemplate": f"median {'' if is_known else 'beyond '}%{{x:,.4~g}} s<extra></extra>",
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


def _time_words(protocol: str, found: Sequence[tuple[ReadRun, float | None]], median: Ends) -> str:
    num = sum(time is not None for _, time in found)
    reached = f"reached by {num or 'none'} of {len(found)}"
    if median[1] == math.inf:
        return f"{protocol}: {reached}"
    middle = duration(median[0]) + (" in the median" if len(found) > 1 else "")
    return f"{protocol}: {middle}, {reached}"


def _height(num: int) -> int:
    return 130 + 44 * max(2, num)


def _category(names: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [in_lines(name) for name in names],
        "range": [len(names) - 0.4, -0.6],
        "zeroline": False,
    }


# --- speed-ups ------------------------------------------------------------------------------------


def compare_speedups(runs: Sequence[ReadRun], goal: Goal) -> Figure:
    """Speed-ups of the reference over the others, paired by seed, with their intervals.

    As `pisces.report.compare` has them: a run that ended without the target counts as a bound.
    """
    name, title = "compare-speedups", "speed-up to the target"
    with compared(runs, goal, needs_target=True) as why_not:
        if why_not:
            return nothing(title, why_not)
        try:
            rows = compare(runs, goal.needed, metric=goal.metric, reference=goal.reference)
        except RunError as error:
            return nothing(title, f"{error}.")
    others = {row.protocol: row.known_speedup for row in rows[1:]}
    speedups = {protocol: found for protocol, found in others.items() if found is not None}
    first = rows[0].protocol
    if not speedups:
        why = "is not known yet: it takes two protocols with a run that is over, of the same seed."
        return nothing(title, f"How much faster {first} is {why}")
    looks = looks_of([row.protocol for row in rows])
    traces = [
        _speedup_trace(place, found, looks[protocol][0])
        for place, (protocol, found) in enumerate(speedups.items())
    ]
    layout = layout_of(name, "", "", height=_height(len(speedups)))
    gap = "<br>" if ", " in first else " "
    layout["xaxis"]["title"] = {"text": f"speed-up of {in_lines(first)}{gap}(1: none)"}
    layout["yaxis"] |= _category(list(speedups))
    layout["xaxis"]["rangemode"] = "tozero"
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1}
    layout["shapes"] = [{**line, "line": {"color": GREY, "width": 1.5, "dash": "dash"}}]
    words = [f"{first} over {other}: {_speedup_text(found)}" for other, found in speedups.items()]
    return Figure(title, "; ".join(words) + ".", traces, layout)


def _speedup_trace(place: int, found: Estimate, colour: str) -> Trace:
    known, bound = found.known
    middle = known or 0.0
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [middle],
        "y": [place],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [_arm(found.high - middle)],
            "arrayminus": [_arm(middle - found.low)],
            "thickness": 2,
            "width": 6,
        },
        "marker": {
            "color": colour,
            "size": 11,
            "symbol": {"": "circle", ">=": "triangle-right", "<=": "triangle-left"}[bound],
        },
        "hovertemplate": f"{label(_speedup_text(found))}<extra></extra>",
        "showlegend": False,
    }


def _arm(length: float) -> float:
    """How far an error bar reaches: nowhere, where its end is not known."""
    return max(0.0, length) if math.isfinite(length) else 0.0


def _speedup_text(found: Estimate) -> str:
    text = median_in_words(found, "{:.2f}x".format)
    if found.num > 1:
        ends = " to ".join(ends_in_words(found, "{:.2f}x".format))
        text += f", {'95 % interval' if found.has_interval else 'range'} {ends}"
    return f"{text}, {counted(found.num, 'pair')}"
