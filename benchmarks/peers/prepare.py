"""Writes the shared task: MNIST divided by our own partition, and our initial weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import task

from pisces import config, world

SETTINGS = f"""
protocol = "fedavg"

[clients]
count = 200
concurrency = 20

[data]
dataset = "mnist"
partition = "dirichlet"
alpha = 1.0
size = {task.SIZE}
overlap = true

[model]
name = "lenet5"

[train]
learning_rate = {task.LEARNING_RATE}
momentum = {task.MOMENTUM}
batch_size = {task.BATCH_SIZE}
device = "cpu"

[latency]
kind = "constant"
"""


def write(path: Path) -> None:
    """Everything a contender needs, in one file."""
    settings = config.parse(SETTINGS)
    data = world.federated_data(settings)
    model = world.initial_model(settings, data)
    np.savez(
        path,
        inputs=data.inputs.numpy(),
        targets=data.targets.numpy(),
        rows=np.stack(data.rows),
        test_inputs=data.test_inputs.numpy(),
        test_targets=data.test_targets.numpy(),
        **{f"w/{name}": value.numpy() for name, value in model.state_dict().items()},
    )
