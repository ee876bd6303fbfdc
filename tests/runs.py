"""Whole runs in virtual time whose training costs nothing, and the laws their logs obey."""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from inspect import isabstract
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st
from worlds import weights

from pisces.aggregate.mean import DiscountedMean
from pisces.build import simulated, simulation
from pisces.clients.checks import Limits
from pisces.clients.manager import ClientManager
from pisces.config import parse
from pisces.coordinator import Coordinator
from pisces.errors import MissingPackageError
from pisces.evaluate import Evaluator, Inline, Schedule
from pisces.execute.availability import Always, Availability, Diurnal, Late, Markov
from pisces.execute.base import Executor
from pisces.execute.failures import Failures
from pisces.execute.latency import PerClient
from pisces.execute.virtual import VirtualExecutor
from pisces.mix import Part
from pisces.names import PARTS, PROTOCOLS
from pisces.parts import Simulation
from pisces.policy import Policies
from pisces.record.lines import Line, Memory, encode
from pisces.record.sound import is_line
from pisces.settings import defaults_of
from pisces.stop import Stop
from pisces.train.base import Outcome, Trainer
from pisces.types import Plan, Report, State, Task, Weights

START = weights([0.0, 0.0, 0.0, 1.0], num_buffers=1)
NUM_EXAMPLES = 10

# --- training that costs nothing ------------------------------------------------------------------


def task(
    id: int,
    client: int,
    *,
    version: int = 0,
    deadline_s: float | None = None,
    seed: int = 0,
    plan: Plan = Plan(),  # noqa: B008 (frozen)
) -> Task:
    """A task from the first weights."""
    return Task(id, client, version, START, plan, seed, deadline_s)


def outcome(task: Task, odd_every: int | None = None) -> Outcome:
    """What `NoopTrainer` makes of a task: a small step that depends on everything it may."""
    step = (task.client + 1) / 1000 + task.seed % 97 / 1e6
    loss = 1.0 + (7 * task.client + 3 * task.version) % 10 / 100
    left = loss / 4
    if odd_every is not None and task.seed % odd_every == 0:
        loss = left = 5.0 + task.seed % 40
    num_steps = 1 if task.plan.max_steps is None else task.plan.max_steps
    report = Report(NUM_EXAMPLES, loss, 1.1 * loss, num_steps=num_steps, loss_left=left)
    return Outcome(task.id, Weights(task.weights.flat + step, task.weights.layout), report)


class NoopTrainer(Trainer):
    """Takes no time; `groups` are the ids of the tasks of each call.

    About one in `odd_every` losses stands apart, and nothing is learnt from these.
    """

    def __init__(self, odd_every: int | None = None) -> None:
        self.odd_every = odd_every
        self.groups: list[list[int]] = []
        self.closed = False

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        self.groups.append([task.id for task in tasks])
        yield from (outcome(task, self.odd_every) for task in tasks)

    def close(self) -> None:
        self.closed = True


def measure(_version: int, weights: Weights) -> Mapping[str, float]:
    """A metric that grows with every version."""
    return {"accuracy": float(weights.flat.double().mean())}


# --- worlds and runs ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class World:
    """A small federation: one client per latency."""

    latencies: Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    concurrency: int = 3
    jitter: float = 0.0
    failures: Failures = field(default_factory=Failures)
    availability: Availability = field(default_factory=Always)
    deadline_s: float | None = None
    tick_s: float = 0.0
    stop: Stop = field(default_factory=lambda: Stop(time_s=40.0))
    schedule: Schedule = field(default_factory=lambda: Schedule(every_versions=1))
    plan: Plan = field(default_factory=Plan)
    credits: int = 5
    odd_every: int | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 1

    def executor(self, trainer: Trainer | None = None) -> VirtualExecutor:
        """Virtual time over this world."""
        return VirtualExecutor(
            trainer or NoopTrainer(self.odd_every),
            np.full(len(self.latencies), NUM_EXAMPLES),
            PerClient(self.latencies, self.jitter, self.seed),
            layout=START.layout,
            availability=self.availability,
            failures=self.failures,
        )


@dataclass(frozen=True)
class Sessions(Availability):
    """Sessions by hand; who is not named is always there."""

    by_client: Mapping[int, Sequence[tuple[float, float]]]

    def sessions(self, client: int) -> Iterator[tuple[float, float]]:
        return iter(self.by_client.get(client, [(0.0, math.inf)]))


