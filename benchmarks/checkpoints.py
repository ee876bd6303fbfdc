"""What checkpoints cost: their share of a run's time, and how long one of a large model takes.

    python benchmarks/checkpoints.py [--minutes 5] [--folder FOLDER] [--quick]

The data is random; what is trained, and how, is that of the paper's MNIST task. `--folder` names a
place on the disk to be measured.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from results import collect, on_disk, parser, plainly, save, scratch, warn_if_busy
from torch import nn

from pisces import build, simulation
from pisces.data.federated import FederatedData
from pisces.evaluate import Schedule
from pisces.execute.latency import PerClient, zipf
from pisces.machine import num_cores
from pisces.models.lenet5 import lenet5
from pisces.models.resnet18 import resnet18
from pisces.parts import Simulation
from pisces.record.checkpoint import Checkpoints, Saved, Store
from pisces.record.keeper import Keeper
from pisces.record.lines import Memory
from pisces.record.writer import CHECKPOINTS, Position
from pisces.seeds import generator
from pisces.stop import Stop
from pisces.train.base import Outcome, Trainer
from pisces.types import Entry, Plan, Report, Task, Weights

NUM_CLIENTS, CONCURRENCY = 200, 20
NUM_EACH = 4  # samples, where nobody trains
CAPTIONS = {
    "share": "LeNet-5, 200 clients of 100 samples, 20 at a time, five epochs; checkpoints at their "
    "default settings. saving_s: all they took; percent: of the run's time.",
    "one": "A single checkpoint of Pisces at C = 20 after so many versions, training left out. "
    "again: the next one, an aggregation later.",
}
Row = dict[str, Any]


def federation(shape: tuple[int, ...], num_each: int) -> FederatedData:
    """Random images."""
    rng = torch.Generator().manual_seed(1)
    inputs = torch.randn(num_each, *shape, generator=rng)
    pairs = [(inputs, torch.randint(10, (num_each,), generator=rng)) for _ in range(NUM_CLIENTS)]
    return FederatedData.from_clients(pairs, pairs[0])


def parts(kind: type[Simulation], model: nn.Module, data: FederatedData) -> Simulation:
    """Pisces, with the paper's latencies."""
    seconds = zipf(NUM_CLIENTS, 1.2, 15.0, 180.0, generator(1, "latency"))
    return kind(
        policies=build.protocol("pisces", CONCURRENCY),
        model=model,
        data=data,
        latency=PerClient(seconds),
        stop=Stop(time_s=1e9),
        plans=lambda _version: Plan(epochs=5, batch_size=32),
        schedule=Schedule(every_s=20.0),
        device="cpu",
    )


# --- their share of a run -------------------------------------------------------------------------


class Bell(Memory):
    """Rings once so many seconds have passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._ends_at: float | None = time.monotonic() + seconds

    def record(self, entry: Entry) -> None:
        if self._ends_at is not None and time.monotonic() >= self._ends_at:
            self._ends_at = None
            signal.raise_signal(signal.SIGINT)


@dataclass
class Saves:
    """How long each checkpoint took."""

    seconds: list[float] = field(default_factory=list)

    def timed(self, saving: Callable[[Keeper, int], None]) -> Callable[[Keeper, int], None]:
        """The same, but noted."""

        def save(keeper: Keeper, keep: int) -> None:
            began = time.perf_counter()
            saving(keeper, keep)
            self.seconds.append(time.perf_counter() - began)

        return save


def share(folder: Path, seconds: float) -> Row:
    """A run of so many seconds."""
    run, saves = parts(Simulation, lenet5((1, 28, 28), 10), federation((1, 28, 28), 100)), Saves()
    began = time.perf_counter()
    with patch.object(Keeper, "_save", saves.timed(Keeper._save)):
        try:
            how = Checkpoints()
            more: dict[str, Any] = {"out": folder / "run", "checkpoints": how}
            simulation.run(run, protocol="pisces", listener=Bell(seconds), **more)
        except KeyboardInterrupt:
            wall_s = time.perf_counter() - began
    saving_s = sum(saves.seconds)
    return {
        "table": "share",
        "wall_s": wall_s,
        "checkpoints": len(saves.seconds),
        "saving_s": saving_s,
        "slowest_s": max(saves.seconds),
        "percent": 100 * saving_s / wall_s,
        "on_disk_mb": num_bytes(folder / "run" / CHECKPOINTS) / 1e6,
    }


def num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- a single one ---------------------------------------------------------------------------------


class Nudging(Trainer):
    """Takes no time but that of a copy: other weights, and some loss."""

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        for task in tasks:
            weights = Weights(task.weights.flat * 1.001, task.weights.layout)
            loss = 1.0 + task.seed % 1000 / 1000
            yield Outcome(task.id, weights, Report(NUM_EACH, loss, 1.1 * loss, 1))


@dataclass(frozen=True, eq=False)
class Untrained(Simulation):
    """A simulation that does not train."""

    def trainer(self, device: torch.device) -> Trainer:
        return Nudging()


def single(folder: Path, name: str, model: nn.Module, shape: tuple[int, ...], num: int) -> Row:
    """A checkpoint after `num` versions, the next one, and how long it takes to go back to it."""
    memory, store = Memory(), Store(folder / name)
    coordinator = build.simulated(parts(Untrained, model, federation(shape, NUM_EACH)), memory)

    def write() -> None:
        store.save(Saved(coordinator.state(), Position(), {}, "", 0.0), keep=2)

    turn_until(coordinator.step, memory, num)
    first_s, first_bytes = seconds_of(write), num_bytes(folder / name)
    turn_until(coordinator.step, memory, num + 1)
    again_s, again_bytes = seconds_of(write), num_bytes(folder / name) - first_bytes
    load_s = seconds_of(lambda: Store(folder / name).last(lambda _: None, torch.device("cpu")))
    return {
        "table": "one",
        "model": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": num,
        "first_s": first_s,
        "first_mb": first_bytes / 1e6,
        "again_s": again_s,
        "again_mb": again_bytes / 1e6,
        "load_s": load_s,
    }


def turn_until(step: Callable[[], None], memory: Memory, num: int) -> None:
    """So many versions."""
    while sum(line["kind"] == "aggregated" for line in memory.lines) < num:
        step()


def seconds_of(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def measure(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    num = 5 if args.quick else 100
    yield single(folder, "lenet5", lenet5((1, 28, 28), 10), (1, 28, 28), num)
    if not args.quick:
        yield single(folder, "resnet18", resnet18((3, 32, 32), 10), (3, 32, 32), num)
    yield share(folder, 5.0 if args.quick else 60 * args.minutes)


def options() -> argparse.Namespace:
    its = on_disk(parser(__doc__.splitlines()[0], quick="5 seconds, no large model"))
    its.add_argument("--minutes", type=float, default=5.0, help="of the run whose time is shared")
    return its.parse_args()


def main() -> None:
    args = options()
    warn_if_busy()
    torch.set_num_threads(1)
    with scratch(args) as folder:
        rows = collect(measure(args, folder))
    save(args, f"checkpoints-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    plainly(main)
