"""What policies may see: the clients, the running tasks and the buffer, all read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.clients.running import Running
from pisces.clients.table import Changes, Columns, Members
from pisces.types import Evaluated, Plan, Update

Plans: TypeAlias = Callable[[int], Plan]


def one_plan(_version: int) -> Plan:
    """The same plan whatever the version."""
    return Plan()


@dataclass(frozen=True, eq=False)
class View:
    """One instant as the server knows it.

    `clients` are columns indexed by client id; `changes` tells whose rows changed since one looked
    last. `free` are the clients that may be started: there, trusted, not running, and no update
    waiting; `unseen` those of them nobody has heard from yet. `history` holds the evaluations
    finished so far. `plans` tells the local work of a task by the version it starts from.
    """

    now: float
    version: int
    last_aggregated_at: float
    clients: Columns
    free: Members
    unseen: Members
    changes: Changes
    look_at_running: Callable[[], Running]
    buffer: Sequence[Update]
    history: Sequence[Evaluated] = ()
    plans: Plans = one_plan

    @cached_property
    def running(self) -> Running:
        """The running tasks. Columns of them are made for whoever looks, and only then."""
        return self.look_at_running()

    @property
    def plan(self) -> Plan:
        """The local work of a task started now, unless a selector says otherwise."""
        return self.plans(self.version)

    @property
    def is_selectable(self) -> NDArray[np.bool_]:
        """Which clients may be started."""
        return self.free.mask

    @cached_property
    def expected_at(self) -> NDArray[np.float64]:
        """When the running tasks should arrive, at the pace of their clients' last ones.

        NaN where nobody has heard from a client yet; it may be an instant that has passed.
        """
        running = self.running
        as_before = self.clients.num_steps[running.clients]
        num_steps = np.where(running.max_steps < 0, as_before, running.max_steps)
        expected_at = running.started_at + num_steps * self.seconds_per_step(running.clients)
        expected_at.flags.writeable = False
        return expected_at

    def seconds_per_step(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """What a step of these clients took the last time, all told; NaN where nobody knows."""
        num_steps = self.clients.num_steps[clients]
        steps = np.where(num_steps > 0, num_steps, np.nan)
        return np.asarray(self.clients.latency_s[clients] / steps, np.float64)

    @cached_property
    def selectable(self) -> NDArray[np.int64]:
        """The clients that may be started, ascending; `free` is quicker where there are many."""
        clients = np.flatnonzero(self.is_selectable)
        clients.flags.writeable = False  # all who look at this instant share it
        return clients
