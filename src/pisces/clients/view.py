"""What policies may see: the clients, the running tasks and the buffer, all read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisces.clients.table import Columns
from pisces.types import Evaluated, Update


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The running tasks, column by column, in the order they were started."""

    task_ids: NDArray[np.int64]
    clients: NDArray[np.int64]
    versions: NDArray[np.int64]
    started_at: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task_ids)


@dataclass(frozen=True, eq=False)
class View:
    """One instant as the server knows it.

    `clients` are columns indexed by client id; `history` holds the evaluations finished so far.
    """

    now: float
    version: int
    last_aggregated_at: float
    clients: Columns
    running: Running
    buffer: Sequence[Update]
    history: Sequence[Evaluated] = ()

    @cached_property
    def is_selectable(self) -> NDArray[np.bool_]:
        """Which clients may be started: there, trusted, not running, and no update waiting."""
        c = self.clients
        return c.present & c.trusted & ~c.running & ~c.buffered

    @cached_property
    def selectable(self) -> NDArray[np.int64]:
        """The clients that may be started, ascending."""
        return np.flatnonzero(self.is_selectable)
