"""Aggregations: how far apart, of whom, and how stale."""

from __future__ import annotations

from pisces.report.figures.figure import Figure
from pisces.report.ledger import Ledger


def intervals(ledger: Ledger) -> Figure:
    """Seconds between aggregations, against the pacer's limit where it has one."""
    raise NotImplementedError


def contributors(ledger: Ledger) -> Figure:
    """How many updates went into each version, and their weights."""
    raise NotImplementedError


def staleness(ledger: Ledger) -> Figure:
    """How stale aggregated updates were, with the bound where there is one."""
    raise NotImplementedError
