"""Versions an interval apart, so that no client falls more than b behind: what such paces share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Pacer

ROUNDING = 1e-11  # relative; far more than errors add up to, far less than matters


class Spaced(Pacer):
    """Aggregates when the interval after the last time is over; `bound` is b."""

    def __init__(self, concurrency: int, bound: int) -> None:
        if bound < 1:
            raise ConfigError(f"staleness_bound: must be at least 1, not {bound}")
        self._concurrency = concurrency
        self._bound = bound

    @abstractmethod
    def due_at(self, view: View) -> float:
        """When the interval ends if the same clients keep running."""

    def slots(self, view: View) -> int:
        """Whatever is free."""
        return self._concurrency - len(view.running)

    def ready(self, view: View) -> bool:
        """Is the interval over?"""
        return view.now >= self.due_at(view)

    def terms(self, view: View) -> Mapping[str, float]:
        """How long versions are apart at least, and b."""
        return {"limit_s": self.due_at(view) - view.last_aggregated_at, "bound": self._bound}

    def next_check(self, view: View) -> float:
        """The end of the interval, unless something happens before."""
        return self.due_at(view)
