"""What `benchmarks/flower.py` measures, each in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from watching import MIB, Watch

from pisces.build import protocol
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.executor import FlowerExecutor
from pisces.execute.flower.letters import Letters
from pisces.federation import Federation
from pisces.record.checkpoint import Checkpoints
from pisces.running import run
from pisces.stop import Stop
from pisces.types import Arrived, Plan, Task, Weights

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import flowerbed as beds  # type: ignore[import-not-found]

Row = dict[str, Any]
SMALL = (60_000, 10)  # parameters, arrays
WARM_UP = 3


def record_of(parameters: int, arrays: int) -> ArrayRecord:
    """Numbers that differ: Flower sends equal arrays only once."""
    rng = np.random.default_rng(1)
    cuts = [parameters * part // arrays for part in range(arrays + 1)]
    sizes = [after - before for before, after in pairwise(cuts)]
    made = [rng.standard_normal(size, np.float32) for size in sizes]
    return ArrayRecord({f"layer{i}": Array(values) for i, values in enumerate(made)})


def app_of(sleep_s: float = 0.0) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, _context: Context) -> Message:
        time.sleep(sleep_s)
        told = MetricRecord({"num-examples": 10, "train_loss": 1.0, "done-at": time.monotonic()})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": told}), reply_to=message
        )

    return app


# --- one task after the other ---------------------------------------------------------------------


def tasks(parameters: int, arrays: int, tasks: int) -> Row:
    """Ours beside Flower's own, in wall and in CPU time."""
    layout, start = Arrays.of(record_of(parameters, arrays), None)
    versions = [Weights(start.flat + i * 1e-6, start.layout) for i in range(tasks + WARM_UP)]
    with beds.flowerbed(app_of()) as bed:
        flower = _timed(_alone(bed.grid, layout), versions)
        executor = FlowerExecutor(bed.grid, layout)
        executor.wait(0.0)
        ours = _timed(_through(executor), versions)
        executor.close()
    return {
        "parameters": parameters,
        "arrays": arrays,
        "tasks": tasks,
        "flower_ms": 1e3 * flower[0],
        "with_us_ms": 1e3 * ours[0],
        "ours_wall_ms": 1e3 * (ours[0] - flower[0]),
        "ours_cpu_ms": 1e3 * (ours[1] - flower[1]),
    }


def _timed(do: Callable[[int, Weights], None], versions: list[Weights]) -> tuple[float, float]:
    """Median seconds of wall, mean seconds of CPU."""
    walls: list[float] = []
    for number, weights in enumerate(versions):
        if number == WARM_UP:
            used = time.process_time()
        began = time.perf_counter()
        do(number, weights)
        walls.append(time.perf_counter() - began)
    return median(walls[WARM_UP:]), (time.process_time() - used) / (len(versions) - WARM_UP)


def _through(executor: FlowerExecutor) -> Callable[[int, Weights], None]:
    def do(number: int, weights: Weights) -> None:
        executor.submit(Task(number, 0, number, weights, Plan(), 1))
        executor.send()
        while not any(isinstance(event, Arrived) for event in executor.wait(float("inf"))):
            pass

    return do


def _alone(grid: Any, arrays: Arrays) -> Callable[[int, Weights], None]:
    [node] = grid.get_node_ids()

    def do(number: int, weights: Weights) -> None:
        task = Task(number, 0, number, weights, Plan(), 1)
        [sent] = grid.push_messages([Letters().to_train(task, node, arrays.record(weights))])
        while not (replies := list(grid.pull_messages([sent]))):
            time.sleep(0.001)
        for array in replies[0].content["arrays"].values():
            array.numpy()

    return do


# --- whole runs -----------------------------------------------------------------------------------


def memory(parameters: int, arrays: int, tasks: int, nodes: int = 20) -> Row:
    """Over the second half of the tasks."""
    watch = Watch(tasks // 20)
    layout, start = Arrays.of(record_of(parameters, arrays), None)
    federation = Federation(
        policies=protocol("fedbuff", nodes, buffer_size=10), weights=start, stop=Stop(updates=tasks)
    )
    with beds.flowerbed(*(app_of() for _ in range(nodes))) as bed, TemporaryDirectory() as folder:
        _run(federation, FlowerExecutor(bed.grid, layout, at_least=nodes), watch, folder + "/run")
    half, last = watch.seen[len(watch.seen) // 2], watch.seen[-1]
    return {
        "parameters": parameters,
        "tasks": tasks,
        "mib": last[2] / MIB,
        "bytes_per_task": (last[2] - half[2]) / (last[0] - half[0]),
    }


def nodes(nodes: int, seconds: float) -> Row:
    """All of them at once."""
    takes = np.linspace(0.5, 2.0, nodes)
    beds.PULL_S = 0.05  # or fifty threads that look for messages would be what is measured
    waited: list[float] = []

    def hear(_task: int, told: MetricRecord) -> None:
        waited.append(time.monotonic() - float(told["done-at"]))  # type: ignore[arg-type]

    layout, start = Arrays.of(record_of(*SMALL), None)
    federation = Federation(
        policies=protocol("pisces", nodes), weights=start, stop=Stop(time_s=seconds)
    )
    watch = Watch(1)
    with beds.flowerbed(*(app_of(float(s)) for s in takes)) as bed:
        used = time.process_time()
        executor = FlowerExecutor(bed.grid, layout, at_least=nodes, heard=hear)
        _run(federation, executor, watch, None)
        used = time.process_time() - used
    cuts = quantiles(waited, n=100)
    return {
        "nodes": nodes,
        "seconds": seconds,
        "per_s": len(watch.seen) / seconds,
        "at_best_per_s": float((1 / takes).sum()),
        "waited_p50_ms": 1e3 * cuts[49],
        "waited_p99_ms": 1e3 * cuts[98],
        "core_percent": 100 * used / seconds,
    }


def _run(
    federation: Federation, executor: FlowerExecutor, watch: Watch, folder: str | None
) -> None:
    run(
        federation,
        lambda _folder: executor,
        protocol="measured",
        by_whom="nodes that are threads",
        made={},
        out=folder,
        listener=watch,
        checkpoints=Checkpoints(),
    )


KINDS: Mapping[str, Callable[..., Row]] = {"tasks": tasks, "memory": memory, "nodes": nodes}
