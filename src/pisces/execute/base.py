"""The executor's contract."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from pisces.errors import ConfigError
from pisces.types import Event, Stateful, Task


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an executor can do beyond the minimum."""

    real_time: bool = False  # time passes by itself: nothing may block the loop
    cancels: bool = False  # a running task can be called off
    pulls: bool = False  # a running task can be asked for what there is
    num_clients: int | None = None  # how many there will ever be, where that is known
    takes_over: bool = False  # what another process began can be brought to its end


@dataclass(frozen=True, slots=True, eq=False)
class Handover:
    """Where the process before this one was when it ended."""

    now: float
    running: tuple[tuple[Task, float], ...] = ()  # with the instant each was started
    present: tuple[int, ...] = ()  # clients that were there, as far as the server knew


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
        """Nothing is due and nobody is to come: waiting would bring no event, ever.

        It only looks; asked when all that was said is sent.
        """
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

    def send(self) -> None:
        """All that was said this turn may go out now; it must, at the latest, with the next `wait`.

        Called once a turn, when everything is decided, before `quiet` is asked.
        """
        return

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """All that `wait` handed out is taken care of: who waits to hear so may be told.

        Not yet those whose results are of these tasks: whoever stands between holds them back.
        """
        return

    def take_over(self, left: Handover) -> None:
        """Go on for a process that ended; called at most once, before anything else.

        Time goes on from `left.now`: while nobody served, none passed. Each running task ends as
        all do, once, by its deadline at the latest: its client may be at it, hold its result, or
        never have heard of it, and then has to be sent it. Each client that was present comes back
        (`Joined` need not say so), or is `Left` after a while; what is submitted for it meanwhile
        waits. Word of any other task is about one that ended: it may be acknowledged at once.
        """
        raise ConfigError(f"{type(self).__name__} cannot take over what another process began")

    def dismiss(self) -> None:
        """The run is over for good: nobody is needed any more.

        Not called where it was interrupted: it may go on, and clients with what they are at.
        """
        return

    @property
    def interruptible(self) -> bool:
        """Asked in the middle of a `wait`: can it be broken off just now, as if it never began?"""
        return True

    def close(self) -> None:
        """Give back whatever is held."""
        return
