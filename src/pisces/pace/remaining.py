"""The pace of what remains: each running client may see b more versions, spread over its time left.

A client that started from version v may see b versions until it arrives. Those it has not seen yet
are spread evenly over the time it still needs:

    interval = max over running clients of  remaining_i / (b - (version - v_i))

Why no update is staler than b where latencies are known: a version is made after remaining / left
or later, so the next quotient, (remaining - interval) / (left - 1), is no larger; when one version
is left, the interval is all the time that remains. The pace of the paper (`pisces.py` beside this)
asks for latency / b all along, as if every client started now, and so makes fewer versions.

A client nobody has heard from, or one that should be back by now, is thought to need as long again
as it has been running (a guess that suits few slow clients among many fast ones, and that no unit
of time has to be told). Then a new client hardly slows anybody down at first, and the longer it
stays away, the more: of b versions b / 2 are left at some time t, b / 4 at 2 t, b / 8 at 4 t.
Whoever takes so long that all b are used up is waited for no longer: the interval is then what it
has been running over b, as in the mode `elapsed`, and its update staler than b.
"""

from __future__ import annotations

import numpy as np

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.pace.pisces import ROUNDING
from pisces.policy import Pacer


class Remaining(Pacer):
    """Spaces aggregations so that every running client stays within `bound` versions (b)."""

    def __init__(self, concurrency: int, bound: int) -> None:
        if bound < 1:
            raise ConfigError(f"staleness_bound: must be at least 1, not {bound}")
        self._concurrency = concurrency
        self._bound = bound

    def slots(self, view: View) -> int:
        """Whatever is free."""
        return self._concurrency - len(view.running)

    def ready(self, view: View) -> bool:
        """Is the interval over?"""
        return view.now >= self.due_at(view)

    def next_check(self, view: View) -> float:
        """The end of the interval, unless something happens before."""
        return self.due_at(view)

    def due_at(self, view: View) -> float:
        """When the interval ends if the same clients keep running."""
        last, running = view.last_aggregated_at, view.running
        if not len(running):
            return last
        left = self._bound - (view.version - running.versions)
        expected_at = running.started_at + view.clients.latency_s[running.clients]
        foreseen = expected_at > last  # not so where a latency is not known: NaN
        # Rounding must not let a version slip in before a client that may see none.
        expected_at = np.where(left < 1, expected_at * (1 + ROUNDING), expected_at)
        run_so_far = np.maximum(last - running.started_at, 0.0)
        remaining = np.where(foreseen, expected_at - last, run_so_far)
        spread_over = np.where(left >= 1, left, np.where(foreseen, 1, self._bound))
        return last + float((remaining / spread_over).max())
