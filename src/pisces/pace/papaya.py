"""Buffered aggregation as run in production: nobody is waited for too long.

Huba et al., "Papaya: Practical, Private, and Scalable Federated Learning", MLSys 2022. Its
asynchronous mode is FedBuff's (`fedbuff.py`): as many clients as are missing up to the concurrency
are asked for at once, and every `goal` updates make a version. A client has `timeout_s` to report
(the paper's 4 minutes, as we remember it), and one whose model has become too stale is aborted.

Differs from the paper:

* whoever is timed out is called off at that instant (with a tick: at the next), and free to be
  started again. An update that was under way for longer is not used, should one arrive;
* secure aggregation and the placement of tasks on servers are not part of a pace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.pace.fedbuff import Buffered
from pisces.policy import Release
from pisces.types import Update

ROUNDING = 1e-11  # relative: whoever takes exactly as long as it may is in time


class Papaya(Buffered):
    """Keeps `concurrency` clients busy and aggregates every `goal` updates.

    Tasks older than `timeout_s` or staler than `max_staleness` are called off; None: none are.
    """

    def __init__(
        self,
        concurrency: int,
        goal: int,
        timeout_s: float | None = 240.0,
        max_staleness: int | None = None,
    ) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(f"timeout_s: must be greater than 0, not {timeout_s}")
        super().__init__(concurrency, goal, max_staleness=max_staleness)
        self._timeout_s = timeout_s

    def accepts(self, view: View, update: Update) -> bool:
        """Is it fresh enough, and in time?"""
        most_s = math.inf if self._timeout_s is None else self._timeout_s
        slack_s = ROUNDING * (1 + update.arrived_at)
        return update.latency_s <= most_s + slack_s and super().accepts(view, update)

    def release(self, view: View) -> Sequence[Release]:
        """Whoever runs for too long, or from too old a version."""
        running = view.running
        reasons: dict[int, str] = {}
        if self._timeout_s is not None:
            late = view.now >= self._times_out_at(view)
            reason = f"no report within {self._timeout_s:g} s"
            reasons |= dict.fromkeys(running.task_ids[late].tolist(), reason)
        if self._max_staleness is not None:
            stale = view.version - running.versions > self._max_staleness
            reason = f"more than {self._max_staleness} versions behind"
            reasons |= dict.fromkeys(running.task_ids[stale].tolist(), reason)
        return [Release(task_id, reason) for task_id, reason in reasons.items()]

    def next_release(self, view: View) -> float:
        """When the next of those in time runs out of it."""
        times_out_at = self._times_out_at(view)
        return float(times_out_at[times_out_at > view.now].min(initial=math.inf))

    def _times_out_at(self, view: View) -> NDArray[np.float64]:
        most_s = math.inf if self._timeout_s is None else self._timeout_s
        return np.asarray(view.running.started_at + most_s)
