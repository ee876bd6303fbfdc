"""An executor that does what it is told, and a plan of the faults that somebody chose."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from runs import NUM_EXAMPLES, START, outcome

from pisces.execute.base import Capabilities, Executor
from pisces.execute.faults import Fault, FaultPlan
from pisces.saving import load_task, save_task
from pisces.types import Arrived, Event, Failed, Joined, Left, Report, State, Task, Weights

HONEST = 0  # the client that never misbehaves
SOON = (0.0, 0.0, 0.25, 1.0, 4.0)  # seconds
ABSURD_SIZES = (0, -3, 10**12, 2.5, True, "9", None)
ABSURD_CLIENTS = (-1, 10**9, 10**5000, 2.5, "9", None)


class Due(NamedTuple):
    """What a client will do."""

    at: float
    number: int
    verb: str
    client: int
    task_id: int = -1


class Hand(Executor):
    """Clients that do what they are told. Time passes as it is waited for, as in real time."""

    def __init__(self, num_clients: int, luck: int | None = None) -> None:
        self._luck = luck  # by which most tasks are answered; none: only if told
        self._now = 0.0
        self._num_clients = num_clients
        self.heap: list[Due] = []
        self.num_planned = 0
        self.open: dict[int, Task] = {}
        self.present: set[int] = set()
        self.handed_over: list[list[int]] = []  # tasks whose results were, and their clients
        self.honest_works = False
        for client in range(num_clients):
            self.plan("join", client)

    def plan(self, verb: str, client: int, task_id: int = -1, after_s: float = 0.0) -> None:
        due = Due(self._now + after_s, self.num_planned, verb, client, task_id)
        heapq.heappush(self.heap, due)
        self.num_planned += 1

    def let_the_honest_work(self) -> None:
        """From now on it answers everything within a second, is there, and nobody else answers."""
        self.honest_works = True
        for task in self.open.values():
            self._answer_if_honest(task)
        if HONEST not in self.present:
            self.plan("join", HONEST)

    def _answer_if_honest(self, task: Task) -> None:
        if task.client == HONEST and self.honest_works:
            self.plan("answer", HONEST, task.id, 1.0)

    # --- the contract -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(cancels=True, pulls=True, num_clients=self._num_clients)

    @property
    def quiet(self) -> bool:
        return False  # somebody may always come

    def submit(self, task: Task) -> None:
        assert task.client in self.present, "nobody is given a task who is away"
        assert task.client not in self.clients_at_work, "nobody is given two tasks"
        self.open[task.id] = task
        if task.deadline_s is not None:
            self.plan("expire", task.client, task.id, task.deadline_s)
        self._answer_if_honest(task)
        if self._luck is not None and not self.honest_works:
            chance = Random(f"{self._luck}/when/{task.id}")
            if chance.random() < 0.75:
                self.plan("answer", task.client, task.id, chance.choice(SOON))

    def wait(self, until: float) -> list[Event]:
        while True:
            at = min(self.heap[0].at, until) if self.heap else until
            if at < math.inf:
                self._now = max(self._now, at)
            due = []
            while self.heap and self.heap[0].at <= self._now:
                due.append(heapq.heappop(self.heap))
            events = [event for each in due for event in self._happen(each)]
            if events or not due:
                return events

    def cancel(self, task_id: int) -> None:
        self.open.pop(task_id, None)

    def pull(self, task_id: int) -> None:
        if task_id in self.open and (task_id % 2 or self.open[task_id].client == HONEST):
            self.plan("answer", self.open[task_id].client, task_id)  # every other one cannot

    @property
    def clients_at_work(self) -> set[int]:
        return {task.client for task in self.open.values()}

    # --- what clients do --------------------------------------------------------------------------

    def _happen(self, due: Due) -> list[Event]:
        return getattr(self, f"_{due.verb}")(due.client, due.task_id)

    def _is_open(self, client: int, task_id: int) -> bool:
        return task_id in self.open and self.open[task_id].client == client

    def _answer(self, client: int, task_id: int) -> list[Event]:
        if not self._is_open(client, task_id):
            return []
        done = outcome(self.open.pop(task_id))
        self.handed_over.append([task_id, client])
        return [Arrived(self._now, task_id, client, done.weights, done.report)]

    def _fail(self, client: int, task_id: int) -> list[Event]:
        if not self._is_open(client, task_id):
            return []
        del self.open[task_id]
        return [Failed(self._now, client, "crashed", task_id)]

    def _expire(self, client: int, task_id: int) -> list[Event]:
        if not self._is_open(client, task_id):
            return []
        if client % 2 and not self.honest_works:
            self.plan("join", client, after_s=2.0)
        return self._leave(client, task_id, "deadline passed")

    def _leave(self, client: int, task_id: int, reason: str = "went offline") -> list[Event]:
        self.present.discard(client)
        if client == HONEST and self.honest_works:
            self.plan("join", client, after_s=0.5)
        self.open = {i: task for i, task in self.open.items() if task.client != client}
        return [Left(self._now, client, reason, None if task_id < 0 else task_id)]

    def _join(self, client: int, task_id: int) -> list[Event]:
        self.present.add(client)
        return [Joined(self._now, client, NUM_EXAMPLES)]

    def _join_absurdly(self, client: int, task_id: int) -> list[Event]:
        """It is there, only the server does not believe it."""
        self.present.add(client)
        nobody: Any = ABSURD_CLIENTS[task_id % len(ABSURD_CLIENTS)]
        size: Any = ABSURD_SIZES[task_id % len(ABSURD_SIZES)]
        return [
            Joined(self._now, client, size),
            Joined(self._now, nobody, NUM_EXAMPLES),
            Left(self._now, nobody, "as if it had been there"),
        ]

    def _make_up(self, client: int, task_id: int) -> list[Event]:
        """Answers what it was not asked, or was once."""
        if self._is_open(client, task_id):
            return self._answer(client, task_id)
        weights = Weights(START.flat + 7.0, START.layout)
        return [Arrived(self._now, task_id, client, weights, Report(NUM_EXAMPLES, 1.0, 1.1))]

    def _make_up_failure(self, client: int, task_id: int) -> list[Event]:
        if self._is_open(client, task_id):
            return self._fail(client, task_id)
        return [Failed(self._now, client, "made up", task_id)]

    # --- saving -----------------------------------------------------------------------------------

    def state(self) -> State:
        state = State()
        state.values |= {
            "now": self._now,
            "heap": [list(due) for due in self.heap],
            "num_planned": self.num_planned,
            "open": [save_task(task, state) for task in self.open.values()],
            "present": sorted(self.present),
            "handed_over": list(self.handed_over),
            "honest_works": self.honest_works,
        }
        return state

    def restore(self, state: State) -> None:
        values = state.values
        self._now, self.num_planned = values["now"], values["num_planned"]
        self.heap = [Due(*due) for due in values["heap"]]
        tasks = [load_task(task, state, START.layout) for task in values["open"]]
        self.open = {task.id: task for task in tasks}
        self.present = set(values["present"])
        self.handed_over = list(values["handed_over"])
        self.honest_works = values["honest_works"]


@dataclass
class Script(FaultPlan):
    """Whatever fault was chosen for a task, or, by luck, half of all; none for the honest."""

    luck: int | None = None
    chosen: dict[int, Fault] = field(default_factory=dict)
    delay_s: float = 3.0
    away_s: float = 12.0

    met: list[str] = field(default_factory=list)

    def draw(self, task_id: int, client: int) -> Fault | None:
        fault = self.of(task_id, client)
        if fault is not None:
            self.met.append(fault.name)
        return fault

    def of(self, task_id: int, client: int) -> Fault | None:
        if client == HONEST:
            return None
        if task_id in self.chosen or self.luck is None:
            return self.chosen.get(task_id)
        return Random(f"{self.luck}/{task_id}").choice([*[None] * len(Fault), *Fault])
