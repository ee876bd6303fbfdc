"""How fast is the batched trainer on a GPU? Whole runs, single steps, and a large model.

    PISCES_DATA=folder python benchmarks/gpu.py [--quick] [--name gpu-h200]

Before anything is timed, the tests of the batched trainer and of its kernels must pass on this GPU.
A row of a whole run counts everything between the first and the last event: training, selection,
aggregation, evaluation, recording. What is done once per process (the driver's start, compiling the
kernels) is done before, by a short run of the same shape, and reported as `first_s`.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from results import collect, parser, plainly, save, warn_if_busy
from torch import nn

from pisces import build, config
from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.models.lenet5 import lenet5
from pisces.models.resnet18 import Norm, resnet18
from pisces.objective import cross_entropy
from pisces.simulation import run
from pisces.train.base import Precision, Recipe, Trainer
from pisces.train.batched import BatchedTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task

Row = dict[str, Any]
Way = Literal["kernels", "patches", "vmap"]

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "experiments" / "first_look" / "mnist.toml"
UNEQUAL = ["data.sizes=lognormal", "data.size_median=190.0", "data.size_sigma=0.6"]
EVERYBODY = ["clients.concurrency=200"]
TESTS = ["tests/train/test_batched.py", "tests/train/test_kernels.py"]
WAYS: dict[Way, str] = {  # of convolving for many clients
    "kernels": "with the kernels",
    "patches": "over patches, as without Triton",
    "vmap": "by what vmap makes of it",
}


def measure(quick: bool) -> Iterator[Row]:
    paper_s, long_s = (100.0, 200.0) if quick else (1015.0, 2000.0)
    for time_s in (paper_s, long_s):
        yield whole_run(f"LeNet-5, C = 20, {time_s:g} s", [], time_s)
    yield whole_run("LeNet-5, C = 20, lognormal", UNEQUAL, 2 * long_s)
    yield whole_run("LeNet-5, C = 200", EVERYBODY, long_s / 4)
    yield whole_run("LeNet-5, C = 200, lognormal", [*EVERYBODY, *UNEQUAL], long_s / 4)
    yield whole_run("LeNet-5, C = 20, one at a time", ["train.backend=sequential"], 30.0)
    yield from steps(epochs=2 if quick else 20)
    norms: tuple[Norm, ...] = ("batch", "group")
    precisions: tuple[Precision, ...] = ("float32", "bf16")
    for norm, precision in product(norms, precisions):
        yield large_model(precision, norm)
    yield large_model("float32", "batch", one_at_a_time=True)


# --- does it compute the right thing? -------------------------------------------------------------


def checked() -> str:
    """A sentence on the tests that passed on this machine; the end if one does not."""
    if importlib.util.find_spec("pytest") is None:
        return "Not tested first: there is no pytest."
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nthe tests fail on this GPU: nothing is measured")
    return f"Tests of the batched trainer and its kernels, on this machine: {outcome(done.stdout)}."


def outcome(said: str) -> str:
    """`54 passed, 1 skipped`, from the last line of what pytest said."""
    found = re.search(r"(\d+ passed.*) in [\d.]+s", said.strip().splitlines()[-1])
    if found is None:
        raise SystemExit(f"{said}\nno test passed on this GPU: nothing is measured")
    return found[1]


# --- whole runs -----------------------------------------------------------------------------------


def whole_run(name: str, changes: Sequence[str], time_s: float) -> Row:
    """A run of the paper's MNIST task with some changes, `time_s` virtual seconds long."""
    first_s = made(changes, min(time_s, 60.0))["wall_s"]
    summary = made(changes, time_s)
    return {
        "what": name,
        "virtual_s": time_s,
        "updates": summary["updates"],
        "samples": summary["samples"],
        "wall_s": round(summary["wall_s"], 2),
        "samples_per_s": round(summary["samples"] / summary["wall_s"]),
        "accuracy": summary["accuracy"],
        "first_s": round(first_s, 1),
    }


def made(changes: Sequence[str], time_s: float) -> Row:
    """What a run came to; it goes on beyond the paper's target accuracy."""
    settings = config.load(PAPER, [f"stop={{time_s = {time_s}}}", *changes])
    result = run(build.simulation(settings), protocol=settings.protocol)
    sizes = [line["num_examples"] for line in result.lines if line["kind"] == "arrived"]
    return {
        "wall_s": result.summary["wall_s"],
        "updates": len(sizes),
        "samples": sum(sizes) * settings.train.epochs,
        "accuracy": round(result.curve()[-1][1], 4),
    }


# --- single steps ---------------------------------------------------------------------------------


