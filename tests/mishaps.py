"""A run whose every mishap somebody else decides on, step by step, and the laws it is under.

`Hand` is an executor that does what it is told, `Scene` a run over it and a `FaultyExecutor`. The
machine in `tests/faults/test_machine.py` tells them what happens next.
"""

from __future__ import annotations

import heapq
import math
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import torch
from runs import NUM_EXAMPLES, START, Assembled, Books, World, assemble, outcome, through_json

from pisces.execute.base import Capabilities, Executor
from pisces.execute.faults import Fault, FaultPlan
from pisces.execute.faulty import FaultyExecutor
from pisces.saving import load_task, save_task
from pisces.types import Arrived, Event, Failed, Joined, Left, Report, State, Task, Weights

HONEST = 0  # the client that never misbehaves
SOON = (0.0, 0.0, 0.25, 1.0, 4.0)  # seconds
ABSURD_SIZES = (0, -3, 10**12, 2.5, True, "9", None)


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
        return [Joined(self._now, client, ABSURD_SIZES[task_id % len(ABSURD_SIZES)])]  # type: ignore[arg-type]

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


@dataclass
class Tally:
    """What was played."""

    num_scenes: int = 0
    num_turns: int = 0
    slowest: int = 0  # most turns that a version took, while only the honest worked
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of lines in the logs


