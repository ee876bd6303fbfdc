"""Writes the shared task: MNIST divided by our own partition, and our initial weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import task

from pisces import config, world

PAPER = Path(__file__).parents[2] / "experiments" / "first_look" / "mnist.toml"


def settings(changes: Mapping[str, Any]) -> config.Config:
    """The paper's MNIST task in synchronous rounds of clients that all take as long."""
    shared: dict[str, Any] = {
        "protocol": "fedavg",
        "tick_s": 0,
        "data.size": task.SIZE,
        "train.learning_rate": task.LEARNING_RATE,
        "train.momentum": task.MOMENTUM,
        "train.batch_size": task.BATCH_SIZE,
        "train.device": "cpu",
        "latency": '{kind = "constant"}',
    }
    return config.load(PAPER, [f"{key}={value}" for key, value in {**shared, **changes}.items()])


def write(path: Path) -> None:
    """Everything a contender needs, in one file."""
    its = settings({})
    data = world.federated_data(its)
    model = world.initial_model(its, data)
    np.savez(
        path,
        inputs=data.inputs.numpy(),
        targets=data.targets.numpy(),
        rows=np.stack(data.rows),
        test_inputs=data.test_inputs.numpy(),
        test_targets=data.test_targets.numpy(),
        **{f"w/{name}": value.numpy() for name, value in model.state_dict().items()},
    )
