"""What clients were busy with, piece by piece, where there are too many tasks to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pisces.report.arrays import Floats, Ints
from pisces.report.figures.span import Span
from pisces.report.ledger import Ledger
from pisces.report.ledger.tables import AGGREGATED, OUTCOMES

ROUNDING = 1e-6  # of a piece: less than that is what sums of many instants are off by
STEPS = 90  # pieces that a span of time is cut into


@dataclass(frozen=True, slots=True, eq=False)
class BusyMap:
    """A row per client, a column per piece of time, which lies between two `edges`.

    `stale` is the mean over updates that were aggregated, by the time each took in that piece; NaN
    where none did. `outcomes` is what came of most of the work in it, -1 where there was none.
    """

    edges: Floats
    stale: Floats
    outcomes: Ints


def busy_map(ledger: Ledger, span: Span) -> BusyMap:
    """How stale the updates of these clients were, and what came of their work."""
    edges = np.linspace(span.since, span.until, STEPS + 1)
    width = (span.until - span.since) / STEPS
    tasks = ledger.notes.tasks
    codes = tasks["outcome"][span.tasks]
    is_used = codes == AGGREGATED
    staleness = np.where(is_used, tasks["staleness"][span.tasks], 0).astype(np.float64)
    stale = np.zeros((len(span.names), STEPS))
    outcomes: Ints = np.full((len(span.names), STEPS), -1)
    for place in range(len(span.names)):
        own = np.flatnonzero(span.places == place)
        starts, ends, used = span.starts[own], span.ends[own], is_used[own]
        by_outcome = np.zeros((len(OUTCOMES), STEPS))
        for code in np.unique(codes[own]).tolist():
            here = codes[own] == code
            ones = np.ones(np.count_nonzero(here))
            by_outcome[code] = spent(edges, starts[here], ends[here], ones)
        worked = by_outcome.max(axis=0) > ROUNDING * width
        outcomes[place] = np.where(worked, by_outcome.argmax(axis=0), -1)
        weighted = spent(edges, starts[used], ends[used], staleness[own][used])
        in_use = by_outcome[AGGREGATED]
        stale[place] = np.divide(
            weighted, in_use, out=np.full(STEPS, np.nan), where=in_use > ROUNDING * width
        )
    return BusyMap(edges, stale, outcomes)


def spent(edges: Floats, starts: Floats, ends: Floats, weights: Floats) -> Floats:
    """How long tasks lasted within each piece, each counted `weights` times.

    Up to an instant t it is the sum of t - start over those that began, less that of t - end over
    those that ended: two sums that sorting makes one look-up each.
    """
    pieces: Floats = np.diff(_since(edges, starts, weights) - _since(edges, ends, weights))
    return np.maximum(pieces, 0.0)


def _since(edges: Floats, instants: Floats, weights: Floats) -> Floats:
    order = np.argsort(instants)
    instants, weights = instants[order], weights[order]
    number = np.concatenate([[0.0], np.cumsum(weights)])
    total = np.concatenate([[0.0], np.cumsum(weights * instants)])
    passed = np.searchsorted(instants, edges)
    summed: Floats = number[passed] * edges - total[passed]
    return summed
