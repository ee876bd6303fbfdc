"""Aggregation by timeout: whoever has reported by then counts, the others count next time.

Imteaj and Amini, "FedAR: Activity and Resource-Aware Federated Learning Model for Distributed
Mobile Robots", ICMLA 2020. A reconstruction: the paper lets the server wait for a time it does not
say how to choose, and does not throw stragglers' updates away.

Differs from the paper:

* the timeout is a parameter, counted from the last aggregation, and cut short when nobody is left
  to wait for;
* when nobody made it by then, the first to arrive is aggregated at once;
* whoever is late keeps its seat, and seats are filled after an aggregation only;
* which robots are trusted is the selector's business.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Pacer, Trait, Traits


class Timed(Pacer):
    """Aggregates every `timeout_s`, or once nobody runs; then fills up to `concurrency`."""

    def __init__(self, concurrency: int, timeout_s: float) -> None:
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s: must be greater than 0, not {timeout_s}")
        self._concurrency = concurrency
        self._timeout_s = timeout_s

    @property
    def gives(self) -> Traits:
        """Rounds, up to the timeout; seats are filled after an aggregation only."""
        num = Trait.ONE_AT_A_TIME if self._concurrency == 1 else Trait.SEVERAL
        return frozenset({Trait.ROUNDS, Trait.GROUPS, num})

    @property
    def alike(self) -> Mapping[str, float]:
        """Whoever takes longer counts next time."""
        return {"timeout_s": self._timeout_s}

    def slots(self, view: View) -> int:
        """Every free seat, until the first is started from this version or something waits."""
        if view.buffer or bool(np.equal(view.running.versions, view.version).any()):
            return 0
        return self._concurrency - len(view.running)

    def ready(self, view: View) -> bool:
        """Is it time, or nobody left to wait for?"""
        return not len(view.running) or view.now >= self._ends_at(view)

    def terms(self, view: View) -> Mapping[str, float]:
        """The timeout."""
        return {"limit_s": self._timeout_s}

    def next_check(self, view: View) -> float:
        """The end of the timeout."""
        return self._ends_at(view)

    def _ends_at(self, view: View) -> float:
        return view.last_aggregated_at + self._timeout_s
