"""What a journal costs: seconds per task of a run in real time, with and without a flush.

    python benchmarks/journal.py [--folder FOLDER] [--quick]

Clients answer at once with random weights, one per turn, so that nothing but the loop and the
journal takes time. `--folder` names a place on the disk to be measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from results import collect, on_disk, parser, plainly, save, scratch, warn_if_busy

from pisces.execute.base import Executor
from pisces.execute.fake import FakeExecutor
from pisces.execute.journal import Journaled
from pisces.execute.tape import Tape
from pisces.machine import num_cores
from pisces.record.journal import Journal, Journaling
from pisces.types import Arrived, Event, Joined, Layout, Plan, Report, Slice, Task, Weights

MODELS = {"lenet5": 61_706, "resnet18": 11_173_962}  # their numbers of parameters
NUM_ROUNDS = 5
CAPTIONS = {
    "journal": "task_ms: of a task submitted and its update taken in, without a journal (none), "
    "with one that a kill does not harm (written), and with one that no power failure does "
    "(synced); medians of five rounds. replay_ms: the same task, told again after a kill."
}
Row = dict[str, Any]


def weights_of(num: int) -> Weights:
    flat = torch.randn(num, generator=torch.Generator().manual_seed(1))
    return Weights(flat, Layout((Slice("w", (num,), "float32", "parameter", 0, num),)))


def served(weights: Weights) -> Executor:
    """A client that answers at once."""

    def answer(task: Task, now: float) -> Iterable[Event]:
        yield Arrived(now + 1.0, task.id, 0, weights, Report(100, 1.0, 1.1))

    return FakeExecutor([Joined(0.0, 0, 100)], answer)


def task_s(executor: Executor, weights: Weights, num: int) -> float:
    """Seconds per task; each is from a version of its own, as in the worst case it is."""
    executor.wait(0.0)
    versions = [Weights(weights.flat.clone(), weights.layout) for _ in range(num)]
    began = time.perf_counter()
    for number, version in enumerate(versions):
        executor.submit(Task(number, 0, number, version, Plan(), 1))
        executor.wait(float("inf"))
    executor.wait(0.0)  # the last update is acknowledged, too
    return (time.perf_counter() - began) / num


def measured(folder: Path, weights: Weights, num: int) -> dict[str, float]:
    """One round of every kind."""
    journals = {
        kind: Journal(folder / kind, {}, Journaling(sync=kind == "synced"))
        for kind in ("written", "synced")
    }
    found = {"none": task_s(served(weights), weights, num)}
    for kind, journal in journals.items():
        executor = Journaled(served(weights), Tape(journal), weights)
        found[kind] = task_s(executor, weights, num)
        executor.close()
    tape = Tape(Journal(folder / "written", {}))
    began = time.perf_counter()
    tape.go_to()
    looked_s = (time.perf_counter() - began) / num
    found["replay"] = looked_s + task_s(Journaled(served(weights), tape, weights), weights, num)
    for kind in journals:
        Journal(folder / kind, {}).remove_before(2)
    return found


def measure(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    for name, num_parameters in MODELS.items():
        if args.quick and name != "lenet5":
            continue
        num, weights = (500 if name == "lenet5" else 10), weights_of(num_parameters)
        rounds = [
            measured(folder / f"{name}-{number}", weights, num)
            for number in range(1 if args.quick else NUM_ROUNDS)
        ]
        row = {f"{kind}_ms": 1e3 * median(r[kind] for r in rounds) for kind in rounds[0]}
        yield {"table": "journal", "model": name, "parameters": num_parameters, "tasks": num, **row}


def options() -> argparse.Namespace:
    its = on_disk(parser(__doc__.splitlines()[0], quick="one round, no large model"))
    return its.parse_args()


def main() -> None:
    args = options()
    warn_if_busy()
    torch.set_num_threads(1)
    with scratch(args) as folder:
        rows = collect(measure(args, folder))
    save(args, f"journal-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    plainly(main)
