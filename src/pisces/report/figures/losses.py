"""Losses that clients told: outliers, the clusters DBSCAN saw, and credits."""

from __future__ import annotations

from pisces.report.figures.figure import Figure
from pisces.report.ledger import Ledger


def losses(ledger: Ledger) -> Figure:
    """Losses of updates over the versions they were trained from; outliers are marked."""
    raise NotImplementedError
