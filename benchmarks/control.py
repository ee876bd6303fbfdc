"""What the server itself costs, training left out: decisions, joins, memory, and the whole loop.

    python benchmarks/control.py [--quick]

Four tables: see `CAPTIONS`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from results import collect, parser, save, warn_if_busy

from pisces.clients.manager import ClientManager
from pisces.coordinator import Coordinator
from pisces.evaluate import Inline, Schedule
from pisces.execute.latency import PerClient, zipf
from pisces.execute.virtual import VirtualExecutor
from pisces.machine import num_cores
from pisces.names import PROTOCOLS
from pisces.record.lines import Recorder, Tee
from pisces.record.writer import RunFolder
from pisces.seeds import generator
from pisces.stop import Stop
from pisces.train.base import Outcome, Trainer
from pisces.types import Arrived, Joined, Layout, Plan, Report, Slice, Task, Weights

NAMES = ("pisces", "fedbuff", "fedavg", "oort")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SHARES = {"none": 0.0, "half": 0.5, "all": 1.0}  # of the clients that have reported before
CONCURRENCY, PICKED, NUM_EXAMPLES = 1000, 100, 50
MODEL = Weights(torch.zeros(10), Layout((Slice("w", (10,), "float32", "parameter", 0, 10),)))
PLAN = Plan()
CAPTIONS = {
    "decision": f"One selection of {PICKED} clients with all questions to the pacer, while "
    f"{CONCURRENCY} (at most half of them) run. have_reported: of how many clients the server "
    "knows a loss and a latency.",
    "joining": "Making the simulator and taking in all clients. on_disk: with a log of it there.",
    "memory": "What server and simulator together take, once all clients have joined, and once all "
    "have reported as well.",
    "loop": "Everything the loop does for one selected client whose training takes no time: "
    "selection, events, its share of an aggregation and an evaluation. concurrency: how many run.",
}
Row = dict[str, Any]


class Free(Trainer):
    """Training that costs nothing: the same weights, and some loss."""

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        for task in tasks:
            loss = 1.0 + task.seed % 1000 / 1000
            yield Outcome(task.id, task.weights, Report(NUM_EXAMPLES, loss, 1.1 * loss, 1))


@dataclass(frozen=True)
class Server:
    """A loop, and the two parts of it that are looked at or driven from outside."""

    coordinator: Coordinator
    manager: ClientManager
    executor: VirtualExecutor


def server(num: int, protocol: str, concurrency: int, recorder: Recorder | None = None) -> Server:
    """A server of `num` clients, none of which has joined; by default nothing is taken down."""
    policies = PROTOCOLS[protocol](concurrency)
    latency = PerClient(zipf(num, 1.2, 15.0, 180.0, generator(1, "latency")))
    sizes = np.full(num, NUM_EXAMPLES)
    manager = ClientManager(MODEL.layout, judge=policies.judge)
    executor = VirtualExecutor(Free(), sizes, latency, layout=MODEL.layout)
    coordinator = Coordinator(
        policies=policies,
        executor=executor,
        manager=manager,
        evaluator=Inline(lambda _version, _weights: {"accuracy": 0.5}),
        recorder=recorder or Tee(),
        weights=MODEL,
        plans=lambda _version: PLAN,
        stop=Stop(updates=10**9),
        schedule=Schedule(every_versions=1),
        seed=1,
    )
    return Server(coordinator, manager, executor)


def manager_of(num: int, share_known: float) -> ClientManager:
    """A server with `num` clients, so many of which have reported."""
    manager, rng = ClientManager(MODEL.layout), generator(1, "facts")
    manager.observe(Joined(0.0, num - 1, NUM_EXAMPLES), lambda _: True)
    state = manager.table.state()
    known, c = rng.random(num) < share_known, state.arrays
    c["present"][:] = True
    c["num_examples"][:] = rng.integers(20, 500, num)
    c["num_reports"][known] = c["num_picks"][known] = 1
    c["last_version"][known] = rng.integers(0, 50, known.sum())
    c["loss_rms"][known] = c["loss"][known] = rng.lognormal(0, 0.5, known.sum())
    c["latency_s"][known] = rng.uniform(15, 180, known.sum())
    c["recent_staleness"][known, -2:] = rng.integers(0, 20, (known.sum(), 2))
    manager.table.restore(state)
    manager.version = 60
    return manager


class Decisions:
    """All questions are asked and timed while clients come and go."""

    def __init__(self, num: int, protocol: str, share_known: float) -> None:
        self.num_running = min(CONCURRENCY, num // 2)
        self.policies = PROTOCOLS[protocol](self.num_running)
        self.manager = manager_of(num, share_known)
        self.rng, self.num_tasks, self.now = generator(1, "select"), 0, 1000.0

    def turn(self) -> float:
        """How many microseconds a decision took, which is then carried out."""
        selector, pacer = self.policies.selector, self.policies.pacer
        began = time.perf_counter()
        view = self.manager.view(self.now)
        pacer.ready(view)
        pacer.slots(view)
        picks = selector.pick(view, PICKED, self.rng)
        pacer.next_check(view)
        took = 1e6 * (time.perf_counter() - began)
        self.go_on([pick.client for pick in picks])
        return took

    def go_on(self, clients: list[int]) -> None:
        """Start these; the longest running arrive and are aggregated."""
        manager = self.manager
        for client in clients:
            manager.start(Task(self.num_tasks, client, manager.version, MODEL, PLAN, 0), self.now)
            self.num_tasks += 1
        self.now += 1.0
        excess = max(0, len(manager.running) - self.num_running + PICKED)
        for task, _ in list(manager.running.values())[:excess]:
            report = Report(1, 1.0 + task.id % 7, 2.0 + task.id % 7)
            event = Arrived(self.now, task.id, task.client, MODEL, report)
            manager.observe(event, lambda _: True)
        manager.advance(self.now, [0.0] * len(manager.buffer))


def decision(num: int, protocol: str, reported: str, rounds: int) -> Row:
    decisions = Decisions(num, protocol, SHARES[reported])
    times = [decisions.turn() for _ in range(10 + rounds)][10:]  # at first hardly anybody runs
    row = {"table": "decision", "num_clients": num, "protocol": protocol, "have_reported": reported}
    return row | {"median_us": round(median(times)), "worst_us": round(max(times))}


def joining(num: int, *, on_disk: bool) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        recorder = RunFolder.create(folder, "") if on_disk else None
        began = time.perf_counter()
        server(num, "pisces", 20, recorder).coordinator.step()
        took = time.perf_counter() - began
    return {"table": "joining", "num_clients": num, "on_disk": on_disk, "seconds": round(took, 2)}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(num: int) -> list[Row]:
    server(100, "pisces", 10).coordinator.step()  # loads whatever is loaded on first use
    before = resident_bytes()
    whole = server(num, "pisces", 20)
    whole.coordinator.step()
    joined = resident_bytes() - before
    everybody_reports(whole, num)
    reported = resident_bytes() - before
    row, sizes = {"table": "memory", "num_clients": num}, {"joined": joined, "reported": reported}
    return [
        row | {"once_all_have": what, "bytes_per_client": round(size / num)}
        for what, size in sizes.items()
    ]


def everybody_reports(whole: Server, num: int) -> None:
    """Give every free client one task, a thousand at a time."""
    manager, executor = whole.manager, whole.executor
    free = manager.view(executor.now).selectable
    for clients in np.array_split(free, max(1, num // 1000)):
        for client in clients.tolist():
            task = Task(num + client, client, manager.version, MODEL, PLAN, client)
            executor.submit(task)
            manager.start(task, executor.now)
        while manager.running:
            for event in executor.wait(executor.now + 1e5):
                manager.observe(event, lambda _: True)
        manager.advance(executor.now, [0.0] * len(manager.buffer))
    whole.coordinator.step()  # a selection among so many


def loop(num: int, protocol: str, concurrency: int, num_updates: int) -> Row:
    whole = server(num, protocol, concurrency)
    coordinator, manager, costs = whole.coordinator, whole.manager, []
    coordinator.step()  # everybody joins
    for _ in range(20):  # in parts, so that a disturbance spoils only some
        before, began = manager.num_updates, time.perf_counter()
        while manager.num_updates < before + num_updates // 20:
            coordinator.step()
        costs.append(1e6 * (time.perf_counter() - began) / (manager.num_updates - before))
    row = {"table": "loop", "num_clients": num, "protocol": protocol, "concurrency": concurrency}
    return row | {"us_per_selected_client": round(median(costs), 1)}


def measure(quick: bool) -> Iterator[Row]:
    """All of it; `quick` leaves out the million and most repetitions."""
    torch.set_num_threads(1)
    sizes, rounds, num_updates = (SIZES[:3], 10, 1000) if quick else (SIZES, 50, 5000)
    for num, name, reported in product(sizes, NAMES, SHARES):
        yield decision(num, name, reported, rounds)
    yield joining(sizes[-1], on_disk=False)
    yield joining(sizes[-1], on_disk=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # where nothing else was allocated
        yield from pool.apply(memory, (sizes[-1],))
    for num, name, concurrency in product(sizes, NAMES, (20, 100)):
        yield loop(num, name, concurrency, num_updates)


def main() -> None:
    args = parser("What the server itself costs.", quick="leave out the million").parse_args()
    warn_if_busy()
    rows = collect(measure(args.quick))
    save(args, f"control-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    main()
