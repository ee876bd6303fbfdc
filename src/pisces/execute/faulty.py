"""Fault injection: an executor around another, and trouble between its clients and the server.

What the clients do is the inner executor's; here results are lost, repeated, held back and
falsified, and clients fall silent. Towards the server it keeps what no trouble excuses an executor
from: a task with a deadline ends by then, and whoever was said to have left is there again only
after it joined. What an executor should not hand out, and a network may (a second answer, one
after the deadline, one to another's task), it hands out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from enum import IntEnum
from typing import NamedTuple

from pisces.execute.base import Capabilities, Executor
from pisces.execute.faults import Fault, FaultPlan, Faults, lied
from pisces.types import Arrived, Event, Failed, Joined, Layout, Left, Report, State, Task, Weights

NEVER_SENT = 1_000_000_000  # added to a task's number, makes that of a task never sent


class _Kind(IntEnum):
    HAND_OVER = 0  # a result that was held back comes
    EXPIRE = 1  # the deadline of a task passes whose result does not come
    RETURN = 2  # a client is heard from again


class _Due(NamedTuple):
    """Something that will happen; ties are settled by the order in which it was planned."""

    at: float
    number: int
    kind: _Kind
    what: int  # the number of a held result, a task or a client


class _Open(NamedTuple):
    """A task whose end the server has not heard of."""

    client: int
    expires_at: float | None


class FaultyExecutor(Executor):
    """Lets the results of `inner` meet with the faults of a plan; without one all goes well."""

    def __init__(self, inner: Executor, faults: FaultPlan | None = None, *, layout: Layout) -> None:
        self._inner = inner
        self._faults = faults or Faults()
        self._layout = layout
        self._heap: list[_Due] = []
        self._num_planned = 0
        self._open: dict[int, _Open] = {}
        self._there: dict[int, int] = {}  # whom the inner executor has, and their examples
        self._known: set[int] = set()  # whom the server takes to be there
        self._silent: set[int] = set()  # who hangs, is away, or dead
        self._held: dict[int, Arrived] = {}  # results held back
        self._overtaken: set[int] = set()  # those of them that whatever comes next sets free
        self._first: Weights | None = None  # what was sent first

    @property
    def now(self) -> float:
        """The inner executor's time."""
        return self._inner.now

    @property
    def capabilities(self) -> Capabilities:
        """What the inner executor can do, but for going on with what is only remembered here."""
        return replace(self._inner.capabilities, takes_over=False)

    @property
    def quiet(self) -> bool:
        """Will nothing come, neither from the inner executor nor held back here?"""
        self._forget_ended()
        return not self._heap and self._inner.quiet

    @property
    def interruptible(self) -> bool:
        """Whenever the inner executor is."""
        return self._inner.interruptible

    def submit(self, task: Task) -> None:
        """Hand the task on, unless its client would not hear of it."""
        expires_at = None if task.deadline_s is None else self.now + task.deadline_s
        self._open[task.id] = _Open(task.client, expires_at)
        self._first = self._first or task.weights
        if task.client in self._silent:
            self._expect_no_answer(task.id)
        else:
            self._inner.submit(task)

    def wait(self, until: float) -> list[Event]:
        """What the inner executor says, as far as it comes through, and what is due here."""
        while True:
            self._forget_ended()
            heard = self._inner.wait(min(until, self._heap[0].at) if self._heap else until)
            events = [said for event in heard for said in self._come_through(event)]
            due = list(self._take_due())
            for each in due:
                events += self._happen(each)
            if events:
                return events + self._set_free()
            if not heard and not due:
                return []

    def cancel(self, task_id: int) -> None:
        """Call a task off; a result of it that is under way still comes."""
        self._open.pop(task_id, None)
        self._inner.cancel(task_id)

    def pull(self, task_id: int) -> None:
        """Ask for what there is; whoever is silent does not hear of it."""
        self._inner.pull(task_id)

    def send(self) -> None:
        """Hand it on."""
        self._inner.send()

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """Hand it on: what is lost or held back here had arrived."""
        self._inner.acknowledge(but_not)

    def dismiss(self) -> None:
        """Hand it on."""
        self._inner.dismiss()

    def close(self) -> None:
        """Close the inner executor."""
        self._inner.close()

    # --- what the inner executor says -------------------------------------------------------------

    def _come_through(self, event: Event) -> list[Event]:
        if isinstance(event, Joined):
            self._there[event.client] = event.num_examples
        elif isinstance(event, Left):
            self._there.pop(event.client, None)
        if event.client in self._silent:
            return []
        if isinstance(event, Arrived) and self._is_open(event.task_id, event.client):
            fault = self._faults.draw(event.task_id, event.client)
            return self._say(event) if fault is None else self._go_wrong(fault, event)
        return self._say(event)

    def _go_wrong(self, fault: Fault, result: Arrived) -> list[Event]:
        task_id, client = result.task_id, result.client
        match fault:
            case Fault.LOSE | Fault.REORDER | Fault.DELAY:
                return self._hold_back(fault, result)
            case Fault.HANG:
                self._expect_no_answer(task_id)
                return self._fall_silent(client, self._faults.away_s)
            case Fault.DIE | Fault.REJOIN:
                away_s = math.inf if fault is Fault.DIE else self._faults.away_s
                self._fall_silent(client, away_s)
                return self._say(Left(self.now, client, "dropped out", task_id))
            case Fault.DUPLICATE:
                self._hold(result)
                return self._say(result)
            case Fault.UNKNOWN | Fault.FOREIGN:
                answered = self._of_another(client) if fault is Fault.FOREIGN else None
                made_up = task_id + NEVER_SENT if answered is None else answered
                return [replace(result, task_id=made_up), *self._say(result)]
        return self._say(lied(fault, result, self._first or result.weights))

    def _of_another(self, client: int) -> int | None:
        """A task that runs on another client, if one does."""
        return next((i for i, task in self._open.items() if task.client != client), None)

    def _hold_back(self, fault: Fault, result: Arrived) -> list[Event]:
        self._expect_no_answer(result.task_id)
        if fault is not Fault.LOSE:
            number = self._hold(result)
            if fault is Fault.REORDER:
                self._overtaken.add(number)
        return []

    def _hold(self, result: Arrived) -> int:
        number = self._num_planned
        self._held[number] = result
        self._plan(self.now + self._faults.delay_s, _Kind.HAND_OVER, number)
        return number

    def _fall_silent(self, client: int, away_s: float) -> list[Event]:
        self._silent.add(client)
        if away_s < math.inf:
            self._plan(self.now + away_s, _Kind.RETURN, client)
        return []

    def _expect_no_answer(self, task_id: int) -> None:
        """The inner executor will not end the task, or has done so already: its deadline will."""
        expires_at = self._open[task_id].expires_at
        if expires_at is not None:
            self._plan(expires_at, _Kind.EXPIRE, task_id)

    # --- what is due here -------------------------------------------------------------------------

    def _plan(self, at: float, kind: _Kind, what: int) -> None:
        heapq.heappush(self._heap, _Due(at, self._num_planned, kind, what))
        self._num_planned += 1

    def _take_due(self) -> Iterator[_Due]:
        while self._heap and self._heap[0].at <= self.now:
            yield heapq.heappop(self._heap)

    def _forget_ended(self) -> None:
        """Take what cannot happen any more off the top of the heap."""
        while self._heap and not self._can_happen(self._heap[0]):
            heapq.heappop(self._heap)

    def _can_happen(self, due: _Due) -> bool:
        if due.kind is _Kind.EXPIRE:
            return due.what in self._open
        return due.kind is _Kind.RETURN or due.what in self._held

    def _happen(self, due: _Due) -> list[Event]:
        if not self._can_happen(due):
            return []
        match due.kind:
            case _Kind.HAND_OVER:
                return self._hand_over(due.what)
            case _Kind.EXPIRE:
                client = self._open[due.what].client
                left = self._say(Left(self.now, client, "deadline passed", due.what))
                return left + self._welcome(client)
            case _Kind.RETURN:
                self._silent.discard(due.what)
                return self._come_back(due.what)

    def _set_free(self) -> list[Event]:
        """Something else came: what it was to overtake follows."""
        return [event for number in sorted(self._overtaken) for event in self._hand_over(number)]

    def _hand_over(self, number: int) -> list[Event]:
        result = self._held.pop(number)
        self._overtaken.discard(number)
        return self._say(replace(result, at=self.now)) + self._welcome(result.client)

    def _come_back(self, client: int) -> list[Event]:
        tasks = self._open_of(client)
        if client in self._known and client not in self._there:
            return self._say(Left(self.now, client, "went offline", *tasks))
        if client in self._known and tasks:
            return self._say(Failed(self.now, client, "came back without its task", *tasks))
        return self._welcome(client)

    def _welcome(self, client: int) -> list[Event]:
        """Whoever is there, and can be heard, joins, unless the server knows already."""
        waits = any(result.client == client for result in self._held.values())
        away = client not in self._there or client in self._silent
        if away or waits or client in self._known:
            return []
        return self._say(Joined(self.now, client, self._there[client]))

    # --- what the server is told ------------------------------------------------------------------

    def _is_open(self, task_id: int, client: int) -> bool:
        return task_id in self._open and self._open[task_id].client == client

    def _open_of(self, client: int) -> list[int]:
        return [task_id for task_id, task in self._open.items() if task.client == client]

    def _say(self, event: Event) -> list[Event]:
        if isinstance(event, Joined):
            self._known.add(event.client)
        elif isinstance(event, Left):
            self._known.discard(event.client)
            for task_id in self._open_of(event.client):
                del self._open[task_id]
        elif event.task_id is not None and self._is_open(event.task_id, event.client):
            del self._open[event.task_id]
        return [event]

    # --- saving -----------------------------------------------------------------------------------

    def state(self) -> State:
        """What is due, who is silent, what is held back; and the inner executor's."""
        state = State()
        state.values |= {
            "heap": [list(due) for due in self._heap],
            "num_planned": self._num_planned,
            "open": [[task_id, *task] for task_id, task in self._open.items()],
            "there": [list(pair) for pair in self._there.items()],
            "known": sorted(self._known),
            "silent": sorted(self._silent),
            "held": [
                [number, result.at, result.task_id, result.client, asdict(result.report)]
                for number, result in self._held.items()
            ],
            "overtaken": sorted(self._overtaken),
        }
        state.arrays |= {f"held/{n}": result.weights.flat for n, result in self._held.items()}
        if self._first is not None:
            state.arrays["first"] = self._first.flat
        state.add("inner", self._inner.state())
        return state

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        values, arrays = state.values, state.arrays
        self._heap = [_Due(at, n, _Kind(kind), what) for at, n, kind, what in values["heap"]]
        self._num_planned = values["num_planned"]
        self._open = {task_id: _Open(*task) for task_id, *task in values["open"]}
        self._there = dict(values["there"])
        self._known, self._silent = set(values["known"]), set(values["silent"])
        self._overtaken = set(values["overtaken"])
        self._held = {
            n: Arrived(
                at, task, client, Weights(arrays[f"held/{n}"], self._layout), Report(**report)
            )
            for n, at, task, client, report in values["held"]
        }
        self._first = Weights(arrays["first"], self._layout) if "first" in arrays else None
        self._inner.restore(state.part("inner"))
