"""Who comes and goes next: a million clients in a heap would be slow to plan."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pisces.execute.timetable import Stretch, Timetable

_NOTHING = Stretch(np.empty(0), np.empty(0, np.int64))


class Comings:
    """A timetable, taken instant by instant.

    At one instant the client with the lower id goes first.
    """

    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable
        self.num_stretches = 0  # planned so far
        self._take_up(_NOTHING)

    @property
    def are_all(self) -> bool:
        """Are these all sessions, or only everybody's first?"""
        return self._timetable.is_whole

    def take(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Who is next, all of that instant, and which of them come rather than go."""
        num = int(np.searchsorted(self._at, self.next_at, side="right"))
        places = self._places[:num]
        self._take_up(Stretch(self._at[num:], self._places[num:]))
        return places // 2, places % 2 == 0

    def left(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """What was planned and not taken yet, to be saved; what comes after it can be had again."""
        return self._at.copy(), self._places.copy()

    def restore(
        self, at: NDArray[np.float64], places: NDArray[np.int64], num_stretches: int
    ) -> None:
        """Take up what `left` handed over."""
        self.num_stretches = num_stretches
        self._take_up(Stretch(at, places))

    def _take_up(self, stretch: Stretch | None) -> None:
        while stretch is not None and not len(stretch.at):
            stretch = self._timetable.stretch(self.num_stretches)
            self.num_stretches += stretch is not None
        # not an empty slice at the end, which would keep a million in memory
        self._at, self._places = stretch or _NOTHING
        self.next_at = float(self._at[0]) if len(self._at) else math.inf  # infinity: nobody does
