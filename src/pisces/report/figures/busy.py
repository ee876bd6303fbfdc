"""How busy clients were, piece by piece, where there are too many tasks to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pisces.report.facts import Floats
from pisces.report.ledger import Ledger
from pisces.report.ledger.tables import AGGREGATED

if TYPE_CHECKING:
    from pisces.report.figures.timeline import Span

STEPS = 90  # pieces that a span of time is cut into


def busy_map(ledger: Ledger, span: Span) -> tuple[Floats, Floats]:
    """Per client and piece: the share of it that the client worked, and how stale its updates were.

    Staleness is the mean over updates, by the time each took in that piece; NaN where none did.
    """
    edges = np.linspace(span.since, span.until, STEPS + 1)
    tasks = ledger.notes.tasks
    is_used = tasks["outcome"][span.tasks] == AGGREGATED
    staleness = np.where(is_used, tasks["staleness"][span.tasks], 0).astype(np.float64)
    busy, stale = np.zeros((2, len(span.clients), STEPS))
    for place in range(len(span.clients)):
        own = np.flatnonzero(span.places == place)
        starts, ends, used = span.starts[own], span.ends[own], is_used[own]
        busy[place] = spent(edges, starts, ends, np.ones(len(own)))
        weighted = spent(edges, starts[used], ends[used], staleness[own][used])
        in_use = spent(edges, starts[used], ends[used], np.ones(np.count_nonzero(used)))
        stale[place] = np.divide(weighted, in_use, out=np.full(STEPS, np.nan), where=in_use > 1e-12)
    width = (span.until - span.since) / STEPS
    return np.clip(busy / max(width, 1e-300), 0.0, 1.0), stale


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
