"""What looking at a long run costs: taking in its log, and each answer and figure from it.

    python benchmarks/watching_index.py [--quick]

A log of a million events and ten thousand clients is made up, as the simulator would write it with
its decisions, then read and asked. Two tables: see `CAPTIONS`.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from results import collect, on_disk, parser, save, scratch, warn_if_busy
from watching import MIB, resident_bytes

from pisces.machine import num_cores
from pisces.record.lines import Line, encode
from pisces.report import figures
from pisces.report.costs import costs
from pisces.report.goal import Goal
from pisces.report.ledger import Ledger, client_rows, client_story, overview
from pisces.report.ledger.summary import ReadRun
from pisces.seeds import generator

NUM_EVENTS, NUM_CLIENTS, CONCURRENCY, PER_VERSION = 1_000_000, 10_000, 200, 4
NUM_NEW = 1000
CONFIG = f"""
protocol = "pisces-paper"
seed = 1
[clients]
concurrency = {CONCURRENCY}
credits = 5
[stop]
time_s = 1e7
target = 0.9
[protocols.pisces-paper]
outlier_window = 5
"""
CAPTIONS = {
    "reading": "Taking in the log, as far as it is, and what was added to it. memory: of the whole "
    "process, beyond what it took before; columns: of that, what the tables hold.",
    "answers": "What a page asks for, from a ledger that is whole: the median of five times. "
    "kilobytes: of JSON that is sent.",
}
Row = dict[str, Any]


class Made:
    """A run that trains nothing: who is free is started, who is done arrives."""

    def __init__(self, num_clients: int) -> None:
        self._rng = generator(1, "log")
        self._latency = self._rng.uniform(15.0, 180.0, num_clients)
        self._free = list(range(num_clients))
        self._running: list[tuple[float, int, int, int]] = []  # ends at, task, client, version
        self._buffer: list[tuple[int, int]] = []
        self._changed: list[int] = []
        self._tasks = self._version = 0
        self._at = 0.0

    def lines(self) -> Iterator[Line]:
        """For ever."""
        for client in range(len(self._latency)):
            size = int(self._rng.integers(20, 500))
            yield {"kind": "joined", "at": 0.0, "client": client, "num_examples": size}
        yield from self._evaluated()
        while True:
            yield from self._select(CONCURRENCY - len(self._running))
            yield from self._end(*heapq.heappop(self._running))
            if len(self._buffer) >= PER_VERSION:
                yield from self._aggregate()

    def _select(self, slots: int) -> Iterator[Line]:
        places = sorted(self._rng.integers(0, len(self._free), slots).tolist(), reverse=True)
        clients = [self._free.pop(place) for place in dict.fromkeys(places)]
        others, self._changed = self._changed, []
        told = {"terms": ["utility", "discount", "score"], "scores": self._scores(len(clients))}
        rest = {"others": others, "other_scores": self._scores(len(others))} if others else {}
        seats = {"slots": slots, "num_free": len(self._free) + slots, "clients": clients}
        yield {"kind": "picked", "at": self._at, "version": self._version, **seats, **told, **rest}
        for client in clients:
            own = {"task": self._tasks, "client": client, "version": self._version}
            yield {"kind": "started", "at": self._at, **own}
            ends_at = self._at + float(self._latency[client])
            heapq.heappush(self._running, (ends_at, self._tasks, client, self._version))
            self._tasks += 1

    def _scores(self, num: int) -> list[list[float]]:
        return [[round(100 * x, 3) for x in row] for row in self._rng.random((num, 3)).tolist()]

    def _end(self, at: float, task: int, client: int, version: int) -> Iterator[Line]:
        self._at = at
        own = {"task": task, "client": client}
        if self._rng.random() < 0.01:
            self._free.append(client)
            yield {"kind": "failed", "at": at, **own, "reason": "crashed"}
            return
        loss = float(self._rng.lognormal(0.0, 0.3))
        told = {"loss": loss, "loss_rms": 1.1 * loss, "loss_left": loss / 3}
        told["latency_s"] = float(self._latency[client])
        size = {"version": version, "num_examples": 50}
        yield {"kind": "arrived", "at": at, **own, **size, **told, "num_steps": 10}
        if loss > 2.0:
            yield {"kind": "outlier", "at": at, **own, "credits": 4}
        self._buffer.append((task, version))
        self._free.append(client)
        self._changed.append(client)

    def _aggregate(self) -> Iterator[Line]:
        stale = [self._version - version for _, version in self._buffer]
        own = {"tasks": [task for task, _ in self._buffer], "staleness": stale}
        own["weights"] = [1 / len(stale)] * len(stale)  # type: ignore[list-item]
        pace = {"slowest_s": 180.0, "limit_s": 36.0, "bound": 5}
        self._version, self._buffer = self._version + 1, []
        yield {"kind": "aggregated", "at": self._at, "version": self._version, **own, "pace": pace}
        if self._version % 10 == 0:
            yield from self._evaluated()

    def _evaluated(self) -> Iterator[Line]:
        accuracy = 0.95 * (1 - np.exp(-self._version / 2e4)) + 0.02 * self._rng.random()
        yield {
            "kind": "evaluated",
            "at": self._at,
            "version": self._version,
            "accuracy": float(accuracy),
            "loss": float(2.3 - 2 * accuracy),
        }


def write(folder: Path, lines: Iterator[Line], num: int) -> None:
    with (folder / "events.jsonl").open("ab") as file:
        for _ in range(num):
            file.write(encode(next(lines)))


def reading(ledger: Ledger, what: str, num: int) -> Row:
    before, began = resident_bytes(), time.perf_counter()
    while not ledger.read(most_s=0.1) or not ledger.is_whole:
        pass
    took = time.perf_counter() - began
    return {
        "table": "reading",
        "what": what,
        "events": num,
        "seconds": round(took, 3),
        "us_per_event": round(1e6 * took / num, 1),
        "memory_mib": round((resident_bytes() - before) / MIB),
        "columns_mib": round(ledger.notes.num_bytes / MIB),
    }


def answer(name: str, ask: Callable[[], Any]) -> Row:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        found = ask()
        times.append(1000 * (time.perf_counter() - began))
    if isinstance(found, figures.Figure):
        found = [list(found.data), dict(found.layout), found.words]
    size = len(json.dumps(found, default=str)) / 1000
    row = {"table": "answers", "what": name, "median_ms": round(median(times), 1)}
    return row | {"worst_ms": round(max(times), 1), "kilobytes": round(size)}


def answers(ledger: Ledger) -> Iterator[Row]:
    end = ledger.notes.at
    goal, runs = Goal.watched([ledger]), [ReadRun.of(ledger)] * 2
    asked: dict[str, Callable[[], Any]] = {
        "overview": lambda: overview(ledger),
        "clients, by id": lambda: client_rows(ledger),
        "clients, by score, found": lambda: client_rows(ledger, order="score", find="7"),
        "one client, newest": lambda: client_story(ledger, 7),
        "one client, oldest": lambda: client_story(ledger, 7, first=10_000),
        "curve": lambda: figures.curve(ledger, goal),
        "timeline, whole": lambda: figures.timeline(ledger),
        "timeline, last hundredth": lambda: figures.timeline(ledger, since=0.99 * end),
        "intervals": lambda: figures.intervals(ledger),
        "contributors": lambda: figures.contributors(ledger),
        "staleness": lambda: figures.staleness(ledger),
        "losses": lambda: figures.losses(ledger),
        "curves of two runs": lambda: figures.compare_curves(runs, goal),
        "times of two runs": lambda: figures.compare_times(runs, goal),
        "costs of two runs": lambda: costs([ledger, ledger]),
    }
    for name, ask in asked.items():
        yield answer(name, ask)


def measure(folder: Path, quick: bool) -> Iterator[Row]:
    num, num_clients = (50_000, 1000) if quick else (NUM_EVENTS, NUM_CLIENTS)
    (folder / "config.toml").write_text(CONFIG)
    lines = Made(num_clients).lines()
    write(folder, lines, num)
    ledger = Ledger(folder)
    yield reading(ledger, "all", num)
    write(folder, lines, NUM_NEW)
    yield reading(ledger, "what was added", NUM_NEW)
    yield from answers(ledger)


def main() -> None:
    made = on_disk(parser("What looking at a long run costs.", quick="a twentieth of it"))
    args = made.parse_args()
    warn_if_busy()
    with scratch(args) as folder:
        rows = collect(measure(folder, args.quick))
    save(args, f"watching-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    main()
