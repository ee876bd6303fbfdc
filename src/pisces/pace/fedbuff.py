"""Buffered aggregation: aggregate whenever K updates wait.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022,
Algorithm 1. The Pisces paper sets K to 20 % of the concurrency.

Differs from the paper:

* a client whose update waits in the buffer is not started again before it is aggregated;
* a buffer that nobody is left to fill is aggregated as it is (see `Coordinator`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pisces.clients.view import View
from pisces.policy import Pacer, Trait, Traits
from pisces.types import Update


class Buffered(Pacer):
    """Keeps `concurrency` clients busy and aggregates every `size` updates (K).

    An update staler than `max_staleness` on arrival is dropped; None keeps all.
    """

    def __init__(self, concurrency: int, size: int, *, max_staleness: int | None = None) -> None:
        self._concurrency = concurrency
        self._size = size
        self._max_staleness = max_staleness

    @property
    def min_clients(self) -> int:
        """With fewer clients the buffer could never fill: a waiting client is not started again."""
        return self._size

    @property
    def gives(self) -> Traits:
        """With a buffer of one, each update by itself."""
        return frozenset({Trait.ONE_AT_A_TIME if self._size == 1 else Trait.SEVERAL})

    def slots(self, view: View) -> int:
        """Whatever is free."""
        return self._concurrency - len(view.running)

    def ready(self, view: View) -> bool:
        """Is the buffer full?"""
        return len(view.buffer) >= self._size

    def terms(self, view: View) -> Mapping[str, float]:
        """How many updates wait, and how many make a version."""
        return {"buffered": len(view.buffer), "size": self._size}

    def accepts(self, view: View, update: Update) -> bool:
        """Is it fresh enough?"""
        return self._max_staleness is None or update.staleness(view.version) <= self._max_staleness