@dataclass(frozen=True, eq=False)
class Assembled:
    """A run that has not begun."""

    coordinator: Coordinator
    executor: Executor
    memory: Memory

    def run(self) -> list[Line]:
        """To its end; returns the log."""
        self.coordinator.run()
        return self.memory.lines


def policies(protocol: str | Policies, concurrency: int, **settings: Any) -> Policies:
    """A fresh protocol of that name, or the policies as they are."""
    if isinstance(protocol, Policies):
        return protocol
    return PROTOCOLS[protocol](concurrency, **settings)


def assemble(
    protocol: str | Policies,
    world: World,
    *,
    executor: Executor | None = None,
    evaluator: Evaluator | None = None,
    decisions: bool = False,
    **settings: Any,
) -> Assembled:
    """Wire a run of `protocol` with its `settings` in `world`, or over another executor."""
    chosen = policies(protocol, world.concurrency, **settings)
    executor, memory = executor or world.executor(), Memory()
    coordinator = Coordinator(
        policies=chosen,
        executor=executor,
        manager=ClientManager(
            START.layout, judge=chosen.judge, credits=world.credits, limits=world.limits
        ),
        evaluator=evaluator or Inline(measure),
        recorder=memory,
        weights=START,
        plans=lambda _version: world.plan,
        stop=world.stop,
        schedule=world.schedule,
        seed=world.seed,
        tick_s=world.tick_s,
        deadline_s=world.deadline_s,
        decisions=decisions,
    )
    return Assembled(coordinator, executor, memory)


def simulate(protocol: str | Policies, world: World, **settings: Any) -> list[Line]:
    """The log of a whole run."""
    return assemble(protocol, world, **settings).run()


def digits(protocol: str, changes: Sequence[str] = (), *, seed: int = 1) -> Simulation:
    """A short run with real training: six clients, three at a time."""
    text = """
        [clients]
        count = 6
        concurrency = 3
        [data]
        size = 64
        [model]
        hidden = [16]
        [train]
        device = "cpu"
        learning_rate = 0.1
        [latency]
        kind = "uniform"
        min_s = 1.0
        max_s = 4.0
        [stop]
        versions = 4
    """
    return simulation(parse(text, [f"protocol={protocol}", f"seed={seed}", *changes]))


def train_digits(
    protocol: str, changes: Sequence[str] = (), *, seed: int = 1
) -> tuple[list[Line], Weights]:
    """Its log and its last version."""
    memory = Memory()
    weights = simulated(digits(protocol, changes, seed=seed), memory).run()
    return memory.lines, weights


def through_json(state: State) -> State:
    """The state as another process would find it: its values from JSON, its arrays copied."""
    arrays = {
        name: array.clone() if isinstance(array, torch.Tensor) else np.array(array)
        for name, array in state.arrays.items()
    }
    return State(json.loads(json.dumps(state.values)), arrays)


# --- reading logs ---------------------------------------------------------------------------------


def of_kind(lines: Sequence[Line], *kinds: str) -> list[Line]:
    """The lines of these kinds."""
    return [line for line in lines if line["kind"] in kinds]


def log_bytes(lines: Sequence[Line]) -> bytes:
    """The log as it would stand in a file."""
    return b"".join(map(encode, lines))


def num_versions(lines: Sequence[Line]) -> int:
    """How many versions were made."""
    return len(of_kind(lines, "aggregated"))


def max_staleness(lines: Sequence[Line]) -> int:
    """The stalest update that was aggregated."""
    return max((s for line in of_kind(lines, "aggregated") for s in line["staleness"]), default=0)


def reason(lines: Sequence[Line]) -> str:
    """Why the run stopped."""
    return str(lines[-1]["reason"])


def assert_lawful(lines: Sequence[Line], concurrency: int) -> None:
    """Fail unless the log obeys every law a run is under, whatever its protocol and its world."""
    books = Books(concurrency)
    for line in lines:
        assert is_line(line), f"the reader would call it damaged: {line}"
        assert line["at"] >= books.now, f"time ran backwards: {line}"
        books.now = line["at"]
        getattr(books, line["kind"])(line)
    books.close()