def steps(epochs: int) -> Iterator[Row]:
    """One step of many clients, each way in a process of its own: hidden kernels stay hidden."""
    for way in WAYS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for num in (20, 200):
                yield pool.apply(step, (way, num, epochs))


class UnknownConv2d(nn.Conv2d):
    """A convolution for which the batched trainer knows nothing better than what `vmap` does."""


def step(way: Way, num_clients: int, epochs: int, device: str = "cuda") -> Row:
    """One step of so many LeNet-5 clients, batch 32: the mean over epochs of 16 steps."""
    torch.set_num_threads(1)
    if way != "kernels":  # as if there were no Triton
        sys.modules["pisces.train.kernels"] = None  # type: ignore[assignment]
    model = lenet5((1, 28, 28), 10).to(device)
    for layer in model:
        if way == "vmap" and isinstance(layer, nn.Conv2d):
            layer.__class__ = UnknownConv2d
    data, recipe = noise((1, 28, 28), num_clients, 512), Recipe(momentum=0.9)
    trainer = BatchedTrainer(model, data, cross_entropy, recipe, device)
    tasks = tasks_for(model, num_clients, Plan(epochs, batch_size=32, learning_rate=0.01))
    first_s, wall_s = timed(trainer, tasks, 1), timed(trainer, tasks, 1)
    trainer.close()
    num_samples = num_clients * 512 * epochs
    return {
        "what": f"LeNet-5, a step of {num_clients}, {WAYS[way]}",
        "samples": num_samples,
        "wall_s": round(wall_s, 2),
        "samples_per_s": round(num_samples / wall_s),
        "step_ms": round(1000 * wall_s / (16 * epochs), 3),
        "first_s": round(first_s, 1),
    }


# --- a large model --------------------------------------------------------------------------------


def large_model(precision: Precision, norm: Norm, *, one_at_a_time: bool = False) -> Row:
    """ResNet-18 on images of CIFAR's shape: 20 clients of 1000 samples, one epoch, batch 128."""
    data, recipe = noise((3, 32, 32), 20, 1000), Recipe(momentum=0.9, weight_decay=1e-4)
    model = resnet18((3, 32, 32), 10, norm).cuda()
    trainer: Trainer = BatchedTrainer(
        model, data, cross_entropy, recipe, "cuda", precision=precision
    )
    if one_at_a_time:
        trainer = SequentialTrainer(model, data, cross_entropy, recipe, "cuda")
    num, calls = (4, 1) if one_at_a_time else (20, 4)
    tasks = tasks_for(model, num, Plan(batch_size=128, learning_rate=0.01))
    first_s, wall_s = timed(trainer, tasks, 2), timed(trainer, tasks, calls)
    trainer.close()
    how = "one at a time" if one_at_a_time else precision
    return {
        "what": f"ResNet-18, {norm} norm, {how}",
        "samples": calls * num * 1000,
        "wall_s": round(wall_s, 2),
        "samples_per_s": round(calls * num * 1000 / wall_s),
        "first_s": round(first_s, 1),
    }


# --- what both need -------------------------------------------------------------------------------


def noise(shape: tuple[int, ...], num_clients: int, size: int) -> FederatedData:
    """Random images of ten classes, `size` for each client."""
    rng = np.random.default_rng(1)
    images, labels = torch.randn(20_000, *shape), torch.randint(10, (20_000,))
    rows = tuple(rng.integers(0, len(images), size) for _ in range(num_clients))
    return FederatedData(images, labels, rows, images[:10], labels[:10])


def tasks_for(model: nn.Module, num: int, plan: Plan) -> list[Task]:
    """A task for each of the first `num` clients, all from the model as it is."""
    start = flatten(model)
    return [Task(i, i, 0, start, plan, seed=i) for i in range(num)]


def timed(trainer: Trainer, tasks: Sequence[Task], calls: int) -> float:
    """How long it takes to train the tasks so many times."""
    on_gpu = tasks[0].weights.flat.is_cuda
    if on_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        for done in trainer.train(tasks):
            assert bool(done.weights.flat.isfinite().all())
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    args = parser(__doc__.splitlines()[0], quick="shorter runs").parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("gpu.py needs a GPU, and torch finds none here")
    warn_if_busy()
    build.simulation(config.load(PAPER))  # without the data it ends here, not after the tests
    torch.set_num_threads(1)
    notes = (
        f"{checked()} Whole runs on MNIST; single steps (batch 32, SGD with momentum) and "
        "ResNet-18 on random images. step_ms: of all the clients together. first_s: what went "
        "before and is not in wall_s, a short run or a first call that starts the driver, "
        "compiles the kernels and captures graphs, where no row above has done so."
    )
    save(args, "gpu", collect(measure(args.quick)), notes)


if __name__ == "__main__":
    plainly(main)
