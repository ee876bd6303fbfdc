"""Tasks of some clients in a span of time: what a timeline shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisces.quantities import counted, duration
from pisces.report.arrays import Floats, Ints
from pisces.report.ledger import Ledger
from pisces.report.ledger.tables import AGGREGATED, OUTCOMES, RUNNING
from pisces.report.styles import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SCALE, SKY

COLOURS = dict(zip(OUTCOMES, (SKY, AMBER, GREEN, PINK, ORANGE, GREY, BLUE, GREY), strict=True))
STALE = [[place / (len(SCALE) - 1), colour] for place, colour in enumerate(SCALE)]


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Tasks of some clients in a span of time; `places` are rows of the figure."""

    since: float
    until: float
    names: list[str]
    first: int  # client of those that ever worked, counted from 0
    num_worked: int
    tasks: Ints
    places: Ints
    starts: Floats
    ends: Floats


def span_of(
    ledger: Ledger, since: float | None, until: float | None, first: int, num: int
) -> Span | None:
    """Of `num` clients from the `first` on, of those that ever started; None where nobody did."""
    notes = ledger.notes
    ids, tasks = notes.clients["client"], notes.tasks
    started = np.flatnonzero(notes.clients["picks"])
    shown = started[np.argsort(ids[started])][first : first + num]
    if not len(started):
        return None
    since = 0.0 if since is None else since
    until = notes.at if until is None else until
    place_of: NDArray[np.int64] = np.full(len(ids), -1)
    place_of[shown] = np.arange(len(shown))
    ends = np.where(np.isnan(tasks["ended_at"]), notes.at, tasks["ended_at"])
    places = place_of[tasks["client"]]
    within = np.flatnonzero((places >= 0) & (tasks["started_at"] <= until) & (ends >= since))
    names = ledger.names.all()
    return Span(
        since=since,
        until=max(until, since),
        names=[names.get(client, str(client)) for client in ids[shown].tolist()],
        first=first,
        num_worked=len(started),
        tasks=within,
        places=places[within],
        starts=tasks["started_at"][within],
        ends=ends[within],
    )


def in_words(ledger: Ledger, span: Span) -> str:
    """How many tasks of whom, and what came of them."""
    tasks = ledger.notes.tasks
    outcomes, staleness = tasks["outcome"][span.tasks], tasks["staleness"][span.tasks]
    parts = [
        f"{counted(len(span.tasks), 'task')} of {_whose(span)}, from {duration(span.since)} to "
        f"{duration(span.until)}"
    ]
    used = staleness[outcomes == AGGREGATED]
    if len(used):
        low, high = int(used.min()), int(used.max())
        how = f"{low}" if low == high else f"{low} to {high}"
        parts.append(f"{len(used):,} aggregated with staleness {how}")
    for code, outcome in enumerate(OUTCOMES):
        if code != AGGREGATED and np.any(outcomes == code):
            words = "still running" if code == RUNNING else outcome
            parts.append(f"{np.count_nonzero(outcomes == code):,} {words}")
    return "; ".join(parts) + "."


def _whose(span: Span) -> str:
    num = len(span.names)
    every = f"the {counted(span.num_worked, 'client')} that ever worked"
    if num == span.num_worked:
        return every
    if not num:
        return f"none of {every}"
    if span.first:
        passed = "" if span.first == 1 else f" {span.first:,}"
        return f"{num:,} of {every}, after the first{passed}"
    return f"the first {num:,} of {every}" if num > 1 else f"the first of {every}"
