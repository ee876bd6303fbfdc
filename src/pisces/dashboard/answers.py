"""What the page is told: one function per question.

An answer has a revision, and is worked out only for those who do not know that one yet. Everything
is counted, sorted and cut here: no more than a page full leaves, however long the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from pisces.dashboard.answer import Answer, drawn, revision_of, run_asked
from pisces.dashboard.asking import Asked, BadQuestion
from pisces.dashboard.comparing import comparison
from pisces.dashboard.index import Index, Watched
from pisces.dashboard.places import hidden
from pisces.report import figures
from pisces.report.figures import Figure
from pisces.report.ledger import (
    FATES,
    STATUSES,
    ClientRow,
    Ledger,
    client_rows,
    client_story,
    overview,
)

MAX_PAGE = 200  # rows at once
MAX_CLIENT = 2**31
ANY = 10**9
NUM_TASKS = 50
STATES = ("running", "silent", "interrupted", "finished", "empty")
ROW = (
    *("name", "protocol", "seed", "state", "reason", "clock", "at", "version", "metric", "value"),
    *("best", "target", "time_to_target_s", "num_clients", "num_updates", "share_done", "left_s"),
)
ORDERS = ("changed_at", "id", *ROW)
CLIENT_ORDERS = frozenset(field.name for field in fields(ClientRow)) - {"terms"}


# --- the list -------------------------------------------------------------------------------------


def runs(index: Index, asked: Asked) -> Answer:
    """A page of the list of runs."""
    order = asked.choice("order", ORDERS, "changed_at")
    state = asked.choice("state", ("", *STATES), "")
    is_descending, find = asked.flag("descending"), asked.text("find").casefold()
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", 50, 1, MAX_PAGE)

    def make() -> dict[str, Any]:
        rows = [_row(watched) for watched in index.runs()]
        fitting = [row for row in rows if _fits(row, find, state)]
        known = [row for row in fitting if row[order] is not None]
        known.sort(key=lambda row: row["id"])  # what is equal stays where it was
        known.sort(key=lambda row: _key(row[order]), reverse=is_descending)
        ordered = known + [row for row in fitting if row[order] is None]
        return {
            "folder": index.root.name or str(index.root),
            "has_looked": index.has_looked,
            "is_cut": index.is_cut,
            "total": len(rows),
            "found": len(fitting),
            "first": first,
            "states": {s: sum(row["state"] == s for row in rows) for s in STATES},
            "rows": ordered[first : first + num],
        }

    return Answer(index.revision, make)


def _row(watched: Watched) -> dict[str, Any]:
    seen = watched.seen
    return {
        "id": watched.place.id,
        "changed_at": watched.place.changed_at,
        "share_read": watched.share_read,
        "problem": watched.problem,
        **{name: getattr(seen, name, None) for name in ROW},
    }


def _fits(row: Mapping[str, Any], find: str, state: str) -> bool:
    words = f"{row['id']} {row['name'] or ''}".casefold()
    return find in words and state in ("", row["state"])


def _key(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


# --- one run --------------------------------------------------------------------------------------


def glance(index: Index, asked: Asked) -> Answer:
    """One run at a glance, and how far its log was read."""
    watched, ledger = run_asked(index, asked)
    seen = overview(ledger)
    minutes = None if seen.silent_s is None else int(seen.silent_s // 60)
    state = f"{seen.state}.{minutes}.{ledger.share_read:.3f}.{watched.place.problem is None}"

    def make() -> dict[str, Any]:
        problem = watched.place.problem or seen.problem or watched.problem
        return {
            **asdict(seen),
            "id": watched.place.id,
            "problem": None if problem is None else hidden(problem, index.root),
            "share_read": ledger.share_read,
            "is_whole": ledger.is_whole,
            "metric_names": list(ledger.metrics),
        }

    return Answer(f"{revision_of(index, ledger)}.{state}", make)


def clients(index: Index, asked: Asked) -> Answer:
    """A page of the table of clients."""
    _, ledger = run_asked(index, asked)
    status = asked.choice("status", ("", *STATUSES), "") or None
    orders = (*CLIENT_ORDERS, *ledger.terms)
    order, find = asked.choice("order", orders, "client"), asked.text("find")
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", 50, 1, MAX_PAGE)
    is_descending = asked.flag("descending")

    def make() -> dict[str, Any]:
        found = client_rows(
            ledger,
            order=order,
            descending=is_descending,
            find=find,
            status=status,
            first=first,
            num=num,
        )
        return asdict(found)

    return Answer(revision_of(index, ledger), make)


def client(index: Index, asked: Asked) -> Answer:
    """One client's story."""
    _, ledger = run_asked(index, asked)
    number = asked.whole("client", -1, 0, MAX_CLIENT)
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", NUM_TASKS, 1, MAX_PAGE)
    first_task = asked.whole("first_task", first, 0, ANY)
    fate = asked.choice("fate", ("", *FATES), "")

    def make() -> dict[str, Any]:
        wanted = next((name for name in FATES if name == fate), None)
        return asdict(client_story(ledger, number, first, num, fate=wanted, first_task=first_task))

    return Answer(revision_of(index, ledger), make)


# --- figures --------------------------------------------------------------------------------------


def figure(index: Index, asked: Asked) -> Answer:
    """One figure of one run."""
    _, ledger = run_asked(index, asked)
    name = asked.choice("name", FIGURES, "curve")
    make = FIGURES[name](ledger, asked)
    return Answer(revision_of(index, ledger), lambda: drawn(make()))


def _curve(ledger: Ledger, asked: Asked) -> Callable[[], Figure]:
    metric = asked.text("metric") or None
    if metric is not None and metric not in ledger.metrics:
        raise BadQuestion("metric: this run has none of that name so far")
    return lambda: figures.curve(ledger, metric)


def _timeline(ledger: Ledger, asked: Asked) -> Callable[[], Figure]:
    colour = asked.choice("colour", ("staleness", "outcome"), "staleness")
    since, until = asked.number("from"), asked.number("until")
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", 40, 1, MAX_PAGE)
    return lambda: figures.timeline(
        ledger,
        colour="outcome" if colour == "outcome" else "staleness",
        since=since,
        until=until,
        first=first,
        num=num,
    )


Drawer: TypeAlias = Callable[[Ledger, Asked], Callable[[], Figure]]
FIGURES: dict[str, Drawer] = {
    "curve": _curve,
    "timeline": _timeline,
    "intervals": lambda ledger, _: lambda: figures.intervals(ledger),
    "contributors": lambda ledger, _: lambda: figures.contributors(ledger),
    "staleness": lambda ledger, _: lambda: figures.staleness(ledger),
    "losses": lambda ledger, _: lambda: figures.losses(ledger),
}


# --- all questions --------------------------------------------------------------------------------

Answerer: TypeAlias = Callable[[Index, Asked], Answer]
_PAGE = {"order", "descending", "find", "first", "num"}
ANSWERS: dict[str, tuple[Answerer, set[str]]] = {  # and what may be asked along
    "runs": (runs, {*_PAGE, "state"}),
    "overview": (glance, {"run"}),
    "clients": (clients, {*_PAGE, "run", "status"}),
    "client": (client, {"run", "client", "first", "num", "fate", "first_task"}),
    "figure": (
        figure,
        {"run", "name", "metric", "colour", "from", "until", "first", "num"},
    ),
    "compare": (comparison, {"run", "target", "metric"}),
}
