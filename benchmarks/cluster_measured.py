"""What `benchmarks/cluster.py` measures, each on a cluster of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from engine import RECIPE, work
from torch import nn

from pisces.cluster.ray import RayCluster
from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.models.lenet5 import lenet5
from pisces.models.resnet18 import resnet18
from pisces.objective import cross_entropy
from pisces.train.base import Trainer
from pisces.train.pool import PoolTrainer
from pisces.train.ray import RayTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task, Weights

Row = dict[str, Any]
SHAPES = {"lenet5": (1, 28, 28), "resnet18": (3, 32, 32)}
MODELS: dict[str, Callable[..., nn.Module]] = {"lenet5": lenet5, "resnet18": resnet18}
IDLE = Plan(max_steps=0)
TOGETHER = 20  # tasks of a call
NAP_S = 0.1
PASSES = 3  # over all tasks, of which the fastest counts
PORT = 6379


def start(nodes: Sequence[int]) -> None:
    """A head and others, with so many CPUs each."""
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]
    head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
    for number, cpus in enumerate(nodes):
        where = [f"--address=127.0.0.1:{PORT}"] if number else head
        done = subprocess.run(
            [*ray, *where, f"--num-cpus={cpus}"], capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            sys.exit(f"ray start failed:\n{done.stdout}{done.stderr}")


def noise(shape: Sequence[int], sizes: Sequence[int]) -> FederatedData:
    """Clients with so many samples of it."""
    draw = torch.Generator().manual_seed(1)
    clients = [
        (torch.randn(n, *shape, generator=draw), torch.randint(10, (n,), generator=draw))
        for n in sizes
    ]
    return FederatedData.from_clients(clients, clients[0])


def on_ray(model: nn.Module, data: FederatedData, workers: int | None = None) -> RayTrainer:
    return RayTrainer(RayCluster("auto"), model, data, cross_entropy, RECIPE, workers=workers)


def versions_of(weights: Weights) -> Iterator[Weights]:
    """Each is another object with other numbers."""
    number = 0
    while True:
        number += 1
        yield Weights(weights.flat + 1e-6 * number, weights.layout)


def time_of(trainer: Trainer, tasks: Sequence[Task]) -> float:
    began = time.perf_counter()
    num = sum(1 for _ in trainer.train(tasks))
    assert num == len(tasks)
    return time.perf_counter() - began


# --- what a job costs -----------------------------------------------------------------------------


def jobs(asked: Row) -> Iterator[Row]:
    """Idle tasks: one per call, and many per call."""
    shape = SHAPES[asked["model"]]
    model = MODELS[asked["model"]](shape, 10)
    with closing(on_ray(model, noise(shape, [8] * TOGETHER))) as trainer:
        versions = versions_of(flatten(model))

        def timed(num: int) -> float:
            start = next(versions)
            tasks = [Task(i, i, 0, start, IDLE, seed=i) for i in range(num)]
            return 1000 * time_of(trainer, tasks) / num

        for num in (TOGETHER, 1, 1):
            timed(num)  # to warm up
        alone = [timed(1) for _ in range(asked["num"])]
        together = [timed(TOGETHER) for _ in range(max(2, asked["num"] // TOGETHER))]
    yield {
        "model": asked["model"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "nodes": len(asked["nodes"]),
        "tasks": len(alone),
        "alone_ms": median(alone),
        "alone_p90_ms": quantiles(alone, n=10)[-1],
        "together_ms": median(together),
    }


def trained(asked: Row) -> Iterator[Row]:
    """The same tasks on a worker and here, in turns."""
    data, model = noise(SHAPES["lenet5"], [500] * asked["num"]), lenet5((1, 28, 28), 10)
    plan = Plan(epochs=1, batch_size=32)
    here = SequentialTrainer(model, data, cross_entropy, RECIPE)
    with closing(on_ray(model, data, workers=1)) as there:
        versions, times = versions_of(flatten(model)), []
        for number in range(asked["rounds"] + 1):
            start = next(versions)
            tasks = [Task(i, i, 0, start, plan, seed=i) for i in range(asked["num"])]
            both = [1000 * time_of(trainer, tasks) / len(tasks) for trainer in (there, here)]
            times += [both] if number else []  # the first is to warm up
    yield {
        "tasks": asked["num"],
        "rounds": len(times),
        "cluster_ms": median(there for there, _ in times),
        "sequential_ms": median(here for _, here in times),
        "difference_ms": median(there - here for there, here in times),
    }


# --- beside the pool ------------------------------------------------------------------------------


def scaling(asked: Row) -> Iterator[Row]:
    """Each contender in a process of its own, all of them in each round."""
    names = [(kind, workers) for workers in (1, 2) for kind in ("pool", "ray")]
    seen: dict[tuple[str, int], list[Row]] = {name: [] for name in names}
    for number in range(asked["rounds"]):
        for kind, workers in names if number % 2 else reversed(names):
            found = in_its_own_process("speed", kind=kind, workers=workers, num=asked["num"])
            seen[kind, workers].append(found)

    def per_s(kind: str, workers: int) -> list[float]:
        return [found["samples_per_s"] for found in seen[kind, workers]]

    for kind, workers in names:
        yield {
            "trainer": kind,
            "workers": workers,
            "rounds": asked["rounds"],
            "samples_per_s": median(per_s(kind, workers)),
            "of_one": ratio(per_s(kind, workers), per_s(kind, 1)),
            "of_pool": ratio(per_s(kind, workers), per_s("pool", workers)),
            "core_ms_per_task": median(found["core_ms"] for found in seen[kind, workers]),
        }


def ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    return median(one / other for one, other in zip(ones, others, strict=True))


def in_its_own_process(what: str, **asked: Any) -> Row:
    command = [sys.executable, __file__, what, json.dumps({"nodes": [], **asked})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    (row,) = json.loads(done.stdout.splitlines()[-1])
    return dict(row)


def speed(asked: Row) -> Iterator[Row]:
    """The best of some passes over the tasks, after one to warm up."""
    todo = work("equal", asked["num"])
    parts = (todo.model, todo.data)
    trainer: Trainer
    if asked["kind"] == "pool":
        trainer = PoolTrainer(*parts, cross_entropy, RECIPE, workers=asked["workers"])
    else:
        trainer = on_ray(*parts, workers=asked["workers"])
    with closing(trainer):
        time_of(trainer, todo.tasks)
        before = core_s()
        best = min(time_of(trainer, todo.tasks) for _ in range(PASSES))
        used = core_s() - before
    core_ms = 1000 * used / PASSES / len(todo.tasks)
    yield {"samples_per_s": todo.num_samples / best, "core_ms": core_ms}


def core_s() -> float:
    """What all processes here have used of the cores so far: Ray's own, too."""
    used = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            used += sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
    return used / os.sysconf("SC_CLK_TCK")


