"""The running tasks in columns: what policies see, and what the manager keeps up to date."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisces.types import Task


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The running tasks, column by column, in the order they were started."""

    task_ids: NDArray[np.int64]
    clients: NDArray[np.int64]
    versions: NDArray[np.int64]
    started_at: NDArray[np.float64]
    max_steps: NDArray[np.int64]  # of its plan; -1: no limit

    def __len__(self) -> int:
        return len(self.task_ids)


class RunningColumns:
    """The columns of the running tasks, kept as tasks start and end instead of built anew."""

    def __init__(self) -> None:
        self._task_ids: list[int] = []
        # Rows: task ids, clients, versions, steps. One array, as whatever happens moves all four.
        self._numbers = np.empty((4, 16), np.int64)
        self._started_at = np.empty(16)
        self._seen: Running | None = None

    def add(self, task: Task, started_at: float) -> None:
        """A task was started."""
        num = len(self._task_ids)
        if num == len(self._started_at):
            self._numbers = np.concatenate([self._numbers, self._numbers], axis=1)
            self._started_at = np.concatenate([self._started_at, self._started_at])
        max_steps = -1 if task.plan.max_steps is None else task.plan.max_steps
        self._numbers[:, num] = task.id, task.client, task.version, max_steps
        self._started_at[num] = started_at
        self._task_ids.append(task.id)
        self._seen = None

    def remove(self, task_id: int) -> None:
        """A task ended: those behind it move up."""
        place = self._task_ids.index(task_id)
        del self._task_ids[place]
        num = len(self._task_ids)
        self._numbers[:, place:num] = self._numbers[:, place + 1 : num + 1]
        self._started_at[place:num] = self._started_at[place + 1 : num + 1]
        self._seen = None

    def seen(self) -> Running:
        """As they are now: copies, which nobody can write to and nothing changes later."""
        if self._seen is None:
            num = len(self._task_ids)
            numbers, started_at = self._numbers[:, :num].copy(), self._started_at[:num].copy()
            numbers.flags.writeable = started_at.flags.writeable = False
            task_ids, clients, versions, max_steps = numbers
            self._seen = Running(task_ids, clients, versions, started_at, max_steps)
        return self._seen
