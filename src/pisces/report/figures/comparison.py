"""Several runs over each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from pisces.quantities import begun, counted, told
from pisces.report.compare import grouped
from pisces.report.figures.figure import Figure, Trace, label, nothing, numbers, over_time, thinned
from pisces.report.goal import NO_TARGET, Goal
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun
from pisces.report.styles import BLACK, GREY, Style, styles_of

RUNS_OVER_TIME = "runs over time"
MOST_POINTS = 4000  # of all lines together
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}


@contextmanager
def compared(
    runs: Sequence[ReadRun], goal: Goal, *, needs_target: bool = False
) -> Iterator[str | None]:
    """Why there is nothing to draw of these runs, if so; nobody reads on meanwhile."""
    with held([run.ledger for run in runs]):
        why_not = _why_nothing(runs, goal)
        if why_not is None and needs_target:
            no_target = f"{begun(NO_TARGET)}: give one."
            why_not = no_target if goal.target is None else goal.refusal(runs)
        yield why_not


@contextmanager
def held(ledgers: Sequence[Ledger]) -> Iterator[None]:
    """Nobody reads on meanwhile; locks are taken in one order, so that nobody waits for ever."""
    with ExitStack() as stack:
        for ledger in sorted(ledgers, key=id):
            stack.enter_context(ledger.lock)
        yield


def _why_nothing(runs: Sequence[ReadRun], goal: Goal) -> str | None:
    if not runs:
        return "There are no runs to compare: choose some."
    if any(goal.metric in run.metrics for run in runs):
        return None
    if not any(run.metrics for run in runs):
        return "No run was evaluated yet."
    return f"The {told(goal.metric)} was never evaluated."


def looks_of(names: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Colour and dash of each protocol; black would be lost on a dark page."""

    def look(style: Style) -> tuple[str, str]:
        dash = style.dash if isinstance(style.dash, str) else ""
        colour = GREY if style.colour == BLACK else style.colour
        return colour, DASHES.get(dash, "longdashdot")

    return {name: look(style) for name, style in styles_of(names).items()}


# --- curves ---------------------------------------------------------------------------------------


def compare_curves(runs: Sequence[ReadRun], goal: Goal) -> Figure:
    """A metric of several runs against time, a colour per protocol and a line per run."""
    name = "compare-curves"
    with compared(runs, goal) as why_not:
        if why_not:
            return nothing(RUNS_OVER_TIME, why_not)
        if goal.refusal(runs):  # they are what they are, whatever they are held to
            goal = replace(goal, target=None)
        curves = [(run, *run.curve(goal.metric)) for run in runs]
        words = _curve_words(runs, goal)
    looks = looks_of(list(dict.fromkeys(run.protocol for run in runs)))
    most = max(40, MOST_POINTS // len(runs))
    firsts = {run.protocol: run for run in reversed(runs)}  # of each protocol one is in the legend
    traces = []
    for run, times, values in curves:
        kept, is_first = thinned(values, most), firsts[run.protocol] is run
        traces.append(_line(run, times[kept], values[kept], looks[run.protocol], is_first))
    title = f"{told(goal.metric)} of {counted(len(runs), 'run')}"
    return Figure(title, words, traces, over_time(name, goal))


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


def _curve_words(runs: Sequence[ReadRun], goal: Goal) -> str:
    metric, target = goal.metric, goal.target
    parts = []
    for protocol, own in grouped(runs).items():
        finals = [run.counts.final.get(metric) for run in own]
        known = [value for value in finals if value is not None]
        usual = " in the median" if len(own) > 1 else ""
        at_end = f"{told(metric)} {np.median(known):.4g}{usual}" if known else "no value"
        if target is not None:
            times = [run.time_to_target(target, metric) for run in own]
            num = sum(time is not None for time in times)
            at_end += f", {num} of {len(own)} at the target {target:g}"
        parts.append(f"{protocol}: {at_end}")
    return "; ".join(parts) + "."
