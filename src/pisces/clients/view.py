"""What policies may see: the clients, the running tasks and the buffer, all read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisces.clients.running import Running
from pisces.clients.table import Changes, Columns, Members
from pisces.types import Evaluated, Update


@dataclass(frozen=True, eq=False)
class View:
    """One instant as the server knows it.

    `clients` are columns indexed by client id; `changes` tells whose rows changed since one looked
    last. `free` are the clients that may be started: there, trusted, not running, and no update
    waiting; `unseen` those of them nobody has heard from yet. `history` holds the evaluations
    finished so far.
    """

    now: float
    version: int
    last_aggregated_at: float
    clients: Columns
    free: Members
    unseen: Members
    changes: Changes
    running: Running
    buffer: Sequence[Update]
    history: Sequence[Evaluated] = ()

    @property
    def is_selectable(self) -> NDArray[np.bool_]:
        """Which clients may be started."""
        return self.free.mask

    @cached_property
    def selectable(self) -> NDArray[np.int64]:
        """The clients that may be started, ascending; `free` is quicker where there are many."""
        clients = np.flatnonzero(self.is_selectable)
        clients.flags.writeable = False  # all who look at this instant share it
        return clients