# --- many workers ---------------------------------------------------------------------------------


class Sleeper(nn.Module):
    """As large as LeNet-5; it sleeps instead of computing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 79)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Asleep, but for one row."""
        time.sleep(NAP_S)
        outputs: torch.Tensor = self.layer(inputs[:, 0].flatten(1))[:, :10]
        return outputs


def dispatch(asked: Row) -> Iterator[Row]:
    """How much of their time workers sleep."""
    data, model = noise(SHAPES["lenet5"], [8] * 50), Sleeper()
    for workers in asked["workers"]:
        with closing(on_ray(model, data, workers)) as trainer:
            versions = versions_of(flatten(model))

            def timed(num: int, trainer: Trainer, versions: Iterator[Weights]) -> float:
                start, plan = next(versions), Plan(max_steps=1)
                tasks = [Task(i, i % 50, 0, start, plan, seed=i) for i in range(num)]
                return time_of(trainer, tasks)

            timed(4 * workers, trainer, versions)
            until_all_work(trainer, workers)
            num = int(asked["seconds"] / NAP_S) * workers
            taken = timed(num, trainer, versions)
        yield {
            "workers": workers,
            "tasks": num,
            "tasks_per_s": num / taken,
            "efficiency": num * NAP_S / workers / taken,
        }


def until_all_work(trainer: RayTrainer, workers: int) -> None:
    """Workers are set up while others train already; here all of them must be there."""
    plan, start = Plan(max_steps=1), flatten(Sleeper())
    while sum(hired.speed is not None for hired in trainer._staff.hired) < workers:
        list(trainer.train([Task(i, i, 0, start, plan, seed=i) for i in range(2 * workers)]))


# --- what is moved --------------------------------------------------------------------------------


def bytes_sent() -> int:
    """By the only interface there is."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.strip().partition(":")
        if name == "lo":
            return int(numbers.split()[8])
    sys.exit("there is no loopback interface")


def moved(asked: Row) -> Iterator[Row]:
    """Per version, with so many workers on the other node and so many tasks."""
    shape, model = SHAPES["resnet18"], resnet18(SHAPES["resnet18"], 10)
    data, weights = noise(shape, [8] * 8), flatten(model)
    for workers, num in asked["cases"]:
        with closing(on_ray(model, data, workers)) as trainer:
            versions = versions_of(weights)

            def per_version(num: int, trainer: Trainer, versions: Iterator[Weights]) -> int:
                start = next(versions)
                tasks = [Task(i, i, 0, start, IDLE, seed=i) for i in range(num)]
                before = bytes_sent()
                time_of(trainer, tasks)
                return bytes_sent() - before

            for _ in range(3):
                per_version(2 * workers, trainer, versions)  # to warm up
            seen = median(per_version(num, trainer, versions) for _ in range(asked["versions"]))
        size = weights.flat.nbytes
        yield {
            "workers": workers,
            "tasks": num,
            "model_mb": size / 1e6,
            "mb": seen / 1e6,
            "weights_moved": seen / size - num,
        }


# --- starting -------------------------------------------------------------------------------------


def starting(asked: Row) -> Iterator[Row]:
    """By a process that has not been connected before, each time."""
    address, times = asked["address"], asked["times"]
    found = [in_its_own_process("first", address=address) for _ in range(times)]
    yield {
        "address": address,
        "times": times,
        "connect_s": median(one["connect_s"] for one in found),
        "first_result_s": median(one["first_result_s"] for one in found),
    }


def first(asked: Row) -> Iterator[Row]:
    """Until connected, and from there until the first result."""
    data, model = noise(SHAPES["lenet5"], [8]), lenet5((1, 28, 28), 10)
    task = Task(0, 0, 0, flatten(model), Plan(max_steps=1), seed=0)
    began = time.perf_counter()
    cluster = RayCluster(asked["address"], num_cpus=1)
    connect_s = time.perf_counter() - began
    with closing(RayTrainer(cluster, model, data, cross_entropy, RECIPE)) as trainer:
        yield {"connect_s": connect_s, "first_result_s": time_of(trainer, [task])}


KINDS: dict[str, Callable[[Row], Iterator[Row]]] = {
    "jobs": jobs,
    "trained": trained,
    "scaling": scaling,
    "speed": speed,
    "dispatch": dispatch,
    "bytes": moved,
    "start": starting,
    "first": first,
}


def main() -> None:
    torch.set_num_threads(1)
    asked = json.loads(sys.argv[2])
    start(asked["nodes"])
    print(json.dumps(list(KINDS[sys.argv[1]](asked))))


if __name__ == "__main__":
    main()
