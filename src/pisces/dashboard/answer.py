"""What an answer is, which run it is of, and when it is another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pisces.dashboard.asking import Asked
from pisces.dashboard.index import Index, Watched
from pisces.errors import PiscesError
from pisces.report.figures import Figure, bounded
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import target_of

GONE = "no such run in the folder watched: it was removed or renamed, or is not there yet"


class NoSuchRun(Exception):  # noqa: N818
    """No run of that name was found in the folder watched."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`make` works it out; `revision` is another whenever it would come out differently."""

    revision: str
    make: Callable[[], Mapping[str, Any]]


def run_asked(index: Index, asked: Asked) -> tuple[Watched, Ledger]:
    """The one run that is asked about."""
    watched = run_named(index, asked.text("run"))
    return watched, index.ledger(watched)


def run_named(index: Index, name: str) -> Watched:
    """The run of that name; who asks for another, or one that is not to be read, is told."""
    watched = index.find(name)
    if watched is None:
        raise NoSuchRun
    if watched.place.problem is not None:
        raise PiscesError(watched.place.problem)
    return watched


def revision_of(index: Index, *ledgers: Ledger) -> str:
    """Of the logs, and of targets, which a summary may tell later than the last line."""
    told = (f"{ledger.revision}.{target_of(ledger)}" for ledger in ledgers)
    return ".".join([index.epoch, *told])


def drawn(figure: Figure) -> dict[str, Any]:
    """What the page needs of a figure; the columns behind it stay here."""
    figure = bounded(figure)
    return {
        "name": figure.name,
        "title": figure.title,
        "words": figure.words,
        "data": figure.data,
        "layout": figure.layout,
    }
