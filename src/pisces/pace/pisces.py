"""Adaptive pace: aggregate once (slowest running client's latency) / b has passed.

Jiang et al., "Pisces: Efficient Federated Learning via Guided Asynchronous Training", SoCC 2022,
section 5.2, Algorithm 1. With exact latencies no update is staler than b (Theorem 1, whose last
line should read m <= b). Real latencies vary, so there are three modes:

* `paper` believes each client's last latency;
* `elapsed` also counts the time a client has been running already, if that is longer;
* `strict` is `elapsed` and never makes a version while a running client is b versions behind, so
  the bound always holds; a client that falls silent would stop it for ever, hence it needs a client
  deadline.

Differs from the paper:

* elapsed >= interval instead of >: an event-driven loop wakes at the very instant;
* a client not seen yet counts with a named guess (`unseen_latency_s`), or as slow as the slowest
  seen so far. The authors' code uses 180 s, the true maximum of all their experiments, which is
  also the default of `pisces-paper` and `pisces-artifact`: set it to what is slow among yours;
* nothing is aggregated while nothing is in the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.pace.spaced import ROUNDING, Spaced
from pisces.words import Mode


class Adaptive(Spaced):
    """Spaces aggregations so that the slowest running client stays within `bound` versions (b).

    An `unseen_latency_s` of 0, as none, is as slow as the slowest seen.
    """

    def __init__(
        self,
        concurrency: int,
        bound: int,
        *,
        mode: Mode = "paper",
        unseen_latency_s: float | None = None,
    ) -> None:
        super().__init__(concurrency, bound)
        self._mode = mode
        self._unseen_latency_s = unseen_latency_s or None

    @property
    def needs_deadline(self) -> bool:
        """`strict` waits for the slowest, so the slowest must be bound to end.

        So does `elapsed` with b = 1: nothing is made while somebody runs from an older version.
        """
        return self._mode == "strict" or (self._mode == "elapsed" and self._bound == 1)

    def due_at(self, view: View) -> float:
        """When the interval ends if the same clients keep running."""
        if not len(view.running):
            return view.last_aggregated_at
        if self._mode == "strict" and self._would_break_the_bound(view):
            return math.inf
        due_at = view.last_aggregated_at + self._slowest_s(view) / self._bound
        if self._would_break_the_bound(view):
            due_at = self._not_an_instant_too_soon(due_at, view)
        if self._mode == "paper":
            return due_at
        return max(due_at, self._due_by_time_running(view))

    def terms(self, view: View) -> Mapping[str, float]:
        """The longest latency of those running (L_max in the paper), and what comes of it."""
        slowest_s = self._slowest_s(view) if len(view.running) else math.nan
        return {"slowest_s": slowest_s, **super().terms(view)}

    def _would_break_the_bound(self, view: View) -> bool:
        # In the order they were started versions never decrease: the first is the oldest.
        return view.version - view.running.versions.item(0) >= self._bound

    def _not_an_instant_too_soon(self, due_at: float, view: View) -> float:
        """The same instant, or just after the arrival of a client b versions behind.

        On paper the interval never ends before that arrival. Where the two coincide, as latencies
        on a grid make them, rounding would let one version too many slip in between.
        """
        behind = view.version - view.running.versions >= self._bound
        expected_at = view.running.started_at + self._profiles(view)
        coincide = behind & (np.abs(expected_at - due_at) <= ROUNDING * due_at)
        just_after = expected_at[coincide] * (1 + ROUNDING)
        return float(just_after.max(initial=due_at))

    def _due_by_time_running(self, view: View) -> float:
        """When elapsed >= (time the longest-running client has run) / b.

        now - last >= (now - started) / b  <=>  now >= (b last - started) / (b - 1).
        """
        last, started = view.last_aggregated_at, float(view.running.started_at.min())
        if self._bound == 1:
            return last if started >= last else math.inf
        return (self._bound * last - started) / (self._bound - 1)

    def _profiles(self, view: View) -> NDArray[np.float64]:
        """Latencies of the running clients, guessed where unseen."""
        latencies = view.clients.latency_s[view.running.clients]
        return np.where(np.isnan(latencies), self._guess(view), latencies)

    def _slowest_s(self, view: View) -> float:
        """The longest of the profiles, found without making them."""
        latencies = view.clients.latency_s[view.running.clients]
        slowest_s = float(latencies.max())
        if not math.isnan(slowest_s):
            return slowest_s
        return max(self._guess(view), float(np.fmax.reduce(latencies)))

    def _guess(self, view: View) -> float:
        if self._unseen_latency_s is not None:
            return self._unseen_latency_s
        return float(np.fmax.reduce(view.clients.latency_s, initial=0.0))
