"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pisces.report.figures.figure import Figure
from pisces.report.ledger import Ledger


def compare_curves(
    ledgers: Sequence[Ledger], target: float | None = None, metric: str | None = None
) -> Figure:
    """A metric of several runs against time, a colour per protocol."""
    raise NotImplementedError


def compare_times(
    ledgers: Sequence[Ledger], target: float | None = None, metric: str | None = None
) -> Figure:
    """Time to the target, a bar per protocol and a dot per run."""
    raise NotImplementedError


def compare_speedups(
    ledgers: Sequence[Ledger],
    target: float | None = None,
    metric: str | None = None,
    reference: str | None = None,
) -> Figure:
    """Speed-ups of the reference over the others, paired by seed, with their intervals."""
    raise NotImplementedError


def costs(ledgers: Sequence[Ledger]) -> list[dict[str, Any]]:
    """What each run cost, a row each: updates, samples, bytes where known; see the keys."""
    raise NotImplementedError
