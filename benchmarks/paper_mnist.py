"""The paper's MNIST run from end to end: how long it takes, and what it comes to.

    PISCES_DATA=folder python benchmarks/paper_mnist.py [--protocols pisces,fedbuff] [--quick]

LeNet-5, 200 clients of 500 samples, 20 at a time, latencies of 15 to 180 s, 1015 virtual seconds. A
CPU needs many minutes for all of it, so there the run is cut at 120 virtual seconds unless
`--time-s` says otherwise; accuracy and time to target then say nothing yet.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from results import parser, plainly, save, warn_if_busy

from pisces import build, config, simulation, tables
from pisces.machine import num_cores
from pisces.parts import Simulation
from pisces.record.summary import time_to_target
from pisces.train.base import Outcome, Trainer
from pisces.types import Entry, Evaluated, Task

PAPER = Path(__file__).parents[1] / "experiments" / "first_look" / "mnist.toml"
SHORT_S, QUICK_S = 120.0, 20.0


@dataclass
class Training:
    """What was spent in a trainer, and on how much."""

    seconds: float = 0.0
    num_samples: int = 0


class TimedTrainer(Trainer):
    """The same as the trainer it is given, but counted."""

    def __init__(self, trainer: Trainer, training: Training) -> None:
        self._trainer, self._training = trainer, training

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        outcomes = self._trainer.train(tasks)
        epochs = {task.id: task.plan.epochs for task in tasks}
        while (outcome := self._next(outcomes)) is not None:
            self._training.num_samples += epochs[outcome.task_id] * outcome.report.num_examples
            yield outcome

    def close(self) -> None:
        self._trainer.close()

    def _next(self, outcomes: Iterator[Outcome]) -> Outcome | None:
        began = time.perf_counter()
        outcome = next(outcomes, None)
        self._training.seconds += time.perf_counter() - began
        return outcome


@dataclass(frozen=True, eq=False)
class TimedSimulation(Simulation):
    """A simulation whose trainer, whichever it is, is counted."""

    training: Training = field(default_factory=Training)

    def trainer(self, device: torch.device) -> Trainer:
        return TimedTrainer(super().trainer(device), self.training)

    @classmethod
    def of(cls, parts: Simulation) -> TimedSimulation:
        return cls(**{part.name: getattr(parts, part.name) for part in fields(parts)})


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
    """The paper's task; the run goes on beyond its target."""
    changes = [f"protocol={protocol}", f"seed={args.seed}", f"stop={{time_s = {args.time_s}}}"]
    for key in ("device", "backend", "workers"):
        if (value := getattr(args, key)) is not None:
            changes.append(f"train.{key}={value}")
    return config.load(PAPER, changes)


def measure(protocol: str, args: argparse.Namespace) -> dict[str, Any]:
    """One run, from reading the data to the last evaluation."""
    began = time.perf_counter()
    parts = TimedSimulation.of(build.simulation(settings(protocol, args)))
    result = simulation.run(parts, protocol=protocol, listener=Progress(protocol))
    wall_s, training, target = time.perf_counter() - began, parts.training, paper().target
    assert target is not None
    return {
        "protocol": protocol,
        "virtual_s": args.time_s,
        "trained_by": result.summary["trained_by"],
        "wall_s": wall_s,
        "run_s": result.summary["wall_s"],
        "training_s": training.seconds,
        "samples": training.num_samples,
        "samples_per_s": training.num_samples / training.seconds,
        "updates": result.summary["num_updates"],
        "versions": result.summary["versions"],
        "accuracy": result.summary["final"]["accuracy"],
        f"time_to_{100 * target:g}_s": time_to_target(result.curve(), target, "accuracy"),
    }


def options() -> argparse.Namespace:
    its = parser(__doc__.splitlines()[0], quick=f"{QUICK_S:.0f} virtual seconds")
    its.add_argument("--protocols", default="pisces,fedbuff,oort,fedavg")
    its.add_argument("--time-s", type=float, help="virtual seconds; the paper's run has 1015")
    its.add_argument("--device", help="cpu or cuda; by default a GPU if there is one")
    its.add_argument("--backend", help="auto, sequential, pool or batched")
    its.add_argument("--workers", type=int, help="processes of the pool")
    its.add_argument("--seed", type=int, default=1)
    args = its.parse_args()
    if args.time_s is None:
        args.time_s = QUICK_S if args.quick else paper().time_s if on_gpu(args) else SHORT_S
    return args


def paper() -> tables.StopAt:
    """How long the paper's run is, and the accuracy it is to reach."""
    return config.load(PAPER).stop


def on_gpu(args: argparse.Namespace) -> bool:
    if args.device in (None, "auto"):
        return torch.cuda.is_available()
    return str(args.device).startswith("cuda")


def main() -> None:
    args = options()
    warn_if_busy()
    rows = [measure(protocol, args) for protocol in args.protocols.split(",")]
    where = "gpu" if on_gpu(args) else f"{num_cores()}cores"
    whole = args.time_s >= paper().time_s
    short = "" if whole else f" Cut short at {args.time_s:.0f} virtual seconds."
    save(
        args,
        f"paper-mnist-{where}",
        rows,
        "The paper's MNIST task (LeNet-5, 200 clients of 500 samples, 20 at a time), seed "
        f"{args.seed}. wall_s: all, with reading the data; run_s: the run; training_s: of it in "
        f"the trainer, to which samples_per_s refers.{short}",
    )


if __name__ == "__main__":
    plainly(main)
