"""Virtual time: an event heap, a clock that jumps, and training done as late as possible.

A running client's result depends only on its task, never on what happens while it runs. So nothing
is trained until the first result is due; then every pending task is trained in one call, which lets
a trainer work on many clients at once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisces.errors import ConfigError, RunError
from pisces.execute.availability import Always, Availability
from pisces.execute.base import Capabilities, Executor
from pisces.execute.comings import Comings
from pisces.execute.failures import Failures
from pisces.execute.latency import Latency
from pisces.saving import load_task, save_task
from pisces.train.base import Outcome, Trainer
from pisces.train.shuffle import num_steps
from pisces.types import (
    Arrived,
    Event,
    Failed,
    Joined,
    Layout,
    Left,
    Report,
    State,
    Task,
    Weights,
)


class _Kind(IntEnum):
    JOIN = 0  # a session begins
    LEAVE = 1  # a session ends
    FINISH = 2  # a task's result arrives
    CRASH = 3  # a task fails, its client stays
    DROP_OUT = 4  # a client is seen leaving in the middle of a task
    EXPIRE = 5  # a task's deadline passes
    RETURN = 6  # a client that went away in the middle of a task is heard from again


class _Due(NamedTuple):
    """Something that will happen; ties are settled by the order in which it was planned."""

    at: float
    number: int
    kind: _Kind
    client: int
    task_id: int  # -1: concerns no task


class VirtualExecutor(Executor):
    """Simulates clients with given sizes, latencies, sessions and failures."""

    def __init__(
        self,
        trainer: Trainer,
        num_examples: NDArray[Any],
        latency: Latency,
        *,
        layout: Layout,
        availability: Availability | None = None,
        failures: Failures | None = None,
    ) -> None:
        self._trainer = trainer
        self._num_examples = num_examples
        self._latency = latency
        self._layout = layout
        self._availability = availability or Always()
        self._failures = failures or Failures()
        self._capabilities = Capabilities(cancels=True, pulls=True, num_clients=len(num_examples))
        self._now = 0.0
        # These are planned first: at one instant they go before what is in the heap, where later
        # sessions are, if the timetable has only the first ones.
        self._comings = Comings(self._availability.timetable(len(num_examples)))
        self._heap: list[_Due] = []
        self._num_planned = 0
        self._turns = np.zeros(len(num_examples), np.int32)  # tasks given to each client so far
        self._online = np.zeros(len(num_examples), bool)  # in a session
        self._present = np.zeros(len(num_examples), bool)  # and there, as far as the server knows
        self._away: dict[int, int] = {}  # client -> the task in the middle of which it went
        # client -> the task in which it falls silent, and when
        self._silent: dict[int, tuple[int, float]] = {}
        self._running: dict[int, Task] = {}
        self._task_of: dict[int, int] = {}  # client -> its running task
        # task -> when it began and how long all of it takes; not of tasks that cannot be pulled
        self._spans: dict[int, tuple[float, float]] = {}
        self._untrained: dict[int, Task] = {}  # tasks that will finish, not trained yet
        self._results: dict[int, Outcome] = {}
        self._training = False
        self._sessions: dict[int, Iterator[tuple[float, float]]] = {}
        self._num_sessions = np.ones(len(num_examples), np.int32)  # planned for each client so far

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        """Virtual time can call tasks off, and ask them for what there is."""
        return self._capabilities

    @property
    def quiet(self) -> bool:
        """Is nothing planned any more?"""
        self._forget_ended()
        return not self._heap and self._comings.next_at == math.inf

    @property
    def interruptible(self) -> bool:
        """While it trains, which takes long and changes nothing before it is done."""
        return self._training

    def submit(self, task: Task) -> None:
        """Decide how and when the task will end; train it later."""
        turn = self._turns.item(task.client)
        self._turns[task.client] = turn + 1
        self._running[task.id] = task
        self._task_of[task.client] = task.id
        latency_s = self._latency.draw(task.client, turn, task)
        if not 0 < latency_s < math.inf:
            raise ConfigError(f"a latency must be positive and finite, not {latency_s}")
        fate = self._failures.draw(task.client, turn)
        kind = _Kind.FINISH if fate is None else _FATES[fate.kind]
        if task.client in self._silent:
            kind = None
        else:
            self._spans[task.id] = (self._now, latency_s)
        ends_at = self._now + latency_s * (1.0 if fate is None else fate.fraction)
        self._plan_end(task, kind, ends_at)

    def wait(self, until: float) -> list[Event]:
        """Jump to the next instant at which something happens, or to `until`."""
        while (at := self._next_at()) <= until and at < math.inf:
            self._train_for(at)
            events = self._come_and_go(at) if self._comings.next_at == at else []
            while self._heap and self._heap[0].at == at:
                events += self._happen(heapq.heappop(self._heap))
            if events:
                self._now = at
                return events
        if until < math.inf:
            self._now = max(self._now, until)
        return []

    def cancel(self, task_id: int) -> None:
        """Call a task off, unless it has ended already."""
        if task_id not in self._running:
            return
        if self._now < self._falls_silent_at(task_id) < math.inf:
            del self._silent[self._running[task_id].client]  # it was called off before that
        self._end(task_id)

    def pull(self, task_id: int) -> None:
        """Cut the task's plan to the steps done by now, which are in proportion to its latency.

        What is planned for it later does not happen: it will have ended.
        """
        if task_id not in self._spans or self._falls_silent_at(task_id) <= self._now:
            return
        task, (began_at, latency_s) = self._running[task_id], self._spans[task_id]
        in_all, _ = num_steps(int(self._num_examples[task.client]), task.plan)
        done = min(in_all, math.floor(in_all * (self._now - began_at) / latency_s))
        if done < 1:
            return
        del self._spans[task_id]  # it is pulled once
        self._silent.pop(task.client, None)
        self._results.pop(task_id, None)
        cut = replace(task, plan=replace(task.plan, max_steps=done))
        self._running[task_id] = self._untrained[task_id] = cut
        self._plan(self._now, _Kind.FINISH, task.client, task_id)

    def close(self) -> None:
        """Close the trainer."""
        self._trainer.close()

    def _falls_silent_at(self, task_id: int) -> float:
        """When the task's client falls silent in it; infinity: never."""
        silent_in, at = self._silent.get(self._running[task_id].client, (None, 0.0))
        return at if silent_in == task_id else math.inf

    # --- planning ---------------------------------------------------------------------------------

    def _plan(self, at: float, kind: _Kind, client: int, task_id: int = -1) -> None:
        heapq.heappush(self._heap, _Due(at, self._num_planned, kind, client, task_id))
        self._num_planned += 1

    def _plan_session(self, client: int) -> None:
        """Plan when the client joins next and when it leaves again."""
        if client not in self._sessions:
            num_past = self._num_sessions.item(client)
            self._sessions[client] = islice(self._availability.sessions(client), num_past, None)
        joins_at, leaves_at = next(self._sessions[client], (math.inf, math.inf))
        self._num_sessions[client] += 1
        if joins_at < math.inf:
            self._plan(joins_at, _Kind.JOIN, client)
        if leaves_at < math.inf:
            self._plan(leaves_at, _Kind.LEAVE, client)

    def _plan_end(self, task: Task, kind: _Kind | None, ends_at: float) -> None:
        """Plan a task's end; `None` is a client that falls silent."""
        expires_at = math.inf if task.deadline_s is None else self._now + task.deadline_s
        seen = kind is not None and ends_at <= expires_at
        if kind is not None and seen:
            self._plan(ends_at, kind, task.client, task.id)
        elif expires_at < math.inf:
            self._plan(expires_at, _Kind.EXPIRE, task.client, task.id)
        if task.client in self._silent:  # of old: it will not hear of this task at all
            return
        if kind is None:
            self._silent[task.client] = (task.id, ends_at)
        if seen and kind is _Kind.FINISH:
            self._untrained[task.id] = task
        away_s = self._failures.return_after_s
        if kind in (_Kind.DROP_OUT, None):
            ends_at = math.inf if away_s is None else ends_at + away_s
        if ends_at < math.inf and (not seen or kind is _Kind.DROP_OUT):
            self._plan(ends_at, _Kind.RETURN, task.client, task.id)

    def _forget_ended(self) -> None:
        """Take planned ends of tasks that have ended otherwise off the top of the heap."""
        about_tasks = (_Kind.FINISH, _Kind.CRASH, _Kind.DROP_OUT, _Kind.EXPIRE)
        while self._heap:
            due = self._heap[0]
            if due.kind not in about_tasks or due.task_id in self._running:
                return
            heapq.heappop(self._heap)

    def _next_at(self) -> float:
        at = self._comings.next_at
        return min(at, self._heap[0].at) if self._heap else at

    # --- happening --------------------------------------------------------------------------------

    def _come_and_go(self, at: float) -> list[Event]:
        """All comings and goings of this instant, but for those in the heap."""
        clients, come = self._comings.take()
        if come.all() and not (self._away or self._silent):
            self._online[clients] = self._present[clients] = True
            return self._joined(at, clients)
        events: list[Event] = []
        for client, comes in zip(clients.tolist(), come.tolist(), strict=True):
            kind = _Kind.JOIN if comes else _Kind.LEAVE
            events += self._happen(_Due(at, -1, kind, client, -1))
        return events

    def _joined(self, at: float, clients: NDArray[np.int64]) -> list[Event]:
        sizes = self._num_examples[clients].tolist()
        return [Joined(at, c, num) for c, num in zip(clients.tolist(), sizes, strict=True)]

    def _happen(self, due: _Due) -> list[Event]:
        match due.kind:
            case _Kind.JOIN:
                self._online[due.client] = True
                return self._join(due)
            case _Kind.LEAVE:
                return self._end_session(due)
            case _Kind.RETURN:
                return self._come_back(due)
        if due.task_id not in self._running:
            return []
        return [self._end_task(due)]

    def _end_task(self, due: _Due) -> Event:
        at, client, task_id = due.at, due.client, due.task_id
        if due.kind is _Kind.FINISH:
            outcome = self._results[task_id]
            self._end(task_id)
            return Arrived(at, task_id, client, outcome.weights, outcome.report)
        self._end(task_id)
        if due.kind is _Kind.CRASH:
            return Failed(at, client, "crashed while training", task_id)
        self._present[client] = False
        self._away[client] = task_id
        reason = "dropped out" if due.kind is _Kind.DROP_OUT else "deadline passed"
        return Left(at, client, reason, task_id)

    def _join(self, due: _Due) -> list[Event]:
        self._away.pop(due.client, None)
        self._silent.pop(due.client, None)
        self._present[due.client] = True
        return [Joined(due.at, due.client, int(self._num_examples[due.client]))]

    def _end_session(self, due: _Due) -> list[Event]:
        self._online[due.client] = False
        if not self._comings.are_all:
            self._plan_session(due.client)
        if not self._present[due.client]:
            return []
        self._present[due.client] = False
        task_id = self._task_of.get(due.client)
        if task_id is not None:
            self._end(task_id)
        return [Left(due.at, due.client, "went offline", task_id)]

    def _come_back(self, due: _Due) -> list[Event]:
        silent_in, _ = self._silent.get(due.client, (None, 0.0))
        was_silent = silent_in == due.task_id
        if was_silent:
            del self._silent[due.client]
        if self._away.get(due.client) == due.task_id or (was_silent and due.client in self._away):
            del self._away[due.client]
            return self._join(due) if self._online[due.client] else []
        task_id = self._task_of.get(due.client)
        if not was_silent or task_id is None:
            return []
        self._end(task_id)
        return [Failed(due.at, due.client, "came back without its task", task_id)]

    def _end(self, task_id: int) -> None:
        task = self._running.pop(task_id)
        del self._task_of[task.client]
        self._spans.pop(task_id, None)
        self._untrained.pop(task_id, None)
        self._results.pop(task_id, None)

    # --- training ---------------------------------------------------------------------------------

    def _train_for(self, at: float) -> None:
        """If a result is due that is not there yet, train everything that is pending.

        It comes before anything happens at that instant: where it is broken off, nothing has.
        """
        if not any(due.task_id in self._untrained for due in self._due(at)):
            return
        self._training = True
        try:
            outcomes = list(self._trainer.train(list(self._untrained.values())))
        finally:
            self._training = False
        self._results |= {outcome.task_id: outcome for outcome in outcomes}
        self._untrained.clear()

    def _due(self, at: float) -> Iterator[_Due]:
        """What the heap has for this instant, its first: what is above it is, too."""
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place].at == at:
                yield self._heap[place]
                places += (2 * place + 1, 2 * place + 2)

    # --- saving -----------------------------------------------------------------------------------

    def state(self) -> State:
        """The clock, the plan, who is there, and what runs or is trained already."""
        state = State()
        state.values |= {
            "now": self._now,
            "heap": [list(due) for due in self._heap],
            "num_planned": self._num_planned,
            "silent": [[client, list(fall)] for client, fall in sorted(self._silent.items())],
            "away": [list(pair) for pair in sorted(self._away.items())],
            "running": [save_task(task, state) for task in self._running.values()],
            "spans": [[task_id, list(span)] for task_id, span in self._spans.items()],
            "untrained": list(self._untrained),
            "results": {str(i): asdict(o.report) for i, o in self._results.items()},
        }
        state.arrays |= {f"result/{i}": o.weights.flat for i, o in self._results.items()}
        state.arrays |= {name: getattr(self, f"_{name}").copy() for name in _COLUMNS}
        state.arrays["comings_at"], state.arrays["comings"] = self._comings.left()
        state.values["num_stretches"] = self._comings.num_stretches
        state.add("trainer", self._trainer.state())
        return state

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        values = state.values
        self._now = values["now"]
        self._heap = [_Due(at, n, _Kind(kind), c, t) for at, n, kind, c, t in values["heap"]]
        self._num_planned = values["num_planned"]
        for name in _COLUMNS:
            setattr(self, f"_{name}", np.array(state.arrays[name]))
        self._restore_comings(state)
        self._away = dict(values["away"])
        self._silent = {client: (task_id, at) for client, (task_id, at) in values["silent"]}
        tasks = [load_task(task, state, self._layout) for task in values["running"]]
        self._running = {task.id: task for task in tasks}
        self._task_of = {task.client: task.id for task in tasks}
        self._spans = {task_id: (at, seconds) for task_id, (at, seconds) in values["spans"]}
        self._untrained = {i: self._running[i] for i in values["untrained"]}
        self._results = {
            int(i): Outcome(
                int(i), Weights(state.arrays[f"result/{i}"], self._layout), Report(**report)
            )
            for i, report in values["results"].items()
        }
        self._sessions = {}
        self._trainer.restore(state.part("trainer"))

    def _restore_comings(self, state: State) -> None:
        if self._comings.are_all and "num_stretches" not in state.values:
            raise RunError(
                "this checkpoint is of an older version, in which clients had other hours of the "
                "day: go on with that version, or make the run again"
            )
        num_stretches = state.values.get("num_stretches", 1)
        self._comings.restore(state.arrays["comings_at"], state.arrays["comings"], num_stretches)


_COLUMNS = ("turns", "num_sessions", "online", "present")  # one value per client, all saved alike
_FATES = {"crash": _Kind.CRASH, "dropout": _Kind.DROP_OUT, "vanish": None}
