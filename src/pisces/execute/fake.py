"""A scripted executor: plays given events at their times. For tests, of yours as of ours."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable

from pisces.execute.base import Capabilities, Executor, Handover
from pisces.types import Event, Task

Respond = Callable[[Task, float], Iterable[Event]]


class FakeExecutor(Executor):
    """Plays `script`, and whatever `respond(task, now)` plans when a task is submitted.

    `hand_in(task, now)` does the same when a task is pulled; what was planned for it stays planned.
    It keeps no rules but one, that time never runs backwards: events may repeat, contradict each
    other or concern tasks never sent, which is what it is for. `submitted`, `cancelled` and
    `pulled` say what was asked of it, `num_acknowledged` how many of the events that were handed
    out are known to be safe, `is_dismissed` whether anybody is still needed. Tasks that it takes
    over are submitted to it once more.
    """

    def __init__(
        self,
        script: Iterable[Event] = (),
        respond: Respond | None = None,
        capabilities: Capabilities | None = None,
        *,
        hand_in: Respond | None = None,
    ) -> None:
        self.submitted: list[Task] = []
        self.cancelled: list[int] = []
        self.pulled: list[int] = []
        self.num_acknowledged = 0
        self.is_dismissed = False
        self._num_handed_out = 0
        self._respond = respond
        self._hand_in = hand_in
        self._capabilities = capabilities or Capabilities(cancels=True, pulls=True)
        self._now = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._num_planned = 0
        self._plan(script)

    def _plan(self, events: Iterable[Event]) -> None:
        for event in events:
            heapq.heappush(self._heap, (event.at, self._num_planned, event))
            self._num_planned += 1

    @property
    def now(self) -> float:
        """The instant of the last event played, or waited for."""
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        """As given."""
        return self._capabilities

    @property
    def quiet(self) -> bool:
        """Is the script at its end?"""
        return not self._heap

    def submit(self, task: Task) -> None:
        """Note the task and plan the response to it."""
        self.submitted.append(task)
        if self._respond is not None:
            self._plan(self._respond(task, self._now))

    def wait(self, until: float) -> list[Event]:
        """The events of the script's next instant, or none at `until`; what is overdue, at once."""
        at = min(self._heap[0][0], until) if self._heap else until
        if at < math.inf:
            self._now = max(self._now, at)
        events = []
        while self._heap and self._heap[0][0] <= self._now:
            events.append(heapq.heappop(self._heap)[2])
        self._num_handed_out += len(events)
        return events

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """Note it."""
        self.num_acknowledged = self._num_handed_out - len(but_not)

    def take_over(self, left: Handover) -> None:
        """Go on from there, and plan the responses to what runs."""
        self._now = left.now
        for task, _ in left.running:
            self.submit(task)

    def cancel(self, task_id: int) -> None:
        """Note the wish."""
        self.cancelled.append(task_id)

    def pull(self, task_id: int) -> None:
        """Note the wish and plan what is handed in."""
        self.pulled.append(task_id)
        if self._hand_in is not None:
            for task in self.submitted:
                if task.id == task_id:
                    self._plan(self._hand_in(task, self._now))

    def dismiss(self) -> None:
        """Note it."""
        self.is_dismissed = True

    def close(self) -> None:
        """Nothing to give back."""
