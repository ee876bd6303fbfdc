"""The first session of every simulated client: a million in a heap would be slow to plan."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


class Comings:
    """Everybody's first coming and going in order of time, planned at once and taken in turn.

    At one instant the client with the lower id goes first.
    """

    def __init__(self, first_sessions: NDArray[np.float64]) -> None:
        at = first_sessions.reshape(-1)  # joins_at, leaves_at, joins_at ...
        planned = np.flatnonzero(at < math.inf)
        order = planned[np.argsort(at[planned], kind="stable")]
        self.restore(at[order], order)

    def take(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Who is next, all of that instant, and which of them come rather than go."""
        num = int(np.searchsorted(self._at, self.next_at, side="right"))
        places = self._places[:num]
        self.restore(self._at[num:], self._places[num:])
        if self.next_at == math.inf:  # an empty slice would keep a million in memory
            self.restore(*self.left())
        return places // 2, places % 2 == 0

    def left(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """What was not taken yet, to be saved."""
        return self._at.copy(), self._places.copy()

    def restore(self, at: NDArray[np.float64], places: NDArray[np.int64]) -> None:
        """Take up what `left` handed over."""
        self._at, self._places = at, places
        self.next_at = float(at[0]) if len(at) else math.inf  # infinity: everybody came and went
