"""A server to be measured, in a process of its own; says what it found as a line of JSON.

    python benchmarks/network_server.py KIND '{"certs": ..., "port": ..., ...}'

It tells `ready` when clients may come. Kinds: `tasks` (one client, one task after the other, the
executor alone), `run` (a whole server: coordinator, FedBuff, log, journal), `idle` (nobody is given
anything).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from watching import MIB, Watch, resident_bytes

from pisces.build import protocol
from pisces.execute.network.server.door import Guarded
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.server.terms import Terms
from pisces.execute.roster import Roster
from pisces.federation import Federation
from pisces.record.checkpoint import Checkpoints
from pisces.record.journal import Journaling
from pisces.record.writer import CLIENTS
from pisces.running import run
from pisces.stop import Stop
from pisces.types import Arrived, Layout, Plan, Slice, Task, Weights

Facts = dict[str, Any]


def weights_of(num: int) -> Weights:
    flat = torch.randn(num, generator=torch.Generator().manual_seed(1))
    return Weights(flat, Layout((Slice("w", (num,), "float32", "parameter", 0, num),)))


def opened(asked: Facts, weights: Weights, folder: Path | None = None) -> NetworkExecutor:
    executor = NetworkExecutor(
        f"127.0.0.1:{asked['port']}",
        weights.layout,
        Guarded.of(asked["certs"]),
        roster=Roster(None if folder is None else folder / CLIENTS),
        terms=Terms(at_least=asked["clients"], connects_per_minute=6000),
    )
    print("ready", flush=True)
    return executor


def tasks(asked: Facts) -> Facts:
    """Seconds from handing a task to the executor to taking its result out of it."""
    weights = weights_of(asked["parameters"])
    executor = opened(asked, weights)
    executor.wait(0.0)
    took: list[float] = []
    for number in range(asked["tasks"] + asked["warm_up"]):
        version = Weights(weights.flat + number * 1e-6, weights.layout)
        began = time.perf_counter()
        executor.submit(Task(number, 0, number, version, Plan(), 1))
        executor.send()
        while not any(isinstance(event, Arrived) for event in executor.wait(float("inf"))):
            pass
        took.append(time.perf_counter() - began)
        executor.acknowledge()
    executor.dismiss()
    executor.close()
    cuts = quantiles(took[asked["warm_up"] :], n=100)
    return {"p50_ms": 1e3 * cuts[49], "p99_ms": 1e3 * cuts[98]}


def whole(asked: Facts) -> Facts:
    """Updates per second of a server as people run it; the first tenth is not counted."""
    weights, num = weights_of(asked["parameters"]), asked["updates"]
    federation = Federation(
        policies=protocol("fedbuff", asked["concurrency"], buffer_size=10),
        weights=weights,
        stop=Stop(updates=num),
    )
    watch = Watch(num // 20)
    run(
        federation,
        lambda folder: opened(asked, weights, folder),
        protocol="fedbuff",
        by_whom="clients that answer at once",
        made={},
        out=asked["out"],
        listener=watch,
        checkpoints=Checkpoints(),  # or the journal would never be cut
        journaling=Journaling(sync=asked["sync"]),
    )
    (first, began, _), (last, ended, after) = watch.seen[1], watch.seen[-1]
    half, _, then = watch.seen[len(watch.seen) // 2]
    return {
        "per_s": (last - first) / (ended - began),
        "mib": after / MIB,
        "bytes_per_update": (after - then) / (last - half),
    }


def idle(asked: Facts) -> Facts:
    """What clients that only stay connected cost; counted once all of them are there."""
    weights = weights_of(asked["parameters"])
    executor = opened(asked, weights)
    before = resident_bytes()
    executor.wait(0.0)
    used, began = time.process_time(), time.perf_counter()
    executor.wait(asked["seconds"])
    share = (time.process_time() - used) / (time.perf_counter() - began)
    each = (resident_bytes() - before) / asked["clients"]
    executor.dismiss()
    executor.close()
    return {"core_percent": 100 * share, "kb_each": each / 1000}


if __name__ == "__main__":
    torch.set_num_threads(1)
    kinds = {"tasks": tasks, "run": whole, "idle": idle}
    print(json.dumps(kinds[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
