"""The loop's side of every executor in real time, over whatever its clients are reached.

What clients say is put into an inbox by another thread and taken out by `wait`, all that is there
at once. What the loop says is posted to that thread. Each side has its own idea of which tasks run;
the loop's is the one that counts, so a result that crosses with its being called off is not handed
out.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch

from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.inbox import Broken, Inbox, Landed, Said
from pisces.execute.roster import Roster
from pisces.types import Arrived, Event, Failed, Joined, Layout, Left, Task, Weights

LATE_S = 1.0  # further behind than this, the loop does not catch up instant by instant
LONGEST_S = 1.0  # of one sleep: a signal that another thread took wakes nobody
clock = time.monotonic


class Desk(Protocol):
    """Where clients are served, in the other thread: what the loop says to them goes there."""

    def give(self, task: Task) -> None:
        """A task; if its client is away, it hears of it when it is back."""

    def call_off(self, task: int, reason: str) -> None:
        """Nobody waits for this task any more."""

    def pull(self, task: int) -> None:
        """Ask for what there is."""

    def settle(self, tasks: Iterable[int]) -> None:
        """These results are safe, or not wanted."""

    def expire(self, task: int, client: int, num_joins: int) -> None:
        """It took too long; its client is not there until it is heard of.

        Unless it came anew while the loop, having heard of so many joins, was saying so.
        """

    def take_over(self, given: Iterable[Task], present: Iterable[int]) -> None:
        """Go on for a server that ended."""


class Service(Protocol):
    """The other thread."""

    def start(self) -> None:
        """Let clients in."""

    def post(self, *actions: Callable[[], None]) -> None:
        """Do this there, soon."""

    def stop(self) -> None:
        """Let go."""


class RealTime(Executor):
    """Runs tasks on clients that are somewhere else; time is the machine's, once enough are there.

    Whoever inherits brings the service and its desk, which tell the inbox what they hear.
    """

    _service: Service
    _desk: Desk

    def __init__(self, layout: Layout, roster: Roster, at_least: int = 1) -> None:
        self._layout, self._roster, self._at_least = layout, roster, at_least
        self._inbox = Inbox(clock)
        self._present: set[int] = set()  # as the loop was told
        self._num_joins: Counter[int] = Counter()  # that it was told of, by client
        self._running: dict[int, Task] = {}
        self._due: list[tuple[float, int]] = []  # when a task's time is up
        self._handed_out: list[int] = []
        self._unsaid: list[Callable[[], None]] = []  # goes out with `send`
        self._began: float | None = None
        self._now = 0.0
        self._listens = self._is_open = self._is_over = False

    # --- the contract -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """When the last wait was over, in seconds since the run began."""
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        """What another process began is gone on with; who inherits may be able to do more."""
        return Capabilities(real_time=True, takes_over=True)

    @property
    def quiet(self) -> bool:
        """Never: somebody may always come."""
        return False

    @property
    def interruptible(self) -> bool:
        """While it only listens."""
        return self._listens

    def submit(self, task: Task) -> None:
        """Give the task to its client, or keep it for when that is back."""
        self._run(task, self._now)
        self._unsaid.append(partial(self._desk.give, task))

    def _run(self, task: Task, started_at: float) -> None:
        self._running[task.id] = task
        if task.deadline_s is not None:
            self._forget_due()
            heapq.heappush(self._due, (started_at + task.deadline_s, task.id))

    def cancel(self, task_id: int) -> None:
        """Tell its client to stop."""
        if self._running.pop(task_id, None) is not None:
            self._unsaid.append(partial(self._desk.call_off, task_id, "called off"))

    def pull(self, task_id: int) -> None:
        """Ask its client for what there is."""
        if task_id in self._running:
            self._unsaid.append(partial(self._desk.pull, task_id))

    def send(self) -> None:
        """Let it all go out."""
        if self._unsaid:
            words, self._unsaid = self._unsaid, []
            self._service.post(*words)

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """Tell clients that their results are safe."""
        safe = [task_id for task_id in self._handed_out if task_id not in but_not]
        if safe:
            self._handed_out = [task_id for task_id in self._handed_out if task_id in but_not]
            self._unsaid.append(partial(self._desk.settle, safe))

    def wait(self, until: float) -> list[Event]:
        """All that came in; at first, until there are clients enough."""
        self.open()
        self.send()
        if self._began is None:
            return self._begin()
        wake_at = min(until, self._next_due())
        self._listen(lambda: bool(self._inbox) or self._elapsed() >= wake_at, wake_at)
        return [*self._taken(wake_at), *self._expired()]

    def take_over(self, left: Handover) -> None:
        """Go on with those that were there, and what they were at."""
        self._now, self._began = left.now, clock() - left.now
        self._present.update(left.present)
        for task, started_at in left.running:
            self._run(task, started_at)
        given = [task for task, _ in left.running]
        self._service.post(partial(self._desk.take_over, given, left.present))
        self.open()

    def dismiss(self) -> None:
        """Send everybody home."""
        self._end(for_good=True)

    def close(self) -> None:
        """Tell everybody that needs to know, and let go."""
        self._end(for_good=False)
        self._service.stop()
        if self._is_open:  # else nobody was given a number: leave nothing behind
            self._roster.sync()

    def _end(self, *, for_good: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self.send()
            self._farewell(for_good)

    def _farewell(self, for_good: bool) -> None:
        """What clients are told at the end, if anything."""

    # --- time -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let clients in, unless they are: they may come before the first wait."""
        if not self._is_open:
            self._roster.sync()  # so that the folder is seen to be a served run's, whoever comes
            self._is_open = True
            self._service.start()

    def _begin(self) -> list[Event]:
        """The clock starts when there are clients enough."""
        self._listen(self._are_enough, float("inf"))
        self._began = clock()
        return self._taken(0.0)

    def _are_enough(self) -> bool:
        return self._inbox.num_present >= self._at_least or self._inbox.is_broken

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else clock() - self._began

    def _forget_due(self) -> None:
        """Those that ended before, now and then: a deadline may be days away."""
        if len(self._due) > 100 + 2 * len(self._running):
            self._due = [entry for entry in self._due if entry[1] in self._running]
            heapq.heapify(self._due)

    def _next_due(self) -> float:
        while self._due and self._due[0][1] not in self._running:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else float("inf")

    # --- hearing ----------------------------------------------------------------------------------

    def _listen(self, is_enough: Callable[[], bool], until: float) -> None:
        """Until it is enough; it can be broken off."""
        while not is_enough():
            left = until - self._elapsed()
            with self._listening():
                self._inbox.wait(min(max(left, 0.0), LONGEST_S))

    def _taken(self, until: float) -> list[Event]:
        """What came up to an instant, even if it is a little later by now: the loop decides as of
        then, and hears of the rest afterwards, as it would in virtual time.
        """
        began, elapsed = self._began or 0.0, self._elapsed()
        is_behind = elapsed - until >= LATE_S
        heard = self._inbox.take(began, math.inf if is_behind else until)
        if heard:
            first = math.nextafter(self._now, math.inf) if self._now else 0.0  # none comes twice
            self._now = max(first, *(at for at, _ in heard))
        else:
            self._now = max(self._now, elapsed if is_behind else until)
        self._roster.sync()  # before the loop hears of a new number
        return [event for _, said in heard for event in self._events(said)]

    @contextmanager
    def _listening(self) -> Iterator[None]:
        self._listens = True
        try:
            yield
        finally:
            self._listens = False

    def _events(self, said: Said) -> list[Event]:
        """What it means to the loop; nothing if it is about a task that ended here already."""
        match said:
            case Landed():
                return self._landed(said)
            case Joined():
                self._present.add(said.client)
                self._num_joins[said.client] += 1
                return [Joined(self._now, said.client, said.num_examples)]
            case Failed(task_id=int(task_id)):
                if self._running.pop(task_id, None) is None:
                    return []
                return [Failed(self._now, said.client, said.reason, task_id)]
            case Broken():
                raise said.error
            case Left() if said.client in self._present:
                return [self._left(said.client, said.reason)]
            case _:
                return []

    def _landed(self, said: Landed) -> list[Event]:
        task = self._running.pop(said.task, None)
        if task is None:
            self._unsaid.append(partial(self._desk.settle, [said.task]))
            return []
        self._handed_out.append(said.task)
        flat = torch.from_numpy(said.flat).to(task.weights.flat.device)
        weights = Weights(flat, self._layout)
        return [Arrived(self._now, said.task, said.client, weights, said.report)]

    def _left(self, client: int, reason: str) -> Left:
        """With it go its tasks: one, usually."""
        self._present.discard(client)
        tasks = [task.id for task in self._running.values() if task.client == client]
        for task_id in tasks:
            del self._running[task_id]
            self._unsaid.append(partial(self._desk.call_off, task_id, reason))
        return Left(self._now, client, reason, tasks[0] if tasks else None)

    def _expired(self) -> list[Event]:
        events: list[Event] = []
        while self._next_due() <= self._now:
            _, task_id = heapq.heappop(self._due)
            client = self._running[task_id].client
            num_joins = self._num_joins[client]
            self._unsaid.append(partial(self._desk.expire, task_id, client, num_joins))
            events.append(self._left(client, "deadline passed"))
        return events
