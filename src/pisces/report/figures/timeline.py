"""Who worked when: a row per client."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pisces.report.figures.figure import Figure
from pisces.report.ledger import Ledger

Colouring: TypeAlias = Literal["staleness", "outcome"]


def timeline(
    ledger: Ledger,
    *,
    colour: Colouring = "staleness",
    since: float | None = None,
    until: float | None = None,
    first: int = 0,
    num: int = 40,
) -> Figure:
    """Tasks of `num` clients from the `first` on (by id, of those that ever started), as bars.

    Where the span holds too many tasks, each row is cut into pieces shaded by how busy it was.
    """
    raise NotImplementedError
