"""What the page is told: one function per question.

An answer has a revision, and is worked out only for those who do not know that one yet. Everything
is counted, sorted and cut here: no more than a page full leaves, however long the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias, get_args

from pisces.dashboard.answer import Answer, drawn, revision_of, run_asked
from pisces.dashboard.asking import Asked
from pisces.dashboard.comparing import comparison
from pisces.dashboard.index import Index
from pisces.dashboard.listing import ANY, MAX_PAGE, PAGE, names, runs
from pisces.dashboard.places import hidden
from pisces.report import figures
from pisces.report.figures import Figure
from pisces.report.figures.timeline import Colouring
from pisces.report.goal import Goal
from pisces.report.ledger import (
    FATES,
    STATUSES,
    ClientRow,
    Ledger,
    client_rows,
    client_story,
    overview,
)
from pisces.types import MOST_CLIENTS

COLOURS: tuple[Colouring, ...] = get_args(Colouring)
CLIENT_ORDERS = tuple(field.name for field in fields(ClientRow) if field.name != "terms")


# --- one run --------------------------------------------------------------------------------------


def glance(index: Index, asked: Asked) -> Answer:
    """One run at a glance, and how far its log was read."""
    watched, ledger = run_asked(index, asked)
    seen = overview(ledger)
    minutes = None if seen.silent_s is None else int(seen.silent_s // 60)
    state = f"{seen.state}.{minutes}.{ledger.share_read:.3f}"

    def make() -> dict[str, Any]:
        problem = seen.problem or watched.log_problem
        return {
            **asdict(seen),
            "id": watched.place.id,
            "problem": None if problem is None else hidden(problem, index.root),
            "share_read": ledger.share_read,
            "is_whole": ledger.is_whole,
            "metric_names": list(ledger.metrics),
            "note": ledger.why_no_decisions,
        }

    return Answer(f"{revision_of(index, ledger)}.{state}", make)


def clients(index: Index, asked: Asked) -> Answer:
    """A page of the table of clients."""
    _, ledger = run_asked(index, asked)
    status, find = asked.one_of("status", STATUSES), asked.text("find")
    orders, are_all = (*CLIENT_ORDERS, *ledger.terms), is_told(ledger, ledger.terms)
    order = asked.choice("order", orders, "client", are_all=are_all)
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", PAGE, 1, MAX_PAGE)
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
    number = asked.whole("client", None, 0, MOST_CLIENTS)
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", PAGE, 1, MAX_PAGE)
    first_task = asked.whole("first_task", 0, 0, ANY)
    fate, until = asked.one_of("fate", FATES), asked.number("until")

    def make() -> dict[str, Any]:
        found = client_story(
            ledger, number, first, num, fate=fate, until=until, first_task=first_task
        )
        return asdict(found)

    return Answer(revision_of(index, ledger), make)


def is_told(ledger: Ledger, found: Sequence[str]) -> bool:
    """Are these all there are? A log that is not read yet, or just begun, may have more to tell."""
    return ledger.is_whole and len(found) > 0


# --- figures --------------------------------------------------------------------------------------


def figure(index: Index, asked: Asked) -> Answer:
    """One figure of one run."""
    _, ledger = run_asked(index, asked)
    name = asked.choice("name", FIGURES, "curve")
    make = FIGURES[name](ledger, asked)
    return Answer(revision_of(index, ledger), lambda: drawn(make()))


def _curve(ledger: Ledger, asked: Asked) -> Callable[[], Figure]:
    known = ledger.metrics
    metric = asked.one_of("metric", known, are_all=is_told(ledger, known))
    return lambda: figures.curve(ledger, Goal.watched([ledger], metric))


def _timeline(ledger: Ledger, asked: Asked) -> Callable[[], Figure]:
    colour = asked.choice("colour", COLOURS, "staleness")
    since, until = asked.number("from"), asked.number("until")
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", 40, 1, MAX_PAGE)
    return lambda: figures.timeline(
        ledger,
        colour=colour,
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
ANSWERS: dict[str, Answerer] = {
    "runs": runs,
    "names": names,
    "overview": glance,
    "clients": clients,
    "client": client,
    "figure": figure,
    "compare": comparison,
}
