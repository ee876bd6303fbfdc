"""The executor's contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pisces.types import Event, Stateful, Task


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an executor can do beyond the minimum."""

    real_time: bool = False  # time passes by itself: nothing may block the loop
    cancels: bool = False  # a running task can be called off
    pulls: bool = False  # a running task can be asked for what there is
    num_clients: int | None = None  # how many there will ever be, where that is known


class Executor(Stateful, Protocol):
    """Runs tasks and owns time. Every task ends exactly once: `Arrived`, `Failed` or `Left`."""

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def quiet(self) -> bool:
        """Nothing is due and nobody is to come: waiting would bring no event, ever."""
        ...

    def submit(self, task: Task) -> None:
        """Start `task` on its client, which must be present and not running."""
        ...

    def wait(self, until: float) -> list[Event]:
        """All events of the next instant, or none once it is `until`."""
        ...

    def cancel(self, task_id: int) -> None:
        """Call a running task off: no event of it will come, its client is free at once."""
        ...

    def pull(self, task_id: int) -> None:
        """Ask for what there is: the task ends at once, with the steps done by now.

        Its `Arrived` comes with the next `wait`, at this instant. Nothing happens where less than
        one step is done, or where nobody can be asked: it ended, or its client fell silent.
        """
        return

    @property
    def interruptible(self) -> bool:
        """Asked in the middle of a `wait`: can it be broken off just now, as if it never began?"""
        return True

    def close(self) -> None:
        """Give back whatever is held."""
        return
