"""What an answer is, which run it is of, and when it is another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pisces.dashboard.asking import Asked
from pisces.dashboard.index import Index, Watched
from pisces.errors import PiscesError
from pisces.record.follower import Mark, mark_of
from pisces.record.writer import CLIENTS, MODEL, SUMMARY
from pisces.report.figures import Figure, bounded
from pisces.report.ledger import Ledger

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
    """Of the logs, and of what lies beside them: some of it is written after the last line."""
    return f"{index.epoch}.{digest(*((ledger.revision, *_beside(ledger)) for ledger in ledgers))}"


def _beside(ledger: Ledger) -> list[Mark | None]:
    return [mark_of(ledger.path / name) for name in (SUMMARY, MODEL, CLIENTS)]


def digest(*told: object) -> str:
    """Another one for other things; short, since it comes back with every question."""
    return blake2b(repr(told).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def drawn(figure: Figure) -> dict[str, Any]:
    """A figure as the page draws it."""
    figure = bounded(figure)
    return {
        "title": figure.title,
        "words": figure.words,
        "data": figure.data,
        "layout": figure.layout,
    }
