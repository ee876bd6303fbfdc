"""Uniform selection: any client is as likely as any other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.clients.view import View
from pisces.policy import Assignment, Selector
from pisces.select.top import choose


class Uniform(Selector):
    """Any client is as likely as any other.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017, Algorithm 1 (the random set S_t). Also FedBuff's and FedAsync's selection.

    Differs from the paper:

    * it chooses among the clients that are free now, as an asynchronous server must.
    """

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Draw without replacement."""
        num = max(0, min(slots, len(view.free)))
        clients = view.free.nth(choose(num, len(view.free), rng))
        return [Assignment(client) for client in clients.tolist()]