class Scene:
    """A run in the middle, and what must be true of it at any moment."""

    def __init__(
        self,
        protocol: str,
        settings: Mapping[str, Any],
        world: World,
        luck: int | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.protocol, self.settings, self.world = protocol, settings, world
        self.tally = tally or Tally()
        self.script = Script(luck)
        self.lines: list[dict[str, Any]] = []
        self._assemble()
        self._follow_from_the_start()

    def _assemble(self) -> None:
        self.hand = Hand(len(self.world.latencies), self.script.luck)
        self.executor = FaultyExecutor(self.hand, self.script, layout=START.layout)
        self.run: Assembled = assemble(
            self.protocol, self.world, executor=self.executor, **self.settings
        )
        self.coordinator = self.run.coordinator
        self.manager = self.coordinator._manager

    def _follow_from_the_start(self) -> None:
        self.books = Books(self.world.concurrency)
        self.num_ended = 0
        self.counts: dict[str, Counter[int]] = {k: Counter() for k in ("started", "arrived")}
        self.arrived: set[int] = set()
        self.versions: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self.num_followed = 0

    @property
    def is_over(self) -> bool:
        return self.coordinator.reason is not None

    # --- what may happen to it --------------------------------------------------------------------

    def end(self, verb: str, number: int, after_s: float, fault: Fault | None = None) -> None:
        """One of the running tasks ends."""
        task = list(self.hand.open.values())[number % len(self.hand.open)]
        if fault is not None:
            self.script.chosen[task.id] = fault
        self.hand.plan(verb, task.client, task.id, after_s)

    def turn(self) -> None:
        """One turn of the loop."""
        self.coordinator.step()
        self.tally.num_turns += 1

    def progress(self) -> None:
        """While an honest client is there and trusted, and tasks expire, versions are made."""
        before, most = self.manager.version, self.most_turns
        num = 0
        self.hand.let_the_honest_work()
        while self.manager.version == before and self._the_honest_counts():
            assert not self.is_over, f"it gave up: {self.coordinator.reason}"
            num += 1
            assert num <= most, f"no version in {most} turns"
            self.turn()
            self.check()
        self.tally.slowest = max(self.tally.slowest, num)

    def _the_honest_counts(self) -> bool:
        """A judge may doubt it, too; and without deadlines the silent stop a run."""
        return self.world.deadline_s is not None and HONEST not in self.books.distrusted_clients

    @property
    def most_turns(self) -> int:
        """Before the next version, from now on, whatever happened until now.

        All but the honest answer no more. A turn for each thing that is due already; four for each
        client: its task expires, it comes back, it is started, that task expires, too. By then the
        honest is the only one there. All that takes a minute at most, in which the loop also wakes
        to evaluate (every 3 s), for ticks (every 5 s), and when its pacer asks for it: 40.
        """
        num_due = len(self.hand.heap) + len(self.executor._heap)
        return num_due + 4 * len(self.world.latencies) + 40

    def save(self) -> tuple[State, int]:
        """All there is, as a file would keep it."""
        self.follow()
        return through_json(self.coordinator.state()), len(self.lines)

    def take_up(self, saved: tuple[State, int]) -> None:
        """Fresh objects go on from there; what was written later never was."""
        state, num_lines = saved
        self._assemble()
        self.coordinator.restore(through_json(state))
        del self.lines[num_lines:]
        self._follow_from_the_start()

    def finish(self) -> None:
        """Wind it up, as Ctrl-C does."""
        self.coordinator.reason = self.coordinator.reason or "interrupted"
        self.coordinator.run()
        self.follow()
        self.books.close()
        self.tally.num_scenes += 1
        self.tally.kinds.update(line["kind"] for line in self.lines)
        self.tally.faults.update(self.script.met)

    # --- what must be true ------------------------------------------------------------------------

    def follow(self) -> None:
        """Take what was written since into the books, which are lawful or complain."""
        self.lines += self.run.memory.lines
        self.run.memory.lines.clear()
        for line in self.lines[self.num_followed :]:
            assert line["at"] >= self.books.now, f"time ran backwards: {line}"
            self.books.now = line["at"]
            open_before = len(self.books.running) + len(self.books.buffer)
            getattr(self.books, line["kind"])(line)
            open_after = len(self.books.running) + len(self.books.buffer)
            self.num_ended += max(0, open_before - open_after)
            if line["kind"] in self.counts:
                self.counts[line["kind"]][line["client"]] += 1
            if line["kind"] == "arrived":
                self.arrived.add(line["task"])
        self.num_followed = len(self.lines)

    def check(self) -> None:
        """Every law, now."""
        self.follow()
        self._check_tasks()
        self._check_table()
        self._check_weights()

    def _check_tasks(self) -> None:
        books, manager = self.books, self.manager
        running = {task_id: task for task_id, (task, _) in manager.running.items()}
        clients = [task.client for task in running.values()]
        assert len(set(clients)) == len(clients) <= self.world.concurrency
        assert set(books.running) == set(running), "the log tells who runs"
        assert set(self.executor._open) == set(running), "a seat is taken by a task that will end"
        buffered = [update.task_id for update in manager.buffer]
        assert sorted(books.buffer) == sorted(buffered), "the log tells what waits"
        num_open = len(running) + len(buffered)
        assert books.num_started == num_open + self.num_ended, "started = running + waiting + ended"
        assert books.version == manager.version
        well = {i for i, client in self.hand.handed_over if self.script.of(i, client) is None}
        assert self.arrived >= well, "no result that comes through is lost"
        deadline_s = self.world.deadline_s or math.inf
        for _, started_at in manager.running.values():
            assert started_at + deadline_s >= self.executor.now, "nobody runs beyond its deadline"

    def _check_table(self) -> None:
        books, table, facts = self.books, self.manager.table, self.manager.table.facts
        for client in range(table.num_clients):
            row = {
                "present": client in books.present,
                "trusted": client not in books.distrusted_clients,
                "running": client in [t["client"] for t in books.running.values()],
                "buffered": client in [t["client"] for t in books.buffer.values()],
                "num_picks": self.counts["started"][client],
                "num_reports": self.counts["arrived"][client],
            }
            assert row == {name: getattr(facts, name).item(client) for name in row}
            may = row["present"] and row["trusted"] and not (row["running"] or row["buffered"])
            assert (client in table.free) == may
        assert self.manager.num_updates == sum(self.counts["arrived"].values())

    def _check_weights(self) -> None:
        for weights in (self.coordinator.weights, self.coordinator.published):
            assert bool(weights.flat.isfinite().all()), "the model is finite"
        version = self.manager.version
        if not self.versions or self.versions[-1][0] != version:
            self.versions.append((version, weakref.ref(self.coordinator.weights.flat)))
        self.manager.view(self.executor.now)  # the last view may still hold what it showed
        needed = {version, 0, *(task.version for task in self.hand.open.values())}
        needed |= {task.version for task, _ in self.manager.running.values()}
        needed |= {update.version for update in self.manager.buffer}
        alive = {v for v, ref in self.versions if ref() is not None}
        assert alive <= needed, f"versions {alive - needed} are kept for nobody"
        self.versions = [(v, ref) for v, ref in self.versions if ref() is not None]
