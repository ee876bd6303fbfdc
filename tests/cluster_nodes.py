"""A Ray cluster of several nodes on this machine, and what tests do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from ray.cluster_utils import Cluster as Nodes
from torch import nn

from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.train.base import Outcome, Recipe
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task, Weights

PATIENCE_S = 90.0
SIZES = (5, 40, 12, 21, 3)
RECIPE = Recipe(momentum=0.9)
STORE_BYTES = 200 << 20
PISCES = [sys.executable, "-m", "pisces"]


@contextmanager
def nodes(*num_cpus: int) -> Iterator[Nodes]:
    """The first node is the head."""
    first, *others = num_cpus
    more = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    made = Nodes(initialize_head=True, head_node_args={"num_cpus": first, **more})
    try:
        for num in others:
            add(made, num)
        os.environ["RAY_ADDRESS"] = made.address  # as `ray start` writes it down for "auto"
        yield made
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        made.shutdown()


def add(made: Nodes, num_cpus: int) -> Any:
    """One more node."""
    return made.add_node(num_cpus=num_cpus, object_store_memory=STORE_BYTES)


def until(true: Callable[[], object], what: str = "") -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends_at, f"waited in vain: {what}"
        time.sleep(0.05)


def actors() -> list[int]:
    """Processes of workers of ours, wherever they are."""
    return [pid for pid, title in _titles() if title.startswith("ray::_Holder")]


def _titles() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                yield int(folder.name), (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it ended meanwhile
                continue


# --- training -------------------------------------------------------------------------------------


def layers() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def some_data() -> FederatedData:
    rng = torch.Generator().manual_seed(1)
    clients = [
        (torch.randn(n, 4, generator=rng), torch.randint(3, (n,), generator=rng)) for n in SIZES
    ]
    return FederatedData.from_clients(clients, clients[0])


def tasks_of(num: int, shift: float = 0.0) -> list[Task]:
    start = flatten(layers())
    starts = [Weights(start.flat + shift + i, start.layout) for i in range(2)]
    plan = Plan(epochs=2, batch_size=8, learning_rate=0.05)
    return [Task(10 + i, i % len(SIZES), i % 2, starts[i % 2], plan, seed=i) for i in range(num)]


def assert_as_in_sequence(
    found: Sequence[Outcome], data: FederatedData, tasks: Sequence[Task]
) -> None:
    """Each task once, with the bits of the sequential trainer."""
    by_id = {outcome.task_id: outcome for outcome in found}
    assert sorted(o.task_id for o in found) == sorted(t.id for t in tasks)
    loss = nn.CrossEntropyLoss(reduction="none")
    for expected in SequentialTrainer(layers(), data, loss, RECIPE).train(tasks):
        assert torch.equal(by_id[expected.task_id].weights.flat, expected.weights.flat)
        assert by_id[expected.task_id].report == expected.report


# --- commands -------------------------------------------------------------------------------------


CONFIG = """
seed = 3
[clients]
count = 12
concurrency = 6
[train]
epochs = 2
[stop]
versions = 30
target = 0.99
"""


def pisces(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    command = [*PISCES, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, **more)
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def begun(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on; killed at the end, if need be."""
    command = [*PISCES, *map(str, words)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
