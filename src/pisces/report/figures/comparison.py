"""Several runs over each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from pisces.report.figures.figure import (
    GREY,
    Cell,
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
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun, metric_of, target_of
from pisces.report.styles import Style, styles_of

MOST_POINTS = 4000  # of all lines together
NO_RUNS = "There are no runs to compare: choose some."
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}


def goal_of(
    ledgers: Sequence[Ledger], target: float | None, metric: str | None
) -> tuple[float | None, str | None]:
    """Target and metric to compare by: as asked for, or those of the first run that has any."""
    if metric is None:
        metric = next((found for ledger in ledgers if (found := metric_of(ledger))), None)
    if target is None:
        own = (target_of(ledger) for ledger in ledgers if metric_of(ledger) == metric)
        target = next((found for found in own if found is not None), None)
    return target, metric


@contextmanager
def held(ledgers: Sequence[Ledger]) -> Iterator[None]:
    """Nobody reads on meanwhile; locks are taken in one order, so that nobody waits for ever."""
    with ExitStack() as stack:
        for ledger in sorted(ledgers, key=id):
            stack.enter_context(ledger.lock)
        yield


def looks_of(names: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Colour and dash of each protocol; black would be lost on a dark page."""

    def look(style: Style) -> tuple[str, str]:
        dash = style.dash if isinstance(style.dash, str) else ""
        colour = GREY if style.colour == "#000000" else style.colour
        return colour, DASHES.get(dash, "longdashdot")

    return {name: look(style) for name, style in styles_of(names).items()}


# --- curves ---------------------------------------------------------------------------------------


def compare_curves(
    ledgers: Sequence[Ledger], target: float | None = None, metric: str | None = None
) -> Figure:
    """A metric of several runs against time, a colour per protocol and a line per run."""
    name, title = "compare-curves", "runs over time"
    with held(ledgers):
        target, metric = goal_of(ledgers, target, metric)
        runs = [ReadRun.of(ledger) for ledger in ledgers]
        if not runs or metric is None:
            return nothing(name, title, NO_RUNS if not runs else "No run was evaluated yet.")
        curves = [(run, *run.curve(metric)) for run in runs]
        words = _curve_words(runs, target, metric)
    looks = looks_of(list(dict.fromkeys(run.protocol for run in runs)))
    most = max(40, MOST_POINTS // len(runs))
    firsts = {run.protocol: run for run in reversed(runs)}  # of each protocol one is in the legend
    traces, columns = [], empty("run", "at", metric)
    for run, times, values in curves:
        kept, is_first = thinned(values, most), firsts[run.protocol] is run
        traces.append(_line(run, times[kept], values[kept], looks[run.protocol], is_first))
        columns["run"] += [str(run.path)] * len(times)
        columns["at"] += numbers(times)
        columns[metric] += numbers(values)
    goal = {} if target is None else across(target, f"target {target:g}")
    layout = layout_of(name, "time (s)", told(metric), **goal)
    layout["xaxis"]["rangemode"] = "tozero"
    title = f"{told(metric)} of {counted(len(runs), 'run')}"
    return Figure(name, title, words, traces, layout, columns)


def _line(run: ReadRun, times: Any, values: Any, look: tuple[str, str], is_first: bool) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(run.protocol),
        "legendgroup": label(run.protocol),
        "showlegend": is_first,
        "x": numbers(times),
        "y": numbers(values),
        "text": label(run.name),
        "line": {"color": look[0], "dash": look[1], "width": 1.8},
        "hovertemplate": "%{text}: %{y:.4g} at %{x:,.4~g} s<extra></extra>",
    }


def _curve_words(runs: Sequence[ReadRun], target: float | None, metric: str) -> str:
    groups = grouped(runs)
    parts = []
    for protocol, own in groups.items():
        finals = [run.summary["final"].get(metric) for run in own]
        known = [value for value in finals if value is not None]
        at_end = f"{told(metric)} {np.median(known):.4g}" if known else "no value"
        if target is not None:
            times = [run.time_to_target(target, metric) for run in own]
            num = sum(time is not None for time in times)
            at_end += f", {num} of {len(own)} at the target {target:g}"
        parts.append(f"{protocol}: {at_end}")
    return "; ".join(parts) + "."


def grouped(runs: Sequence[ReadRun]) -> dict[str, list[ReadRun]]:
    """Runs by protocol, in the order given."""
    groups: dict[str, list[ReadRun]] = {}
    for run in runs:
        groups.setdefault(run.protocol, []).append(run)
    return groups


def empty(*names: str) -> dict[str, list[Cell]]:
    """Columns to be filled."""
    return {name: [] for name in names}
