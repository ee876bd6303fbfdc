"""The running tasks in columns: what policies see, and what the manager keeps up to date."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisces.types import Task

FEW = 4  # so many that ended are cut out one by one, which is quicker than to look at all


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


class Look:
    """The running tasks of one instant, their columns not made before somebody asks."""

    def __init__(self, columns: RunningColumns) -> None:
        self._columns = columns
        self._seen: Running | None = None

    def __call__(self) -> Running:
        """As they were then."""
        if self._seen is None:
            self._seen = self._columns.seen()
        return self._seen


def _nobody() -> None:
    """Nobody looks."""


class RunningColumns:
    """The columns of the running tasks, kept as tasks start and end instead of built anew.

    Who ended is taken out when somebody looks: of ten thousand that run, thousands may end between
    two looks. No task id is used twice.
    """

    def __init__(self) -> None:
        self._num = 0  # rows in use, also of those that ended since somebody looked
        # Rows: task ids, clients, versions, steps. One array, as whatever happens moves all four.
        self._numbers = np.empty((4, 16), np.int64)
        self._started_at = np.empty(16)
        self._ended: list[int] = []
        self._seen: Running | None = None
        self._look: Callable[[], Look | None] = _nobody

    def add(self, task: Task, started_at: float) -> None:
        """A task was started."""
        self._change()
        if self._num == len(self._started_at):
            self._make_room()
        max_steps = -1 if task.plan.max_steps is None else task.plan.max_steps
        self._numbers[:, self._num] = task.id, task.client, task.version, max_steps
        self._started_at[self._num] = started_at
        self._num += 1

    def remove(self, task_id: int) -> None:
        """A task ended."""
        self._change()
        self._ended.append(task_id)

    def look(self) -> Look:
        """To be asked for them as they are now, whenever that is."""
        look = self._look()
        if look is None:
            look = Look(self)
            self._look = weakref.ref(look)
        return look

    def seen(self) -> Running:
        """As they are now: copies, which nobody can write to and nothing changes later."""
        if self._seen is None:
            self._cut_out_ended()
            num = self._num
            numbers, started_at = self._numbers[:, :num].copy(), self._started_at[:num].copy()
            numbers.flags.writeable = started_at.flags.writeable = False
            task_ids, clients, versions, max_steps = numbers
            self._seen = Running(task_ids, clients, versions, started_at, max_steps)
        return self._seen

    def _change(self) -> None:
        """Something will: whoever could still look at this instant has it put aside."""
        if (look := self._look()) is not None:
            look()
        self._seen, self._look = None, _nobody

    def _make_room(self) -> None:
        self._cut_out_ended()
        if 2 * self._num > len(self._started_at):
            self._numbers = np.concatenate([self._numbers, self._numbers], axis=1)
            self._started_at = np.concatenate([self._started_at, self._started_at])

    def _cut_out_ended(self) -> None:
        """Those behind them move up."""
        if len(self._ended) > FEW:
            stay = ~np.isin(self._numbers[0, : self._num], self._ended)
            num = int(np.count_nonzero(stay))
            self._numbers[:, :num] = self._numbers[:, : self._num][:, stay]
            self._started_at[:num] = self._started_at[: self._num][stay]
            self._num = num
        else:
            for task_id in self._ended:
                self._cut_out(task_id)
        self._ended = []

    def _cut_out(self, task_id: int) -> None:
        place, self._num = int((self._numbers[0, : self._num] == task_id).argmax()), self._num - 1
        self._numbers[:, place : self._num] = self._numbers[:, place + 1 : self._num + 1]
        self._started_at[place : self._num] = self._started_at[place + 1 : self._num + 1]
