"""Buffered aggregation as run in production: nobody is waited for too long.

Huba et al., "Papaya: Practical, Private, and Scalable Federated Learning", MLSys 2022. Its
asynchronous mode is FedBuff's (`fedbuff.py`): as many clients as are missing up to the concurrency
are asked for at once, and every `goal` updates make a version. A client has `timeout_s` to report
(the paper's 4 minutes, as we remember it), and one whose model has become too stale is aborted.

Differs from the paper:

* who is timed out or too stale is noticed when something happens, not at the very instant: while
  clients come and go that is soon. It is called off, and free to be started again;
* secure aggregation and the placement of tasks on servers are not part of a pace.
"""

from __future__ import annotations

from collections.abc import Sequence

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.pace.fedbuff import Buffered
from pisces.policy import Release


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

    def release(self, view: View) -> Sequence[Release]:
        """Whoever runs for too long, or from too old a version."""
        running = view.running
        reasons: dict[int, str] = {}
        if self._timeout_s is not None:
            late = view.now - running.started_at >= self._timeout_s
            reason = f"no report within {self._timeout_s:g} s"
            reasons |= dict.fromkeys(running.task_ids[late].tolist(), reason)
        if self._max_staleness is not None:
            stale = view.version - running.versions > self._max_staleness
            reason = f"more than {self._max_staleness} versions behind"
            reasons |= dict.fromkeys(running.task_ids[stale].tolist(), reason)
        return [Release(task_id, reason) for task_id, reason in reasons.items()]
