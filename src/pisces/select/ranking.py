"""Scores that last: the best of a million clients are found without looking at all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

import numpy as np

from pisces.clients.view import View
from pisces.select.top import Floats, Ids, nth_largest, top

BLOCK = 256  # clients whose best score is kept
_LEAST = float(np.finfo(np.float64).min)  # lower than any score but that of whoever is not there


class Ranking:
    """The free clients that have been heard from, by score; the others stand at -inf.

    `score` looks at nothing but a client's own row, so a score lasts until that row changes.
    """

    def __init__(self, score: Callable[[View, Ids], Floats]) -> None:
        self._score = score
        self._followed: object = None
        self._mark = 0
        self._scores = np.empty((0, BLOCK))
        self._best = np.empty(0)  # of each block

    def follow(self, view: View) -> None:
        """Bring up to date the scores of whoever changed since the last time."""
        changed = view.changes.since(self._mark) if view.changes is self._followed else None
        self._followed, self._mark = view.changes, view.changes.mark
        self._make_room(view.clients.num_clients)
        if changed is None:
            self._update_all(view)
        else:
            self._update(view, set(changed))

    def has_unknown(self) -> bool:
        """Is anybody's score NaN?"""
        return bool(np.isnan(self._best.max(initial=-inf)))

    def top(self, num: int, rng: np.random.Generator) -> Ids:
        """Who has the `num` highest scores, chosen as `pisces.select.top.top` does."""
        floor = self._floor(num)
        blocks = (self._best >= floor).nonzero()[0]
        scores = self._scores[blocks]
        rows, places = (scores >= floor).nonzero()
        near: Ids = blocks[rows] * BLOCK + places
        return near if len(near) == 1 else near[top(scores[rows, places], num, rng)]

    def _floor(self, num: int) -> float:
        """A score which at least `num` clients reach: the num-th best of the blocks' best."""
        best = self._best
        if num > 1:  # blocks with nobody in them, all alike, would make the search slow
            best = best[best > -inf]
        return max(nth_largest(best, num), _LEAST) if num <= len(best) else _LEAST

    def _make_room(self, num_clients: int) -> None:
        num, needed = len(self._best), -(-num_clients // BLOCK)
        if needed > num:
            more = max(needed, 2 * num) - num
            self._scores = np.concatenate([self._scores, np.full((more, BLOCK), -inf)])
            self._best = np.concatenate([self._best, np.full(more, -inf)])

    def _update(self, view: View, changed: Iterable[int]) -> None:
        scores = self._scores.reshape(-1)
        known = [c for c in changed if c in view.free and c not in view.unseen]
        gone = [c for c in changed if scores.item(c) != -inf and c not in view.free]
        if known:
            scores[known] = self._score(view, np.array(known))
        if gone:
            scores[gone] = -inf
        for block in {client // BLOCK for client in (*known, *gone)}:
            self._best[block] = self._scores[block].max()

    def _update_all(self, view: View) -> None:
        known = np.flatnonzero(view.free.mask & ~view.unseen.mask)
        self._scores[:] = -inf
        self._scores.reshape(-1)[known] = self._score(view, known)
        self._best = self._scores.max(axis=1)
