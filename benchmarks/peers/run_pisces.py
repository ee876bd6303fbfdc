"""Pisces: FedAvg on the shared task, in virtual time, one process per worker."""

from __future__ import annotations

import argparse
from dataclasses import replace
from multiprocessing import active_children
from typing import Any

import numpy as np
import prepare
import task

import pisces
from pisces import build, config, simulation
from pisces.parts import Simulation
from pisces.types import Aggregated, Entry, Plan, Started


class Laps:
    """Listens to a run and notes when each version is made, and by how many processes."""

    def __init__(self, watch: task.Stopwatch) -> None:
        self._watch = watch
        self._running = False
        self.num_workers = 1

    def record(self, entry: Entry) -> None:
        match entry:
            case Started() if not self._running:
                self._running = True
                self._watch.start()
            case Aggregated():
                self._watch.lap()
                self.num_workers = max(self.num_workers, len(active_children()))

    def close(self) -> None:
        return


def settings(args: argparse.Namespace) -> config.Config:
    """The shared task as a config, with as many workers as asked for."""
    changes: dict[str, Any] = {
        "clients.concurrency": args.cohort_size,
        "train.epochs": max(args.epochs, 1),
        "train.backend": "sequential" if args.workers == 1 else "pool",
        "train.workers": args.workers,
        "evaluate.every_s": "inf",
        "evaluate.every_versions": args.cohorts,
        "stop": f"{{time_s = inf, versions = {args.cohorts}}}",
    }
    return prepare.settings(changes)


def without_training(parts: Simulation, num_clients: int) -> Simulation:
    """Everything but the steps, for any number of clients."""
    rows = tuple(parts.data.rows[c % 200][:1] for c in range(num_clients))
    return replace(
        parts,
        data=replace(parts.data, rows=rows),
        latency=pisces.PerClient(np.full(num_clients, 60.0)),
        plans=lambda _version: Plan(max_steps=0),
    )


def main() -> None:
    args = task.arguments()
    parts = build.simulation(settings(args))
    with np.load(args.data) as shared:
        if not np.array_equal(shared["rows"], np.stack(parts.data.rows)):
            raise SystemExit(f"{args.data} is of another partition: write it again")
    if args.epochs == 0:
        parts = without_training(parts, args.clients)
    watch = task.Stopwatch()
    laps = Laps(watch)
    result = simulation.run(parts, protocol="fedavg", listener=laps)
    if laps.num_workers != args.workers:
        raise SystemExit(f"{laps.num_workers} processes trained, not {args.workers}")
    accuracy = result.summary["final"]["accuracy"]
    task.report("pisces", args, watch.cohorts_s, accuracy=accuracy, version=pisces.__version__)


if __name__ == "__main__":
    main()
