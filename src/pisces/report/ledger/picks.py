"""The decision log: what scores clients had when some of them were picked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pisces.record.lines import Line
from pisces.report.ledger import tables as t

if TYPE_CHECKING:
    from pisces.report.ledger.notes import Notes

SCORE = "score"


class Picks:
    """Decisions and scores."""

    def __init__(self) -> None:
        self.decisions, self.scores, self.values = t.Decisions(), t.Scores(), t.Values()
        self.terms: list[tuple[str, ...]] = []  # each set of names that scores had
        self._row_of_terms: dict[tuple[str, ...], int] = {}

    @property
    def num_bytes(self) -> int:
        """What the columns take in memory."""
        return sum(table.num_bytes for table in (self.decisions, self.scores, self.values))

    @property
    def names(self) -> tuple[str, ...]:
        """Every term there is, once."""
        return tuple(dict.fromkeys(name for names in self.terms for name in names))

    def take(self, line: Line, at: float, notes: Notes) -> None:
        """Take in a sound line `picked`."""
        decisions, clients = self.decisions, line["clients"]
        row, terms = decisions.add(), self._terms_row(line.get("terms"))
        decisions.line[row] = notes.num_lines
        decisions.at[row] = at
        decisions.version[row] = line.get("version", -1)
        decisions.slots[row] = line.get("slots", -1)
        decisions.num_free[row] = line.get("num_free", -1)
        decisions.num_picked[row] = len(clients)
        decisions.terms[row] = terms
        width = len(self.terms[terms]) if terms >= 0 else 0
        found = self._note(row, notes, clients, line.get("scores"), width, is_picked=True)
        decisions.num_unscored[row] = len(clients) - len(found)
        decisions.lowest[row] = min(found, default=math.nan)
        if "others" in line:
            others = line["others"], line.get("other_scores")
            self._note(row, notes, *others, width, is_picked=False)

    def _terms_row(self, names: list[str] | None) -> int:
        if not names:
            return -1
        found = tuple(names)
        row = self._row_of_terms.setdefault(found, len(self.terms))
        if row == len(self.terms):
            self.terms.append(found)
        return row

    def _note(
        self,
        decision: int,
        notes: Notes,
        clients: Sequence[int],
        scores: Sequence[Sequence[float | None]] | None,
        width: int,
        *,
        is_picked: bool,
    ) -> list[float]:
        """A row for each client, with its terms where there are as many as names; known scores."""
        table, values, known = self.scores, self.values, []
        first = table.add(len(clients))
        if scores is None or len(scores) != len(clients) or not width:
            scores = [()] * len(clients)
        scored, row_of = notes.clients, notes.client_row
        for row, (client, terms) in enumerate(zip(clients, scores, strict=True), start=first):
            table.client[row] = place = row_of(client)
            table.decision[row] = decision
            if is_picked:
                table.is_picked[row] = True
            scored.scored[place] = row
            if len(terms) != width or not width:
                continue
            table.first[row] = cell = values.add(width)
            for value in terms:
                if value is not None:
                    values.value[cell] = value
                cell += 1
            if terms[-1] is not None:
                known.append(terms[-1])
        return known

    def term_of(self, rows: NDArray[np.signedinteger[Any]], name: str) -> NDArray[np.float64]:
        """A term in these rows of `scores` (-1: none), NaN where it is not known."""
        found = np.full(len(rows), np.nan)
        known = np.flatnonzero(rows >= 0)
        firsts = self.scores["first"][rows[known]]
        sets = self.decisions["terms"][self.scores["decision"][rows[known]]]
        # The last stands for a decision without terms, whose place is -1.
        places = np.array([n.index(name) if name in n else -1 for n in (*self.terms, ())])[sets]
        here = (places >= 0) & (firsts >= 0)
        found[known[here]] = self.values["value"][firsts[here] + places[here]]
        return found

    def terms_of(self, row: int) -> dict[str, float | None]:
        """All terms in one row of `scores`."""
        first = -1 if row < 0 else int(self.scores["first"][row])
        if first < 0:
            return {}
        names = self.terms[self.decisions["terms"][self.scores["decision"][row]]]
        values = self.values["value"][first : first + len(names)].tolist()
        return {n: None if math.isnan(v) else v for n, v in zip(names, values, strict=True)}
