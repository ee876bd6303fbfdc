"""The paper's MNIST run from end to end: how long it takes, and what it comes to.

    PISCES_DATA=folder python benchmarks/paper_mnist.py [--protocols pisces,fedbuff] [--quick]

LeNet-5, 200 clients of 500 samples, 20 at a time, latencies of 15 to 180 s, 1015 virtual seconds. A
CPU needs many minutes for all of it, so there the run is cut at 120 virtual seconds unless
`--time-s` says otherwise; accuracy and time to target then say nothing yet.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from results import save

from pisces import build, config, simulation
from pisces.record.summary import time_to_target
from pisces.train.base import Outcome, Trainer
from pisces.train.batched import BatchedTrainer
from pisces.train.pool import PoolTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Entry, Evaluated, Task

TRAINERS = (SequentialTrainer, PoolTrainer, BatchedTrainer)
TARGET, PAPER_S, SHORT_S = 0.978, 1015.0, 120.0
SETTINGS = """
tick_s = 5

[clients]
count = 200
concurrency = 20

[data]
dataset = "mnist"
partition = "dirichlet"
alpha = 1.0
size = 500
overlap = true

[model]
name = "lenet5"

[train]
learning_rate = 0.01
momentum = 0.9
batch_size = 32
epochs = 5

[latency]
kind = "zipf"
a = 1.2
min_s = 15
max_s = 180

[evaluate]
every_s = 20
"""
Train = Callable[[Any, Sequence[Task]], Iterator[Outcome]]


class TrainingTime:
    """Seconds and samples spent in trainers, whichever the run chooses."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.num_samples = 0
        self._inside = False

    def timed(self, train: Train) -> Train:
        """The same method, but counted."""

        def counted(trainer: Trainer, tasks: Sequence[Task]) -> Iterator[Outcome]:
            outcomes = train(trainer, tasks)
            if self._inside:  # a trainer that leaves some tasks to another
                yield from outcomes
                return
            epochs = {task.id: task.plan.epochs for task in tasks}
            while (outcome := self._next(outcomes)) is not None:
                self.num_samples += epochs[outcome.task_id] * outcome.report.num_examples
                yield outcome

        return counted

    def _next(self, outcomes: Iterator[Outcome]) -> Outcome | None:
        began, self._inside = time.perf_counter(), True
        try:
            return next(outcomes, None)
        finally:
            self._inside = False
            self.seconds += time.perf_counter() - began


class Progress:
    """Shows the last evaluation while a run goes on."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol

    def record(self, entry: Entry) -> None:
        if isinstance(entry, Evaluated):
            accuracy = entry.metrics["accuracy"]
            print(f"{self._protocol}: {entry.at:.0f} s, accuracy {accuracy:.3f}", flush=True)

    def close(self) -> None:
        return


def settings(protocol: str, args: argparse.Namespace) -> config.Config:
    changes = [f"protocol={protocol}", f"seed={args.seed}", f"stop.time_s={args.time_s}"]
    for key in ("device", "backend", "workers"):
        if (value := getattr(args, key)) is not None:
            changes.append(f"train.{key}={value}")
    return config.parse(SETTINGS, changes)


def measure(protocol: str, args: argparse.Namespace) -> dict[str, Any]:
    """One run, from reading the data to the last evaluation."""
    training, began = TrainingTime(), time.perf_counter()
    with ExitStack() as stack:
        for trainer in TRAINERS:
            stack.enter_context(patch.object(trainer, "train", training.timed(trainer.train)))
        parts = build.simulation(settings(protocol, args))
        result = simulation.run(parts, protocol=protocol, listener=Progress(protocol))
    wall_s = time.perf_counter() - began
    return {
        "protocol": protocol,
        "virtual_s": args.time_s,
        "backend": args.backend or "auto",
        "wall_s": wall_s,
        "run_s": result.summary["wall_s"],
        "training_s": training.seconds,
        "samples": training.num_samples,
        "samples_per_s": training.num_samples / training.seconds,
        "updates": result.summary["num_updates"],
        "versions": result.summary["versions"],
        "accuracy": result.summary["final"]["accuracy"],
        "time_to_97.8_s": time_to_target(result.curve(), TARGET, "accuracy"),
    }


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--protocols", default="pisces,fedbuff,oort,fedavg")
    parser.add_argument("--time-s", type=float, help="virtual seconds; the paper's run has 1015")
    parser.add_argument("--quick", action="store_true", help="40 virtual seconds")
    parser.add_argument("--device", help="cpu or cuda; by default a GPU if there is one")
    parser.add_argument("--backend", help="auto, sequential, pool or batched")
    parser.add_argument("--workers", type=int, help="processes of the pool")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", help="of the results; by default after the machine")
    args = parser.parse_args()
    if args.time_s is None:
        args.time_s = 40.0 if args.quick else PAPER_S if on_gpu(args) else SHORT_S
    return args


def on_gpu(args: argparse.Namespace) -> bool:
    if args.device in (None, "auto"):
        return torch.cuda.is_available()
    return str(args.device).startswith("cuda")


def main() -> None:
    args = options()
    rows = [measure(protocol, args) for protocol in args.protocols.split(",")]
    where = "gpu" if on_gpu(args) else f"{len(os.sched_getaffinity(0))}cores"
    short = "" if args.time_s >= PAPER_S else f" Cut short at {args.time_s:.0f} virtual seconds."
    save(
        args.name or f"paper-mnist-{where}",
        rows,
        "The paper's MNIST task (LeNet-5, 200 clients of 500 samples, 20 at a time), seed "
        f"{args.seed}. wall_s: all, with reading the data; run_s: the run; training_s: of it in "
        f"the trainer, to which samples_per_s refers.{short}",
    )


if __name__ == "__main__":
    main()
