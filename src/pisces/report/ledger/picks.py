"""The decision log: what scores clients had when some of them were picked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pisces.record.lines import Line
from pisces.report.ledger import tables as t
from pisces.types import MOST_CLIENTS

if TYPE_CHECKING:
    from pisces.report.ledger.notes import Notes

SCORE = "score"


class Picks:
    """Decisions and scores; a line that says less than it might is taken for what it says."""

    def __init__(self) -> None:
        self.decisions, self.scores, self.values = t.Decisions(), t.Scores(), t.Values()
        self.terms: list[tuple[str, ...]] = []  # each set of names that scores had

    @property
    def num_bytes(self) -> int:
        """What the columns take in memory."""
        return sum(table.num_bytes for table in (self.decisions, self.scores, self.values))

    @property
    def names(self) -> tuple[str, ...]:
        """Every term there is, once."""
        return tuple(dict.fromkeys(name for names in self.terms for name in names))

    def take(self, line: Line, at: float, notes: Notes) -> None:
        """Take in a line `picked`."""
        decisions = self.decisions
        clients, others = _clients(line.get("clients")), _clients(line.get("others"))
        terms = self._terms_row(line.get("terms"))
        row = decisions.add()
        decisions.line[row] = notes.num_lines
        decisions.at[row] = at
        decisions.version[row] = _count(line.get("version"))
        decisions.slots[row] = _count(line.get("slots"))
        decisions.num_free[row] = _count(line.get("num_free"))
        decisions.num_picked[row] = len(clients)
        decisions.terms[row] = terms
        names = self.terms[terms] if terms >= 0 else ()
        lowest = math.inf
        for client, score in _paired(clients, line.get("scores")):
            value = self._note(row, notes, client, score, names, is_picked=True)
            decisions.num_unscored[row] += value is None
            lowest = lowest if value is None else min(lowest, value)
        decisions.lowest[row] = math.nan if lowest == math.inf else lowest
        for client, score in _paired(others, line.get("other_scores")):
            self._note(row, notes, client, score, names, is_picked=False)

    def _terms_row(self, names: Any) -> int:
        if type(names) is not list or not names or set(map(type, names)) != {str}:
            return -1
        found = tuple(names)
        if found not in self.terms:
            self.terms.append(found)
        return self.terms.index(found)

    def _note(
        self,
        decision: int,
        notes: Notes,
        client: int,
        score: Any,
        names: tuple[str, ...],
        *,
        is_picked: bool,
    ) -> float | None:
        """A client's terms, as far as they are numbers; the last of them is its score."""
        scores, values = self.scores, self.values
        row, client_row = scores.add(), notes.client_row(client)
        scores.decision[row] = decision
        scores.client[row] = client_row
        scores.is_picked[row] = is_picked
        notes.clients.scored[client_row] = row
        if not names or type(score) is not list or len(score) != len(names):
            return None
        scores.first[row] = len(values)
        for value in score:
            place, number = values.add(), _number(value)
            values.value[place] = number
        return None if math.isnan(number) else number

    def term_of(self, rows: NDArray[np.int32], name: str) -> NDArray[np.float64]:
        """A term in these rows of `scores` (-1: none), NaN where it is not known."""
        found = np.full(len(rows), np.nan)
        known = np.flatnonzero(rows >= 0)
        firsts = self.scores["first"][rows[known]]
        sets = self.decisions["terms"][self.scores["decision"][rows[known]]]
        for number, names in enumerate(self.terms):
            if name in names:
                here = (sets == number) & (firsts >= 0)
                found[known[here]] = self.values["value"][firsts[here] + names.index(name)]
        return found

    def terms_of(self, row: int) -> dict[str, float | None]:
        """All terms in one row of `scores`."""
        first = -1 if row < 0 else int(self.scores["first"][row])
        if first < 0:
            return {}
        names = self.terms[self.decisions["terms"][self.scores["decision"][row]]]
        values = self.values["value"][first : first + len(names)].tolist()
        return {n: None if math.isnan(v) else v for n, v in zip(names, values, strict=True)}


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


def _number(value: Any) -> float:
    """The number as a float; NaN where it is none."""
    try:
        return float(value) if type(value) in (int, float) else math.nan
    except OverflowError:  # a whole number beyond all floats
        return math.nan


def _clients(told: Any) -> list[int]:
    if type(told) is not list:
        return []
    return [c for c in told if type(c) is int and 0 <= c < MOST_CLIENTS]


def _paired(clients: Sequence[int], scores: Any) -> list[tuple[int, Any]]:
    """Each client with its scores, or None where there are not as many."""
    if type(scores) is not list or len(scores) != len(clients):
        return [(client, None) for client in clients]
    return list(zip(clients, scores, strict=True))
