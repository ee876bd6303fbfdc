"""A day of a million clients, each there at its own hours: what the server costs, and where.

    python benchmarks/scale.py [--folder FOLDER] [--quick]

Training takes no time. Everything is done in one process, in virtual time, with a log of one client
in a hundred on the disk. Four tables: see `CAPTIONS`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints import num_bytes
from control import MODEL, NUM_EXAMPLES, PLAN, Free, Server, resident_bytes
from results import collect, on_disk, parser, plainly, save, scratch, warn_if_busy

from pisces.clients.manager import ClientManager
from pisces.coordinator import Coordinator
from pisces.evaluate import Inline, Schedule
from pisces.execute.availability import Diurnal
from pisces.execute.latency import PerClient, lognormal
from pisces.execute.virtual import VirtualExecutor
from pisces.machine import num_cores
from pisces.names import PROTOCOLS
from pisces.record.checkpoint import Saved, Store
from pisces.record.lines import Recorder, Tee
from pisces.record.summary import Tally
from pisces.record.writer import CHECKPOINTS, EVENTS, RunFolder
from pisces.seeds import generator
from pisces.stop import Stop
from pisces.types import Event

DAY_S, TICK_S, ONLINE_SHARE, SHARE = 86_400.0, 5.0, 0.25, 0.01
MEDIAN_S, SIGMA, CONCURRENCY = 600.0, 0.5, 10_000
NAMES = ("pisces", "fedbuff", "fedavg")
CAPTIONS = {
    "day": f"One run. Clients are there for {ONLINE_SHARE:.0%} of the day, a task takes "
    f"{MEDIAN_S:g} s in the median, {CONCURRENCY} run at once, decisions are taken every "
    f"{TICK_S:g} s. comings_and_goings: after everybody who is there at the start has joined.",
    "where": f"Where the time of that run goes with {NAMES[0]}, once everybody has joined: how "
    "often each thing is done, what one costs, and its share of all. What is told of one part is "
    "in no other.",
    "size": f"The first half hour of the same with {NAMES[0]}, with fewer and more clients and "
    "without a log. made, joined: making the simulator, and taking in those who are there at the "
    "start, per client that there is; bytes_per_client: of resident memory, once they have joined "
    "and at the end; ms_per_tick: selections, aggregations and the loop, without the events.",
    "checkpoint": "Saving that state at the end of the half hour, with an fsync: what is kept per "
    "client is in columns.",
}
Row = dict[str, Any]


class Parts:
    """Seconds and calls of each part; what a part calls of another is that other's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._within = ["the loop and the pace"]
        self._since = time.perf_counter()

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, measured."""

        def measured(*args: Any) -> Any:
            self._turn_to(name)
            self.calls[name] += 1
            try:
                return call(*args)
            finally:
                self._turn_back()

        return measured

    def _turn_to(self, name: str) -> None:
        self._count()
        self._within.append(name)

    def _turn_back(self) -> None:
        self._count()
        self._within.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        self.seconds[self._within[-1]] += now - self._since
        self._since = now


def server(num: int, protocol: str, stop: Stop, recorder: Recorder) -> Server:
    """A server of so many clients, each with its own hours and its own pace."""
    policies = PROTOCOLS[protocol](min(CONCURRENCY, num // 20))
    base_s = lognormal(num, MEDIAN_S, SIGMA, generator(1, "latency"))
    manager = ClientManager(MODEL.layout, judge=policies.judge)
    hours = Diurnal(DAY_S, ONLINE_SHARE, seed=1)
    sizes = np.full(num, NUM_EXAMPLES)
    executor = VirtualExecutor(
        Free(), sizes, PerClient(base_s), layout=MODEL.layout, availability=hours
    )
    coordinator = Coordinator(
        policies=policies,
        executor=executor,
        manager=manager,
        evaluator=Inline(lambda _version, _weights: {"accuracy": 0.5}),
        recorder=recorder,
        weights=MODEL,
        plans=lambda _version: PLAN,
        stop=stop,
        schedule=Schedule(every_s=600.0),
        seed=1,
        tick_s=TICK_S,
    )
    return Server(coordinator, manager, executor)


def watch(whole: Server) -> Parts:
    """Measure what is called from now on."""
    parts = Parts()
    its: Any = whole.coordinator
    observe = whole.manager.observe
    kinds = {"Arrived": "an update is checked and kept"}
    timed = {
        kind: parts.timed(kinds.get(kind, "somebody comes or goes"), observe)
        for kind in ("Arrived", "Joined", "Left", "Failed")
    }

    def by_kind(event: Event, wanted: Any) -> Any:
        return timed[type(event).__name__](event, wanted)

    def put(owner: Any, method: str, name: str) -> None:
        setattr(owner, method, parts.timed(name, getattr(owner, method)))

    whole.manager.observe = by_kind  # type: ignore[method-assign]
    put(its._executor, "wait", "virtual time: sessions, results")
    put(its._recorder, "record", "log and counts")
    put(its._selector, "pick", "who: a selection")
    put(its, "_start", "a task is started")
    put(its, "_aggregate", "how: an aggregation")
    return parts


def day(num: int, protocol: str, until_s: float, folder: Path) -> Iterator[Row]:
    """A whole run with its log."""
    began, tally = time.perf_counter(), Tally()
    log = RunFolder.create(folder, "")
    log.write_sample(SHARE)
    whole = server(num, protocol, Stop(time_s=until_s), Tee(log, tally))
    whole.coordinator.step()
    set_up_s, at_first = time.perf_counter() - began, tally.summary()["num_clients"]
    parts = watch(whole)
    cpu = time.process_time()
    whole.coordinator.run()
    parts._count()
    cpu_s, told = time.process_time() - cpu, tally.summary()
    come = parts.calls["somebody comes or goes"]
    yield {
        "table": "day",
        "num_clients": num,
        "protocol": protocol,
        "virtual_h": told["at"] / 3600,
        "joined_at_first": at_first,
        "comings_and_goings": come,
        "updates": told["num_updates"],
        "versions": told["versions"],
        "ticks": round(told["at"] / TICK_S),
        "set_up_s": set_up_s,
        "wall_s": time.perf_counter() - began,
        "cpu_s": cpu_s,
        "rss_mb": resident_bytes() / 1e6,
        "log_mb": (folder / EVENTS).stat().st_size / 1e6,
    }
    if protocol == NAMES[0]:
        yield from where(parts)


def where(parts: Parts) -> Iterator[Row]:
    total = sum(parts.seconds.values())
    for name, seconds in sorted(parts.seconds.items(), key=lambda part: -part[1]):
        num = parts.calls[name] or None
        each = 1e6 * seconds / num if num else None
        row = {"table": "where", "part": name, "times": num, "seconds": seconds, "us_each": each}
        yield row | {"percent": 100 * seconds / total}


def size(num: int, until_s: float, folder: Path) -> Iterator[Row]:
    """What a number of clients costs, to begin with and as time goes by."""
    server(1000, NAMES[0], Stop(time_s=1.0), Tee()).coordinator.run()  # loads what is to be loaded
    before, began = resident_bytes(), time.process_time()
    whole = server(num, NAMES[0], Stop(time_s=until_s), Tee(Tally()))
    made_s, began = time.process_time() - began, time.process_time()
    whole.coordinator.step()
    joined_s, joined_bytes = time.process_time() - began, resident_bytes() - before
    parts = watch(whole)
    while whole.executor.now < until_s - TICK_S:
        whole.coordinator.step()
    parts._count()
    events = {"an update is checked and kept": "update", "somebody comes or goes": "coming"}
    seconds, calls = parts.seconds, parts.calls
    a_decision = [name for name in seconds if name.startswith(("who", "how", "the loop"))]
    num_events = sum(calls[name] for name in events)
    yield {
        "table": "size",
        "num_clients": num,
        "made_us_per_client": 1e6 * made_s / num,
        "joined_us_per_client": 1e6 * joined_s / num,
        "joined_bytes_per_client": joined_bytes / num,
        "bytes_per_client": (resident_bytes() - before) / num,
        **{f"us_per_{what}": 1e6 * seconds[name] / calls[name] for name, what in events.items()},
        "us_of_time_per_event": 1e6 * seconds["virtual time: sessions, results"] / num_events,
        "ms_per_tick": 1e3 * sum(seconds[name] for name in a_decision) * TICK_S / until_s,
        "comings_per_tick": calls["somebody comes or goes"] * TICK_S / until_s,
    }
    yield checkpoint(whole, num, folder)


def checkpoint(whole: Server, num: int, folder: Path) -> Row:
    began = time.perf_counter()
    state = whole.coordinator.state()
    taken_s = time.perf_counter() - began
    log = RunFolder.create(folder, "")
    path = Store(folder).save(Saved(state, log.position, {}, "", 0.0), keep=1)
    whole_s, size = time.perf_counter() - began, num_bytes(folder / CHECKPOINTS)
    row = {"table": "checkpoint", "num_clients": num, "mb": size / 1e6}
    row |= {"bytes_per_client": size / num, "json_mb": path.stat().st_size / 1e6}
    return row | {"taken_s": taken_s, "whole_s": whole_s}


def alone(measure: Callable[..., Iterator[Row]], *args: Any) -> list[Row]:
    """In a process of its own, where nothing else was allocated."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(partial(_listed, measure), args)


def _listed(measure: Callable[..., Iterator[Row]], *args: Any) -> list[Row]:
    torch.set_num_threads(1)
    return list(measure(*args))


def measure(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    num, day_s = (20_000, 3600.0) if args.quick else (1_000_000, DAY_S)
    sizes = (10_000, 20_000) if args.quick else (100_000, 1_000_000, 10_000_000)
    for name in NAMES:  # of the others a part of the day is enough
        until_s = day_s if name == NAMES[0] else day_s / 4
        yield from alone(day, num, name, until_s, folder / name)
    for each in sizes:
        yield from alone(size, each, 1800.0, folder / str(each))


def main() -> None:
    its = on_disk(parser(__doc__.splitlines()[0], quick="an hour of 20 000 clients"))
    args = its.parse_args()
    warn_if_busy()
    with scratch(args) as folder:
        rows = collect(measure(args, folder))
    save(args, f"scale-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    plainly(main)