class Books:
    """Follows a log line by line with the simplest book-keeping there is."""

    def __init__(self, concurrency: int) -> None:
        self.now = 0.0
        self.concurrency = concurrency
        self.version = 0
        self.num_started = 0
        self.present: set[int] = set()
        self.distrusted_clients: set[int] = set()
        self.running: dict[int, Line] = {}  # task -> its line "started"
        self.buffer: dict[int, Line] = {}
        self.evaluations: list[Line] = []
        self.ends: list[Line] = []
        self.picked_clients: list[int] = []  # who is still to be started

    def picked(self, line: Line) -> None:
        assert not self.picked_clients, "whoever is picked is started before anybody else is"
        assert len(line["clients"]) <= min(line["slots"], line["num_free"])
        assert line["version"] == self.version
        self.picked_clients = list(line["clients"])

    def joined(self, line: Line) -> None:
        self.present.add(line["client"])

    def started(self, line: Line) -> None:
        task, client = line["task"], line["client"]
        assert task == self.num_started, "tasks are numbered as they start"
        self.num_started += 1
        if self.picked_clients:  # where the log says who was
            assert client == self.picked_clients.pop(0)
        assert client in self.present, "nobody starts who is away"
        assert client not in self.distrusted_clients, "nobody starts who is distrusted"
        busy = [t["client"] for t in (*self.running.values(), *self.buffer.values())]
        assert client not in busy, "nobody starts who runs, or whose update waits"
        assert line["version"] == self.version, "everybody starts from the newest version"
        self.running[task] = line
        assert len(self.running) <= self.concurrency

    def _end(self, line: Line) -> Line:
        assert line["task"] in self.running, f"it ended twice, or never started: {line}"
        started = self.running.pop(line["task"])
        assert line["client"] == started["client"]
        return started

    def arrived(self, line: Line) -> None:
        started = self._end(line)
        assert line["version"] == started["version"]
        assert line["latency_s"] == line["at"] - started["at"]
        self.buffer[line["task"]] = line

    def failed(self, line: Line) -> None:
        if "task" in line:
            self._end(line)

    def left(self, line: Line) -> None:
        self.failed(line)
        self.present.discard(line["client"])
        at_work = [t["client"] for t in self.running.values()]
        assert line["client"] not in at_work, "who leaves takes its task along"

    def dropped(self, line: Line) -> None:
        del self.buffer[line["task"]]  # a KeyError: it was aggregated or dropped before
        assert line["reason"]

    def ignored(self, line: Line) -> None:
        running = self.running.get(line["task"])
        assert running is None or running["client"] != line["client"], "it was asked for"

    def aggregated(self, line: Line) -> None:
        assert line["version"] == self.version + 1, "versions count up by one"
        assert len(line["tasks"]) == len(line["staleness"]) == len(line["weights"]) > 0
        for task, staleness in zip(line["tasks"], line["staleness"], strict=True):
            assert staleness == self.version - self.buffer.pop(task)["version"] >= 0
        assert not self.buffer, "an aggregation takes everything that waits"
        assert all(math.isfinite(weight) for weight in line["weights"])
        self.version += 1

    def evaluated(self, line: Line) -> None:
        assert line["version"] == self.version, "the newest version is the one looked at"
        self.evaluations.append(line)

    def outlier(self, line: Line) -> None:
        assert line["credits"] >= 0
        assert line["task"] in self.buffer

    def distrusted(self, line: Line) -> None:
        assert line["client"] not in self.distrusted_clients
        self.distrusted_clients.add(line["client"])

    def stopped(self, line: Line) -> None:
        assert line["reason"] not in ("", "None")
        self.ends.append(line)

    def close(self) -> None:
        assert not self.running, "every task ends"
        assert not self.buffer, "every update is aggregated or dropped"
        assert len(self.ends) == 1
        first, last = self.evaluations[0], self.evaluations[-1]
        assert (first["at"], first["version"]) == (0.0, 0)
        assert last["version"] == self.version


# --- any world ------------------------------------------------------------------------------------

# Multiples of 1/4 add up without rounding, so what holds on paper holds to the last bit.
quarters = st.integers(1, 40).map(lambda number: number / 4)
seeds = st.integers(0, 2**31)


