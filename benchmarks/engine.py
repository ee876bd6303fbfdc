"""How fast clients train: each trainer on the same tasks, beside a plain PyTorch loop.

    PISCES_DATA=folder python benchmarks/engine.py [--quick] [--batched] [--device cuda]

LeNet-5, batch 32, 5 epochs, SGD with momentum 0.9, 12 clients of 500 samples each, or of sizes that
differ. Every contender runs in a process of its own (what one does to the allocator or to threads
must not help another), all of them in each round, round after round. Without MNIST the images are
noise of the same shape, which takes as long.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from results import parser, plainly, save, warn_if_busy
from torch import nn

from pisces.data import finding, partition
from pisces.data.federated import FederatedData
from pisces.machine import num_cores
from pisces.models.flat import flatten, load_flat
from pisces.models.lenet5 import lenet5
from pisces.objective import cross_entropy
from pisces.train.base import Recipe, Trainer
from pisces.types import Plan, Task

PLAN = Plan(epochs=5, batch_size=32, learning_rate=0.01)
RECIPE = Recipe(momentum=0.9)
SIZES = ("equal", "lognormal")
PASSES = 4  # over all tasks, of which the fastest counts: a machine is seldom all ours


# --- the workload ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Clients' data, the model everybody starts from, and one task for each client."""

    data: FederatedData
    model: nn.Module
    tasks: list[Task]

    @property
    def num_samples(self) -> int:
        return PLAN.epochs * int(self.data.num_examples.sum())


def work(sizes: str, num_tasks: int) -> Work:
    rng = np.random.default_rng(1)
    if sizes == "equal":
        counts = np.full(num_tasks, 500)
    else:
        counts = partition.lognormal_sizes(num_tasks, 190, 0.6, rng)
    inputs, targets = images(int(counts.sum()))
    bounds = np.cumsum([0, *counts])
    rows = tuple(np.arange(a, b) for a, b in pairwise(bounds))
    torch.manual_seed(1)
    model = lenet5((1, 28, 28), 10)
    weights = flatten(model)
    tasks = [Task(i, i, 0, weights, PLAN, seed=i) for i in range(num_tasks)]
    return Work(FederatedData(inputs, targets, rows, inputs[:1], targets[:1]), model, tasks)


