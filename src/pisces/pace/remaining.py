"""The pace of what remains: what is left of the bound b, spread over the time a client has left.

A client that started from version v may be b versions behind when it arrives. The time it still
needs is cut into as many intervals as it has versions left, and one more that ends as it arrives:

    interval = max over running clients of  remaining_i / left_i,  left_i = b + 1 - (version - v_i)

Why no update is staler than b where its client's latency is known: when one interval is left, it is
all the time that remains, so the client, b behind, arrives before another version is made. Nor do
intervals grow towards the end: a version is made after remaining / left or later, so the next
quotient, (remaining - interval) / (left - 1), is no larger.

The pace of the paper (`pisces.py` beside this) asks for latency / b all along. Where latencies are
known, this one is never the slower: a client started x after a version asks for (x + latency) /
(b + 1), which is at most latency / b or over before it started, and for no more after that. Where a
version came late, because no update was there, the rest come sooner and make up for it.

A client nobody has heard from is thought to need as long again as it has been running (a guess that
suits few slow clients among many fast ones, and that no unit of time has to be told). Then a new
client hardly slows anybody down at first, and the longer it stays away, the more. Once it sets the
interval, each version multiplies the time it has been running by (left + 1) / left, so that
(left + 1) x time stays the same: with b / 2 left at some time t, about b / 4 are left at 2 t, b / 8
at 4 t and none at b t / 2. One that should be back by now is thought to need its usual latency once
more: it may have fallen silent, and is not worth slowing everybody down for long. Of these, whoever
has no interval left is waited for no more, and its update is staler than b.

Ours, after the pace of the paper (Jiang et al., SoCC 2022, section 5.2), from which it differs as
said; docs/decisions/009 has numbers.
"""

from __future__ import annotations

import numpy as np

from pisces.clients.view import View
from pisces.pace.spaced import ROUNDING, Spaced


class Remaining(Spaced):
    """Spaces aggregations so that every running client stays within `bound` versions (b)."""

    def due_at(self, view: View) -> float:
        """When the interval ends if the same clients keep running."""
        last, running = view.last_aggregated_at, view.running
        if not len(running):
            return last
        left = self._bound + 1 - (view.version - running.versions)  # of its intervals
        latency_s = view.clients.latency_s[running.clients]
        expected_at = running.started_at + latency_s
        foreseen = expected_at > last  # not so where a latency is not known: NaN
        # Rounding must not let a version slip in before a client that may see none.
        expected_at = np.where(left <= 1, expected_at * (1 + ROUNDING), expected_at)
        run_so_far = np.maximum(last - running.started_at, 0.0)
        again = np.where(np.isnan(latency_s), run_so_far, latency_s)
        remaining = np.where(foreseen, expected_at - last, again)
        waited_for = foreseen | (left >= 1)
        intervals = np.where(waited_for, remaining / np.maximum(left, 1), 0.0)
        return last + float(intervals.max())