@st.composite
def any_failures(draw: st.DrawFn) -> Failures:
    """Every kind of trouble, with or without return."""
    chance = st.sampled_from([0.0, 0.0, 0.1, 0.3])
    return Failures(
        draw(chance), draw(chance), draw(chance), draw(st.none() | quarters), draw(seeds)
    )


@st.composite
def any_availability(draw: st.DrawFn) -> Availability:
    """Clients that stay, come late, or come and go."""
    seed = draw(seeds)
    come_and_go = [Markov(12.0, 4.0, seed), Diurnal(16.0, 0.5, seed)]
    inner = draw(st.sampled_from([Always(), Always(), *come_and_go]))
    return draw(st.sampled_from([inner, Late(inner, 10.0, 0.5, seed)]))


any_jitter = st.sampled_from([0.0, 0.3, 1.0])
any_deadline = st.none() | quarters


@st.composite
def any_world(
    draw: st.DrawFn,
    jitter: st.SearchStrategy[float] = any_jitter,
    deadline_s: st.SearchStrategy[float | None] = any_deadline,
) -> World:
    """Up to ten clients and every kind of trouble."""
    num = draw(st.integers(1, 10))  # drawn first: lists by themselves are mostly short
    return World(
        latencies=draw(st.lists(quarters, min_size=num, max_size=num)),
        concurrency=draw(st.integers(1, num)),
        jitter=draw(jitter),
        failures=draw(any_failures()),
        availability=draw(any_availability()),
        deadline_s=draw(deadline_s),
        tick_s=draw(st.sampled_from([0.0, 1.0, 5.0])),
        stop=Stop(time_s=draw(st.sampled_from([20.0, 60.0])), updates=80),
        schedule=draw(st.sampled_from([Schedule(every_versions=1), Schedule(every_s=3.0)])),
        odd_every=draw(st.sampled_from([None, 4])),
        seed=draw(seeds),
    )


any_protocol = st.sampled_from(sorted(PROTOCOLS))

# --- who implements a contract --------------------------------------------------------------------


def implementations(room: ModuleType, verb: str) -> set[type]:
    """The classes of a room that have this verb, the contract itself and what is abstract aside."""
    names = [m.name for m in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    things = [(name, thing) for name in names for thing in _things(name)]
    return {
        thing
        for name, thing in things
        if isinstance(thing, type) and thing.__module__ == name and hasattr(thing, verb)
        if not getattr(thing, "_is_protocol", False) and not isabstract(thing)
    }


def _things(module: str) -> list[object]:
    """What is in it; nothing if it needs a package that is not here."""
    try:
        return [*vars(import_module(module)).values()]
    except MissingPackageError:
        return []


def kind(policy: object) -> tuple[type, type]:
    """Its class, and that of its rule if it has one."""
    return type(policy), type(getattr(policy, "rule", None))


def plain(table: str, name: str) -> Mapping[str, Any]:
    """What `[table]` says of that policy as it is; what it has to be told is 1."""
    defaults = defaults_of(PARTS[table][name])
    return {"policy": name, **{key: 1.0 for key, value in defaults.items() if value is ...}}


def made(table: str, told: Mapping[str, Any], concurrency: int = 20) -> Any:
    """The policy that a table tells; what goes around another goes around a mean."""
    return Part.read(table, told, PARTS[table]).made(concurrency, DiscountedMean())


def without_a_row(table: str, rows: Mapping[str, Callable[[], Any]]) -> list[str]:
    """The names of `[table]` whose like is in none of the rows of a contract."""
    kinds = {kind(make()) for make in rows.values()} | {kind(None)}  # to trust everybody is nobody
    return [name for name in PARTS[table] if kind(made(table, plain(table, name))) not in kinds]


T = TypeVar("T")


def with_those_of_protocols(
    part: str, table: Mapping[str, Callable[[], T]], concurrency: int = 20
) -> dict[str, Callable[[], T]]:
    """The table, and of every kind it lacks one as some protocol has it.

    So a policy that comes with a named protocol is held to its contract by that protocol's row.
    """
    found = dict(table)
    for name in PROTOCOLS:
        make = partial(_part_of, name, part, concurrency)
        if kind(make()) not in {kind(known()) for known in found.values()}:
            found[f"as in {name}"] = make
    return found


def _part_of(name: str, part: str, concurrency: int) -> Any:
    return getattr(PROTOCOLS[name](concurrency), part)