def images(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    if has_mnist():
        dataset = finding.load("mnist", os.environ["PISCES_DATA"])
        return dataset.inputs[:num].clone(), dataset.targets[:num].clone()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(num, 1, 28, 28, generator=generator)
    return inputs, torch.randint(0, 10, (num,), generator=generator)


def has_mnist() -> bool:
    return Path(os.environ.get("PISCES_DATA", "."), "mnist", "mnist.npz").is_file()


# --- the contenders: each trains these tasks and says the mean loss of their first epochs ---------

Train = Callable[[Sequence[Task]], float]


def plain(work: Work, args: argparse.Namespace) -> Train:
    """The loop one would write: nothing is tuned, statistics are kept as Pisces needs them."""

    def train(tasks: Sequence[Task]) -> float:
        return float(np.mean([_plain(work, task, args.device) for task in tasks]))

    work.model.to(args.device)
    return train


def _plain(work: Work, task: Task, device: str) -> float:
    inputs, targets = (part.to(device) for part in work.data.client(task.client))
    model, losses_seen = work.model, []
    load_flat(model, task.weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(PLAN.epochs):
        order = torch.randperm(len(inputs), device=device)
        for batch in torch.split(order, PLAN.batch_size):
            optimizer.zero_grad()
            losses = nn.functional.cross_entropy(
                model(inputs[batch]), targets[batch], reduction="none"
            )
            torch.autograd.backward(losses.mean())
            optimizer.step()
            if epoch == 0:
                losses_seen += losses.tolist()
    flatten(model)
    return float(np.mean(losses_seen))


def _by(trainer: Trainer) -> Train:
    def train(tasks: Sequence[Task]) -> float:
        reports = [outcome.report for outcome in trainer.train(tasks)]
        return float(np.mean([r.loss for r in reports if r.loss is not None]))

    return train


def sequential(work: Work, args: argparse.Namespace) -> Train:
    from pisces.train.sequential import SequentialTrainer

    return _by(SequentialTrainer(work.model, work.data, cross_entropy, RECIPE, args.device))


def pool(work: Work, args: argparse.Namespace) -> Train:
    from pisces.train.pool import PoolTrainer

    return _by(PoolTrainer(work.model, work.data, cross_entropy, RECIPE, workers=args.workers))


def batched(work: Work, args: argparse.Namespace) -> Train:
    from pisces.train.batched import BatchedTrainer

    return _by(BatchedTrainer(work.model, work.data, cross_entropy, RECIPE, args.device))


CONTENDERS = {"plain": plain, "sequential": sequential, "pool": pool, "batched": batched}


def measure_one(args: argparse.Namespace) -> dict[str, Any]:
    """One contender on one workload, after a warm-up that starts workers and touches memory."""
    torch.set_num_threads(1)
    todo = work(args.sizes, args.tasks)
    train = CONTENDERS[args.run](todo, args)
    train(todo.tasks[:2] if args.device == "cpu" else todo.tasks)
    seconds = []
    for _ in range(PASSES):
        began = time.perf_counter()
        loss = train(todo.tasks)
        seconds.append(time.perf_counter() - began)
    return {"samples_per_s": todo.num_samples / min(seconds), "loss": loss}


# --- in turns -------------------------------------------------------------------------------------


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every contender on every workload, in turns."""
    names = ["plain", "sequential"]
    names += ["pool"] if args.device == "cpu" else []
    names += ["batched"] if args.batched else []
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(args.rounds):
        for sizes in SIZES:
            for name in names:
                done = in_its_own_process(name, sizes, args)
                seen.setdefault((sizes, name), []).append(done)
                speed = done["samples_per_s"]
                print(f"round {number + 1}: {sizes}, {name}: {speed:,.0f} samples/s", flush=True)
    return [row(sizes, name, seen, args) for sizes, name in seen]


def in_its_own_process(name: str, sizes: str, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", name, "--sizes", sizes]
    command += ["--tasks", str(args.tasks), "--workers", str(args.workers)]
    done = subprocess.run([*command, "--device", args.device], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed; see above")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def row(
    sizes: str, name: str, seen: dict[tuple[str, str], list[dict[str, Any]]], args: Any
) -> dict[str, Any]:
    runs, plain_runs = seen[sizes, name], seen[sizes, "plain"]
    pairs = zip(runs, plain_runs, strict=True)
    return {
        "sizes": sizes,
        "contender": name,
        "workers": args.workers if name == "pool" else 1,
        "samples_per_s": median(run["samples_per_s"] for run in runs),
        "times_plain": median(a["samples_per_s"] / b["samples_per_s"] for a, b in pairs),
        "first_epoch_loss": runs[0]["loss"],
        "rounds": len(runs),
    }


def options() -> argparse.Namespace:
    its = parser(__doc__.splitlines()[0], quick="one round of two tasks")
    its.add_argument("--rounds", type=int, default=3)
    its.add_argument("--tasks", type=int, default=12, help="clients to train")
    its.add_argument("--workers", type=int, default=2, help="of the pool")
    its.add_argument("--batched", action="store_true", help="the batched trainer, too")
    its.add_argument("--device", default="cpu")
    its.add_argument("--run", choices=CONTENDERS, help=argparse.SUPPRESS)
    its.add_argument("--sizes", choices=SIZES, help=argparse.SUPPRESS)
    args = its.parse_args()
    if args.quick:
        args.rounds, args.tasks = 1, 2
    return args


def main() -> None:
    args = options()
    if args.run:
        print(json.dumps(measure_one(args)))
        return
    warn_if_busy()
    where = f"{num_cores()}cores" if args.device == "cpu" else args.device
    data = (
        "MNIST" if has_mnist() else "noise of MNIST's shape (PISCES_DATA names no folder with it)"
    )
    save(
        args,
        f"engine-{where}",
        measure(args),
        f"LeNet-5 on {data}: {args.tasks} clients of 500 samples, or lognormal (median 190, sigma "
        "0.6); 5 epochs, batch 32, SGD 0.01 with momentum 0.9, one thread per process. Median of "
        f"{args.rounds} rounds in turns, the fastest of {PASSES} passes each; times_plain: median "
        "of the rounds' ratios to an untuned PyTorch loop in one process.",
    )


if __name__ == "__main__":
    plainly(main)
