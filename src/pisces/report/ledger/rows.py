"""All clients, sorted, filtered and a page at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pisces.errors import ConfigError
from pisces.report.ledger.book import Ledger

Status: TypeAlias = Literal["running", "waiting", "idle", "new", "gone", "distrusted"]
STATUSES: tuple[Status, ...] = get_args(Status)


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
    staleness: int | None  # of its last aggregated update
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
    with ledger.lock:
        return _client_rows(ledger, order, descending, find, status, first, num)


def _client_rows(
    ledger: Ledger,
    order: str,
    descending: bool,
    find: str,
    status: str | None,
    first: int,
    num: int,
) -> ClientRows:
    clients, codes = ledger.notes.clients, status_codes(ledger)
    fits = _fitting(ledger, codes, find, status)
    keys = _keys(ledger, order, codes)[fits]
    ids, is_known = clients["client"][fits], ~np.isnan(keys)
    # The last key counts first; ids settle what is equal, upwards whichever way the rest goes.
    places = fits[np.lexsort((ids, -keys if descending else keys, ~is_known))]
    first = max(0, first)
    page = places[first : first + max(0, num)]
    return ClientRows(
        total=len(clients),
        found=len(fits),
        first=first,
        rows=tuple(row_of(ledger, int(place), codes) for place in page),
        terms=ledger.notes.picks.names,
    )


def status_codes(ledger: Ledger) -> NDArray[np.int64]:
    """What each client does now, as places in `STATUSES`."""
    clients = ledger.notes.clients
    said: dict[Status, NDArray[np.bool_]] = {  # the first that holds
        "distrusted": clients["distrusted_line"] >= 0,
        "gone": ~clients["is_present"],
        "running": clients["num_running"] > 0,
        "waiting": clients["num_waiting"] > 0,
        "new": clients["picks"] == 0,
    }
    codes = [STATUSES.index(name) for name in said]
    return np.select(list(said.values()), codes, default=STATUSES.index("idle"))


def _fitting(
    ledger: Ledger, codes: NDArray[np.int64], find: str, status: str | None
) -> NDArray[np.int64]:
    if status is not None and status not in STATUSES:
        raise ConfigError(
            f"a client's status is one of {', '.join(STATUSES)}, not {status!r}: choose one"
        )
    fits = np.arange(len(codes))
    if status is not None:
        fits = fits[codes == STATUSES.index(status)]
    if not find:
        return fits
    names, wanted = ledger.names.all(), find.lower()
    clients = ledger.notes.clients["client"][fits].tolist()
    found = [wanted in str(c) or wanted in names.get(c, "").lower() for c in clients]
    chosen: NDArray[np.int64] = fits[np.array(found, bool)]
    return chosen


NUMBERS = ("client", "num_examples", "latency_s", "loss", "staleness", "picks", "updates")
MORE_NUMBERS = ("failures", "credits", "version")


def _keys(ledger: Ledger, order: str, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """What to sort by, NaN where it is not known."""
    clients, picks = ledger.notes.clients, ledger.notes.picks
    if order == "status":
        return codes.astype(np.float64)
    if order == "name":
        return _places_by_name(ledger)
    if order == "credits":
        return _credits(ledger)
    if order in (*NUMBERS, *MORE_NUMBERS):
        keys: NDArray[np.float64] = clients[order].astype(np.float64)
        return np.where(keys < 0, np.nan, keys) if order != "loss" else keys
    if order == "score" or order in picks.names:
        return picks.term_of(clients["scored"], order)
    known = ", ".join((*NUMBERS, *MORE_NUMBERS, "status", "name", "score", *picks.names))
    raise ConfigError(f"clients are not sorted by {order!r}: choose one of {known}")


def _places_by_name(ledger: Ledger) -> NDArray[np.float64]:
    names, clients = ledger.names.all(), ledger.notes.clients["client"].tolist()
    keys = np.full(len(clients), np.nan)
    known = [row for row, client in enumerate(clients) if client in names]
    known.sort(key=lambda row: names[clients[row]].lower())
    keys[known] = np.arange(len(known))
    return keys


def _credits(ledger: Ledger) -> NDArray[np.float64]:
    """As last told, or those that everybody begins with; NaN where neither is known."""
    told = ledger.notes.clients["credits"].astype(np.float64)
    at_first = ledger.setting("clients", "credits")
    return np.where(told < 0, at_first if type(at_first) is int else np.nan, told)


def row_of(ledger: Ledger, row: int, codes: NDArray[np.int64] | None = None) -> ClientRow:
    """All that is known of the client in this row."""
    clients, picks = ledger.notes.clients, ledger.notes.picks
    codes = status_codes(ledger) if codes is None else codes
    cell = {name: clients[name][row].item() for name in clients.FILLS}
    terms = picks.terms_of(cell["scored"])
    at_first = ledger.setting("clients", "credits")
    credits_left = cell["credits"] if cell["credits"] >= 0 else at_first
    return ClientRow(
        client=cell["client"],
        name=ledger.names.all().get(cell["client"]),
        status=STATUSES[codes[row]],
        num_examples=count_or_none(cell["num_examples"]),
        latency_s=number_or_none(cell["latency_s"]),
        loss=number_or_none(cell["loss"]),
        staleness=count_or_none(cell["staleness"]),
        score=terms.get("score"),
        terms=terms,
        picks=cell["picks"],
        updates=cell["updates"],
        failures=cell["failures"],
        credits=credits_left if type(credits_left) is int else None,
        version=count_or_none(cell["version"]),
    )


def count_or_none(value: int) -> int | None:
    """None where a count is not known."""
    return None if value < 0 else value


def number_or_none(value: float) -> float | None:
    """None where a number is not known."""
    return None if math.isnan(value) else value
