"""How fast is the batched trainer on a GPU? Whole runs, a large model, and one client at a time.

    python benchmarks/gpu.py [--quick] [--name gpu-h200]

A row of a whole run counts everything between the first and the last event: training, selection,
aggregation, evaluation, recording. What is done once per process (the driver's start, compiling the
kernels) is done before, by a short run of the same shape, and reported as `first_s`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pisces import build, config
from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.models.resnet18 import resnet18
from pisces.simulation import run
from pisces.train.base import Precision, Recipe, Trainer
from pisces.train.batched import BatchedTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task

Row = dict[str, Any]

PAPER: dict[str, dict[str, Any]] = {  # the MNIST task of the Pisces paper, section 8.1
    "clients": {"count": 200, "concurrency": 20},
    "model": {"name": "lenet5"},
    "data": {"dataset": "mnist", "size": 500, "alpha": 1.0, "overlap": True},
    "train": {"learning_rate": 0.01, "momentum": 0.9, "batch_size": 32, "epochs": 5},
    "latency": {"kind": "zipf", "a": 1.2, "min_s": 15.0, "max_s": 180.0},
    "evaluate": {"every_s": 20.0},
}
UNEQUAL = {"sizes": "lognormal", "size_median": 190.0, "size_sigma": 0.6}
EVERYBODY = {"concurrency": 200}


def measure(quick: bool) -> list[Row]:
    long_s = 400.0 if quick else 2000.0
    both = {"clients": EVERYBODY, "data": UNEQUAL}
    rows = [
        whole_run("LeNet-5, C = 20", {}, 1015.0),
        whole_run("LeNet-5, C = 20", {}, long_s),
        whole_run("LeNet-5, C = 20, lognormal", {"data": UNEQUAL}, 2 * long_s),
        whole_run("LeNet-5, C = 200", {"clients": EVERYBODY}, long_s / 4),
        whole_run("LeNet-5, C = 200, lognormal", both, long_s / 4),
        whole_run("LeNet-5, C = 20, one at a time", {"train": {"backend": "sequential"}}, 30.0),
    ]
    rows += [
        large_model(precision, norm)
        for norm in ("batch", "group")
        for precision in ("float32", "bf16")
    ]
    return [*rows, large_model("float32", "batch", one_at_a_time=True)]


def whole_run(name: str, changes: Mapping[str, Mapping[str, Any]], time_s: float) -> Row:
    """A run by the config, `time_s` virtual seconds long."""
    values = {key: {**PAPER[key], **changes.get(key, {})} for key in PAPER}
    first_s = made(values, min(time_s, 60.0))["wall_s"]
    summary = made(values, time_s)
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


def made(values: Mapping[str, Any], time_s: float) -> Row:
    """What a run came to."""
    settings = config.check({"tick_s": 5.0, **values, "stop": {"time_s": time_s}})
    simulation = build.simulation(settings)
    result = run(simulation, protocol=settings.protocol)
    sizes = [line["num_examples"] for line in result.lines if line["kind"] == "arrived"]
    return {
        "wall_s": result.summary["wall_s"],
        "updates": len(sizes),
        "samples": sum(sizes) * settings.train.epochs,
        "accuracy": round(result.curve()[-1][1], 4),
    }


def large_model(precision: Precision, norm: str, *, one_at_a_time: bool = False) -> Row:
    """ResNet-18 on images of CIFAR's shape: 20 clients of 1000 samples, one epoch, batch 128."""
    generator = np.random.default_rng(1)
    images, labels = torch.randn(20_000, 3, 32, 32), torch.randint(10, (20_000,))
    rows = tuple(generator.integers(0, len(images), 1000) for _ in range(20))
    data = FederatedData(images, labels, rows, images[:10], labels[:10])
    model, recipe = resnet18((3, 32, 32), 10, norm), Recipe(momentum=0.9, weight_decay=1e-4)  # type: ignore[arg-type]
    trainer: Trainer = BatchedTrainer(
        model, data, build.cross_entropy, recipe, "cuda", precision=precision
    )
    if one_at_a_time:
        trainer = SequentialTrainer(model, data, build.cross_entropy, recipe, "cuda")
    num, calls = (4, 1) if one_at_a_time else (20, 4)
    start, plan = flatten(model.cuda()), Plan(batch_size=128, learning_rate=0.01)
    tasks = [Task(i, i, 0, start, plan, seed=i) for i in range(num)]
    first_s = timed(trainer, tasks, 2)
    wall_s = timed(trainer, tasks, calls)
    trainer.close()
    how = "one at a time" if one_at_a_time else precision
    return {
        "what": f"ResNet-18, {norm} norm, {how}",
        "samples": calls * num * 1000,
        "wall_s": round(wall_s, 2),
        "samples_per_s": round(calls * num * 1000 / wall_s),
        "first_s": round(first_s, 1),
    }


def timed(trainer: Trainer, tasks: list[Task], calls: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        for outcome in trainer.train(tasks):
            assert bool(outcome.weights.flat.isfinite().all())
    torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    from results import save

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--name", default="gpu", help="of the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    save(given.name, measure(given.quick), "whole runs on MNIST; ResNet-18 on random images")
