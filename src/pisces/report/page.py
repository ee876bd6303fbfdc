"""One page that holds everything about some runs, to mail or attach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pisces.record.reader import Run


def write_page(
    path: Path,
    runs: Sequence[Run],
    target: float | None,
    metric: str,
    reference: str | None = None,
) -> None:
    """Write the page."""
    raise NotImplementedError
