"""What policies may see: the clients, the running tasks and the buffer, all read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisces.clients.table import Changes, Columns, Members
from pisces.types import Evaluated, Task, Update


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The running tasks, column by column, in the order they were started."""

    task_ids: NDArray[np.int64]
    clients: NDArray[np.int64]
    versions: NDArray[np.int64]
    started_at: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task_ids)


class RunningColumns:
    """The columns of the running tasks, kept as tasks start and end instead of built anew."""

    def __init__(self) -> None:
        self._task_ids: list[int] = []
        self._ids = np.empty((3, 16), np.int64)  # of task, client and version
        self._started_at = np.empty(16)
        self._seen: Running | None = None

    def add(self, task: Task, started_at: float) -> None:
        """A task was started."""
        num = len(self._task_ids)
        if num == len(self._started_at):
            self._ids = np.concatenate([self._ids, self._ids], axis=1)
            self._started_at = np.concatenate([self._started_at, self._started_at])
        self._ids[:, num] = task.id, task.client, task.version
        self._started_at[num] = started_at
        self._task_ids.append(task.id)
        self._seen = None

    def remove(self, task_id: int) -> None:
        """A task ended: those behind it move up."""
        place = self._task_ids.index(task_id)
        del self._task_ids[place]
        num = len(self._task_ids)
        self._ids[:, place:num] = self._ids[:, place + 1 : num + 1]
        self._started_at[place:num] = self._started_at[place + 1 : num + 1]
        self._seen = None

    def seen(self) -> Running:
        """As they are now: copies, which nobody can write to and nothing changes later."""
        if self._seen is None:
            num = len(self._task_ids)
            ids, started_at = self._ids[:, :num].copy(), self._started_at[:num].copy()
            ids.flags.writeable = started_at.flags.writeable = False
            self._seen = Running(ids[0], ids[1], ids[2], started_at)
        return self._seen


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
        return np.flatnonzero(self.is_selectable)
