"""Why somebody was picked, and why a version was made then: what the log says of decisions.

It is little: a row of numbers for each client picked, and one for each free client that was not,
the first time after its facts have changed. So the log grows with updates, not with clients times
decisions, and the last row of a client is its score until it reports again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pisces.clients.view import View
from pisces.policy import Assignment, Pacer, Selector
from pisces.types import Entry, Picked, Scores, State, Stateful, Update

DIGITS = 6  # of a number that only explains


class Decisions(Stateful):
    """Asks policies for the terms of what they decide; not at all where it is not `wanted`."""

    def __init__(self, selector: Selector, pacer: Pacer, *, wanted: bool) -> None:
        self._selector, self._pacer, self._wanted = selector, pacer, wanted
        self._unscored: set[int] = set()  # have reported since they were last scored

    def heard(self, entry: Entry) -> None:
        """Note whose facts changed."""
        if self._wanted and isinstance(entry, Update):
            self._unscored.add(entry.client)

    def picked(self, view: View, slots: int, assignments: Sequence[Assignment]) -> list[Entry]:
        """Who was picked and why; nothing where nobody was."""
        if not (self._wanted and assignments):
            return []
        clients = [assignment.client for assignment in assignments]
        self._unscored.difference_update(clients)
        others = sorted(client for client in self._unscored if client in view.free)
        self._unscored.difference_update(others)
        terms = self._selector.terms(view, np.array([*clients, *others]))
        if not terms:
            others = []
        rows = _rows(terms.values())
        entry = Picked(
            at=view.now,
            version=view.version,
            slots=slots,
            num_free=len(view.free),
            clients=tuple(clients),
            terms=tuple(terms),
            scores=rows[: len(clients)],
            others=tuple(others),
            other_scores=rows[len(clients) :],
        )
        return [entry]

    def pace(self, view: View) -> Mapping[str, float] | None:
        """What the pacer goes by at this moment."""
        terms = self._pacer.terms(view) if self._wanted else {}
        return {name: _short(value) for name, value in terms.items()} or None

    def state(self) -> State:
        """Who is still to be scored."""
        return State({"unscored": sorted(self._unscored)})

    def restore(self, state: State) -> None:
        """Take it up."""
        self._unscored = set(state.values["unscored"])


def _rows(columns: Iterable[Iterable[float]]) -> Scores:
    """Columns as rows, in short."""
    return tuple(zip(*(map(_short, map(float, column)) for column in columns), strict=True))


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
