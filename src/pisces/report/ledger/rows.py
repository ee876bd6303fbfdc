"""All clients, sorted, filtered and a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pisces.report.ledger.book import Ledger

Status: TypeAlias = Literal["running", "waiting", "idle", "new", "gone", "distrusted"]
STATUSES: tuple[Status, ...] = ("running", "waiting", "idle", "new", "gone", "distrusted")


@dataclass(frozen=True, slots=True)
class ClientRow:
    """What is known of one client; None is what is not.

    `status`: `waiting` is an update in the buffer, `new` a client that is there and was never
    started. `terms` is its score as last recorded, part by part, whatever they are called.
    """

    client: int
    name: str | None
    status: Status
    num_examples: int | None
    latency_s: float | None
    loss: float | None
    staleness: float | None  # of its last aggregated update
    utility: float | None
    discount: float | None
    score: float | None
    terms: dict[str, float | None]
    picks: int
    updates: int
    failures: int
    credits: int | None
    version: int | None  # its last update was trained from


@dataclass(frozen=True, slots=True)
class ClientRows:
    """A page of them: `total` are all there are, `found` those that fit."""

    total: int
    found: int
    first: int
    rows: tuple[ClientRow, ...]
    terms: tuple[str, ...]  # names that scores are made of
    statuses: dict[str, int]  # how many of each, of all


def client_rows(
    ledger: Ledger,
    *,
    order: str = "client",
    descending: bool = False,
    find: str = "",
    status: str | None = None,
    first: int = 0,
    num: int = 50,
) -> ClientRows:
    """A page of clients; `order` is a field of `ClientRow` or a term, `find` part of a name or id.

    Those whose value is not known come last, whichever way the others are sorted.
    """
    raise NotImplementedError
