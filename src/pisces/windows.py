"""Time in windows: with a tick the loop decides where one ends, live or over a recorded log."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Windows:
    """Windows of `tick_s` seconds; without a tick every turn is one of its own."""

    tick_s: float
    num: int = 0  # that have begun

    @property
    def next_at(self) -> float:
        """When the next one begins."""
        return self.num * self.tick_s

    def begin(self, now: float) -> None:
        """Begin one, and leave out those that were slept through by a slow step."""
        self.num += 1
        if self.tick_s:
            self.num = max(self.num, math.floor(now / self.tick_s) + 1)

    def skip(self, until: float) -> None:
        """Leave out those that begin before this."""
        first = math.floor(until / self.tick_s)
        first += first * self.tick_s < until
        self.num = max(self.num, first)
