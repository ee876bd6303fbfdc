"""Emulated latencies: real clients whose results count only when their emulated time has passed.

For testbeds in which all clients sit on a few equal machines, as the paper's did. A task ends as it
would in virtual time: with its result when its latency has passed or, where its deadline comes
first, with its client gone until then. Who really takes longer than that is as late as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from pisces.errors import ConfigError
from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.latency import Latency
from pisces.types import Arrived, Event, Failed, Joined, Left, Task


@dataclass(slots=True)
class _Running:
    """A task whose end the loop has not heard of, and its result once that is here."""

    client: int
    ends_at: float
    expires_at: float
    result: Arrived | None = None

    @property
    def due_at(self) -> float:
        """When the loop is to hear of it; what is not here yet is not held back."""
        return math.inf if self.result is None else min(self.ends_at, self.expires_at)


class Emulated(Executor):
    """Holds results of another executor back.

    A task's latency is drawn by its number, so that it is the same for whoever takes over. A client
    that is pulled hands in all it has done, which may be more than it would have by then.
    """

    def __init__(self, inner: Executor, latency: Latency) -> None:
        self._inner, self._latency = inner, latency
        self._running: dict[int, _Running] = {}
        self._there: dict[int, int] = {}  # whom the executor inside has, and their examples
        # client -> when it is there again, which was too late with this task
        self._back: dict[int, tuple[float, int]] = {}

    @property
    def now(self) -> float:
        """The time of the executor inside."""
        return self._inner.now

    @property
    def capabilities(self) -> Capabilities:
        """Those of the executor inside."""
        return self._inner.capabilities

    @property
    def quiet(self) -> bool:
        """Is nothing held back, and nothing to come?"""
        return self._next_at() == math.inf and self._inner.quiet

    @property
    def interruptible(self) -> bool:
        """Whenever the executor inside is: what it handed out is held, or handed on."""
        return self._inner.interruptible

    def submit(self, task: Task) -> None:
        """Draw how long it takes, and hand it on."""
        self._note(task, self.now)
        self._inner.submit(task)

    def cancel(self, task_id: int) -> None:
        """Call it off; a result that is held is let go."""
        task = self._running.pop(task_id, None)
        if task is None or task.result is None:
            self._inner.cancel(task_id)

    def pull(self, task_id: int) -> None:
        """What is held counts now; else its client is asked, and what it hands in counts then."""
        task = self._running.get(task_id)
        if task is None:
            return
        task.ends_at = self.now
        if task.result is None:
            self._inner.pull(task_id)

    def send(self) -> None:
        """Hand it on."""
        self._inner.send()

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """Hand it on, but for results that are held: nobody has heard of these."""
        held = [task_id for task_id, task in self._running.items() if task.result is not None]
        self._inner.acknowledge([*held, *but_not])

    def take_over(self, left: Handover) -> None:
        """Go on: latencies are what they were."""
        for task, started_at in left.running:
            self._note(task, started_at)
        self._inner.take_over(left)

    def dismiss(self) -> None:
        """Hand it on."""
        self._inner.dismiss()

    def close(self) -> None:
        """Close the executor inside; clients keep what is held here."""
        self._inner.close()

    def wait(self, until: float) -> list[Event]:
        """What comes through from inside, and what is due here."""
        while True:
            heard = self._inner.wait(min(until, self._next_at()))
            events = [said for event in heard for said in self._come_through(event)]
            due = self._next_at() <= self.now
            events += self._take_due()
            if events or not (heard or due):
                return events

    # --- what the executor inside says ------------------------------------------------------------

    def _note(self, task: Task, started_at: float) -> None:
        latency_s = self._latency.draw(task.client, task.id, task)
        if not 0 < latency_s < math.inf:
            raise ConfigError(f"a latency must be positive and finite, not {latency_s}")
        deadline_s = math.inf if task.deadline_s is None else task.deadline_s
        self._running[task.id] = _Running(
            task.client, started_at + latency_s, started_at + deadline_s
        )

    def _come_through(self, event: Event) -> list[Event]:
        match event:
            case Joined():
                return self._joined(event)
            case Left():
                return self._left(event)
            case Arrived():
                return self._arrived(event)
            case Failed(task_id=task_id) if task_id is not None:
                self._running.pop(task_id, None)
        return [event]

    def _joined(self, event: Joined) -> list[Event]:
        self._there[event.client] = event.num_examples
        return [] if event.client in self._back else [event]

    def _left(self, event: Left) -> list[Event]:
        """With it goes its task, also where it thinks that it is done."""
        self._there.pop(event.client, None)
        if event.client in self._back:
            return []  # the loop knows
        tasks = [i for i, task in self._running.items() if task.client == event.client]
        for task_id in tasks:
            task = self._running.pop(task_id)
            if task.expires_at <= self.now < task.ends_at:
                self._back[event.client] = (task.ends_at, task_id)
        return [replace(event, task_id=tasks[0]) if tasks else event]

    def _arrived(self, event: Arrived) -> list[Event]:
        task = self._running.get(event.task_id)
        if task is None or task.client != event.client:
            return [event]
        self._there.setdefault(event.client, event.report.num_examples)
        task.result = task.result or event
        return []

    # --- what is due here -------------------------------------------------------------------------

    def _next_at(self) -> float:
        held = min((task.due_at for task in self._running.values()), default=math.inf)
        return min(held, min(self._back.values(), default=(math.inf, -1))[0])

    def _take_due(self) -> list[Event]:
        """At one instant by the number of the task, as in virtual time."""
        now = self.now
        planned: dict[tuple[float, int], Callable[[], list[Event]]] = {
            **{(t.due_at, i): partial(self._end, i) for i, t in self._running.items()},
            **{due: partial(self._come_back, client) for client, due in self._back.items()},
        }
        return [event for due in sorted(planned) if due[0] <= now for event in planned[due]()]

    def _end(self, task_id: int) -> list[Event]:
        task = self._running.pop(task_id)
        assert task.result is not None
        if task.ends_at <= task.expires_at:
            return [replace(task.result, at=self.now)]
        self._back[task.client] = (task.ends_at, task_id)
        return [Left(self.now, task.client, "deadline passed", task_id)]

    def _come_back(self, client: int) -> list[Event]:
        del self._back[client]
        there = client in self._there
        return [Joined(self.now, client, self._there[client])] if there else []
