"""The client manager: registers clients, watches their tasks, checks and buffers their updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pisces.clients.checks import (
    Limits,
    Shape,
    is_finite,
    most_buffered,
    no_client,
    wrong_client,
    wrong_report,
    wrong_size,
    wrong_weights,
)
from pisces.clients.running import RunningColumns
from pisces.clients.table import ClientTable
from pisces.clients.view import Plans, View, one_plan
from pisces.policy import Judge, Verdict
from pisces.saving import load_task, load_update, save_task, save_update
from pisces.types import (
    DOUBTED,
    Aggregated,
    Arrived,
    Distrusted,
    Dropped,
    Entry,
    Evaluated,
    Event,
    Failed,
    Ignored,
    Joined,
    Layout,
    Left,
    Outlier,
    Started,
    State,
    Task,
    Update,
    Weights,
)

NOBODY = -1  # who is told of in place of what is no client
NOT_RUNNING = "no such task is running on this client"
CROWD = 100  # so many who join at once are checked and written down together


class ClientManager:
    """Keeps the client table, the running tasks and the buffer in step with what happens.

    Every method returns the entries to be written down about it.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        judge: Judge | None = None,
        credits: int = 5,
        staleness_window: int = 5,
        limits: Limits | None = None,
    ) -> None:
        self.table = ClientTable(credits=credits, staleness_window=staleness_window)
        self.version = 0
        self.last_aggregated_at = 0.0
        self.num_updates = 0
        self.running: dict[int, tuple[Task, float]] = {}  # task id -> task, started at
        self.buffer: list[Update] = []
        self.history: list[Evaluated] = []
        self._layout = layout
        self._shape = Shape.of(layout)
        self._judge = judge
        self._limits = limits or Limits()
        self._most_buffered = most_buffered(1, layout, self._limits)
        self._running_columns = RunningColumns()
        self._task_of: dict[int, int] = {}  # client -> its running task
        self._view: View | None = None
        self._view_mark = (0.0, 0, 0)  # when and after which change it was taken

    def view(self, now: float, plans: Plans = one_plan) -> View:
        """This instant, for policies to look at; the same one until something changes."""
        mark = (now, self.version, self.table.changes.mark)
        if self._view is None or self._view_mark != mark:
            self._view_mark = mark
            self._view = View(
                now=now,
                version=self.version,
                last_aggregated_at=self.last_aggregated_at,
                clients=self.table.facts,
                free=self.table.free,
                unseen=self.table.unseen,
                changes=self.table.changes,
                look_at_running=self._running_columns.look(),
                buffer=tuple(self.buffer),
                history=self.history,
                plans=plans,
            )
        return self._view

    def start(self, task: Task, at: float) -> Started:
        """A task was handed to its client."""
        self._view = None  # so that nobody has to put it aside who does not look at it
        self.running[task.id] = (task, at)
        self._running_columns.add(task, at)
        self._task_of[task.client] = task.id
        self.table.start(task.client)
        return Started(at, task.id, task.client, task.version, task.plan.max_steps)

    def observe(self, event: Event, wanted: Callable[[Update], bool]) -> list[Entry]:
        """Take in what happened; an update that `wanted` refuses is dropped."""
        if problem := no_client(event.client):
            return [Failed(event.at, NOBODY, problem)]
        match event:
            case Joined():
                return [self._join(event)]
            case Left():
                return [self._leave(event)]
            case Failed():
                return [self._fail(event)]
            case Arrived():
                return self._arrive(event, wanted)

    def observe_all(
        self, events: Sequence[Event], wanted: Callable[[Update], bool]
    ) -> Iterator[Entry]:
        """Take in all that happened at one instant, in order; a crowd that joins, at once."""
        if len(events) >= CROWD:
            joins = [event for event in events if isinstance(event, Joined)]
            if len(joins) == len(events) and self._join_all(joins):
                yield from joins
                return
        for event in events:
            yield from self.observe(event, wanted)

    @property
    def is_full(self) -> bool:
        """Is there no room in memory for one more update to wait?"""
        return len(self.buffer) >= self._most_buffered

    def advance(
        self,
        at: float,
        coefficients: Sequence[float],
        reason: str | None = None,
        pace: Mapping[str, float] | None = None,
    ) -> Aggregated:
        """The buffer became a new version, for a reason if it was not the pacer's decision."""
        staleness = [update.staleness(self.version) for update in self.buffer]
        for update, s in zip(self.buffer, staleness, strict=True):
            self.table.add_staleness(update.client, s)
        task_ids = tuple(update.task_id for update in self.empty_buffer())
        self.version += 1
        self.last_aggregated_at = at
        told = tuple(staleness), tuple(coefficients)
        return Aggregated(at, self.version, task_ids, *told, reason, pace)

    def is_sound(self, weights: Weights) -> bool:
        """Could this be the next version?"""
        return is_finite(weights.flat)

    def empty_buffer(self) -> list[Update]:
        """Take all updates out; their clients may be selected again."""
        updates, self.buffer = self.buffer, []
        for update in updates:
            self.table.hold(update.client, waits=False)
        return updates

    def state(self) -> State:
        """The table, the running tasks, the buffer and the evaluations so far."""
        state = State()
        state.add("table", self.table.state())
        if self._judge is not None:
            state.add("judge", self._judge.state())
        state.values |= {
            "version": self.version,
            "last_aggregated_at": self.last_aggregated_at,
            "num_updates": self.num_updates,
            "running": [[save_task(task, state), at] for task, at in self.running.values()],
            "buffer": [save_update(update, state) for update in self.buffer],
            "history": [[e.at, e.version, dict(e.metrics)] for e in self.history],
        }
        return state

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        values, layout = state.values, self._layout
        self.table.restore(state.part("table"))
        if self._judge is not None:
            self._judge.restore(state.part("judge"))
        self.version = values["version"]
        self.last_aggregated_at = values["last_aggregated_at"]
        self.num_updates = values["num_updates"]
        running = [(load_task(task, state, layout), at) for task, at in values["running"]]
        self.running = {task.id: (task, at) for task, at in running}
        self._running_columns = RunningColumns()
        for task, at in running:
            self._running_columns.add(task, at)
        self._task_of = {task.client: task.id for task, _ in running}
        self.buffer = [load_update(update, state, layout) for update in values["buffer"]]
        self.history = [Evaluated(*e) for e in values["history"]]

    def _join(self, event: Joined) -> Entry:
        problem = wrong_client(event.client, self._limits)
        if problem := problem or wrong_size(event.num_examples, self._limits):
            return Failed(event.at, event.client, f"refused to join: {problem}")
        self.table.join(event.client, event.num_examples)
        return event

    def _join_all(self, events: Sequence[Joined]) -> bool:
        """Take all of them in, unless something is wrong with one."""
        clients = [event.client for event in events]
        sizes = [event.num_examples for event in events]
        if {*map(type, clients), *map(type, sizes)} != {int}:
            return False
        if any(wrong_client(client, self._limits) for client in (min(clients), max(clients))):
            return False
        if any(wrong_size(size, self._limits) for size in (min(sizes), max(sizes))):
            return False
        self.table.join_all(np.array(clients), np.array(sizes))
        return True

    def _leave(self, event: Left) -> Entry:
        """A client is gone, and what it ran with it, whether the event names that or not."""
        if not 0 <= event.client < self.table.num_clients:
            return replace(event, task_id=None)
        self.table.leave(event.client)
        task_id = self._task_of.get(event.client)
        if task_id is not None:
            self._end(task_id)
        return replace(event, task_id=task_id)

    def _fail(self, event: Failed) -> Entry:
        if event.task_id is None:
            return event
        if not self._runs(event.task_id, event.client):
            return Ignored(event.at, event.client, event.task_id, NOT_RUNNING)
        self._end(event.task_id)
        return event

    def _runs(self, task_id: int, client: int) -> bool:
        return task_id in self.running and self.running[task_id][0].client == client

    def _end(self, task_id: int) -> None:
        self.table.end(self._forget(task_id).client)

    def _forget(self, task_id: int) -> Task:
        """The task runs no longer."""
        self._view = None  # as in `start`
        task, _ = self.running.pop(task_id)
        self._running_columns.remove(task_id)
        self._task_of.pop(task.client, None)
        return task

    def _arrive(self, event: Arrived, wanted: Callable[[Update], bool]) -> list[Entry]:
        if not self._runs(event.task_id, event.client):
            return [Ignored(event.at, event.client, event.task_id, NOT_RUNNING)]
        task, started_at = self.running[event.task_id]
        if problem := self._problem(event, task):
            self._end(task.id)
            failed = Failed(event.at, event.client, f"update refused: {problem}", event.task_id)
            return [failed, *self._debit(event.client, event.at)]
        update = Update(
            task_id=task.id,
            client=task.client,
            version=task.version,
            base=task.weights,
            weights=event.weights,
            report=event.report,
            arrived_at=event.at,
            latency_s=event.at - started_at,
        )
        self._forget(task.id)
        self.num_updates += 1
        self.table.report(update)
        verdict = Verdict() if self._judge is None else self._judge.judge(update)
        entries = [update, *self._consequences(verdict, update)]
        if not verdict.keep or not wanted(update):
            reason = "too late" if verdict.keep else DOUBTED
            return [*entries, Dropped(event.at, task.id, reason)]
        self.buffer.append(update)
        self.table.hold(update.client, waits=True)
        return entries

    def _problem(self, event: Arrived, task: Task) -> str | None:
        declared, limits = self.table.facts.num_examples.item(event.client), self._limits
        problem = wrong_weights(event.weights, task.weights, self._shape, limits)
        return problem or wrong_report(event.report, declared, limits)

    def _consequences(self, verdict: Verdict, update: Update) -> list[Entry]:
        """Give or take a credit, and let the loss count as what it is taken for."""
        if verdict.loss is not None:
            self.table.doubt(update.client, verdict.loss)
        if verdict.forgives:
            self.table.credit(update.client)
        if not verdict.is_outlier:
            return []
        debited = self._debit(update.client, update.arrived_at)
        left = int(self.table.facts.credits[update.client])
        return [Outlier(update.arrived_at, update.client, update.task_id, left), *debited]

    def _debit(self, client: int, at: float) -> list[Entry]:
        """Take a credit; a client without any left is not selected again."""
        return [Distrusted(at, client)] if self.table.debit(client) else []
