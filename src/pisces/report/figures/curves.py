"""How good the model is, over time."""

from __future__ import annotations

from pisces.report.figures.figure import Figure
from pisces.report.ledger import Ledger


def curve(ledger: Ledger, metric: str | None = None, target: float | None = None) -> Figure:
    """A metric against time, with the target and when it was met; by default those of `stop`."""
    raise NotImplementedError
