"""What the page is told of all runs: a page of their list, and their names."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from pisces.dashboard.answer import Answer, digest
from pisces.dashboard.asking import Asked
from pisces.dashboard.index import Index, Watched
from pisces.report.ledger import STATES, State

PAGE, MAX_PAGE = 50, 200  # rows at once, where nobody says and at most
ANY = 10**9


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list; but for its place, None is what was not read yet, or is not known."""

    id: str
    changed_at: float
    share_read: float
    problem: str | None
    name: str | None = None
    protocol: str | None = None
    seed: int | None = None
    state: State | None = None
    reason: str | None = None
    clock: str | None = None
    at: float | None = None
    version: int | None = None
    metric: str | None = None
    value: float | None = None
    best: float | None = None
    target: float | None = None
    time_to_target_s: float | None = None
    num_clients: int | None = None
    num_updates: int | None = None
    share_done: float | None = None
    left_s: float | None = None
    may_end_early: bool | None = None

    @classmethod
    def of(cls, watched: Watched) -> RunRow:
        """What there is to say of it."""
        place, seen = watched.place, watched.seen
        names = WHOSE if seen is not None and seen.state == "sampled" else SEEN
        told = {} if seen is None else {name: getattr(seen, name) for name in names}
        return cls(place.id, place.changed_at, watched.share_read, watched.problem, **told)

    def fits(self, find: str, state: State | None) -> bool:
        """Is it one of those looked for?"""
        words = f"{self.id} {self.name or ''}".casefold()
        return find in words and state in (None, self.state)


OWN = ("id", "changed_at", "share_read", "problem")
SEEN = tuple(field.name for field in fields(RunRow) if field.name not in OWN)
WHOSE = ("name", "protocol", "seed", "state")  # all that is told where nothing can be counted
ORDERS = ("changed_at", "id", *SEEN)


def runs(index: Index, asked: Asked) -> Answer:
    """A page of the list of runs."""
    order, state = asked.choice("order", ORDERS, "changed_at"), asked.one_of("state", STATES)
    is_descending, find = asked.flag("descending"), asked.text("find").casefold()
    first, num = asked.whole("first", 0, 0, ANY), asked.whole("num", PAGE, 1, MAX_PAGE)

    def make() -> dict[str, Any]:
        rows = [RunRow.of(watched) for watched in index.runs()]
        fitting = ordered([row for row in rows if row.fits(find, state)], order, is_descending)
        return {
            "folder": index.root.name or str(index.root),
            "has_looked": index.has_looked,
            "is_cut": index.is_cut,
            "total": len(rows),
            "found": len(fitting),
            "first": first,
            "states": {name: sum(row.state == name for row in rows) for name in STATES},
            "rows": [asdict(row) for row in fitting[first : first + num]],
        }

    return Answer(index.revision, make)


def ordered(rows: list[RunRow], order: str, is_descending: bool) -> list[RunRow]:
    """Sorted; those of which it is not known come last, whichever way the others go."""
    rows = sorted(rows, key=lambda row: row.id)  # what is equal stays where it was
    known = [row for row in rows if getattr(row, order) is not None]
    known.sort(key=lambda row: getattr(row, order), reverse=is_descending)
    return known + [row for row in rows if getattr(row, order) is None]


def names(index: Index, _: Asked) -> Answer:
    """All runs by name, for who wants to add one to others."""
    found = sorted(watched.place.id for watched in index.runs())
    told = {"folder": index.root.name or str(index.root), "runs": found}
    return Answer(f"{index.epoch}.{digest(found)}", lambda: told)
