"""The task all contenders share: data, model and amount of work, from one file that `compare.py`
wrote. Runs in every contender's environment, so it needs numpy and torch only.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

BATCH_SIZE, LEARNING_RATE, MOMENTUM = 32, 0.01, 0.9
SIZE = 500  # samples per client


def arguments() -> argparse.Namespace:
    """What `compare.py` asks of each contender."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="the file with the task")
    parser.add_argument("--cohorts", type=int, default=5, help="synchronous rounds")
    parser.add_argument("--cohort-size", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=5, help="local epochs; 0: no training at all")
    parser.add_argument("--clients", type=int, default=200, help="more than 200 share their data")
    parser.add_argument("--workers", type=int, default=2, help="processes that train")
    return parser.parse_args()


@dataclass(frozen=True)
class Data:
    """Normalised images, who owns which of them, and the weights everybody starts from."""

    inputs: torch.Tensor
    targets: torch.Tensor
    rows: torch.Tensor  # clients x samples
    test_inputs: torch.Tensor
    test_targets: torch.Tensor
    weights: dict[str, torch.Tensor]

    def client(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One client's samples."""
        rows = self.rows[client % len(self.rows)]
        return self.inputs[rows], self.targets[rows]

    def accuracy(self, model: nn.Module) -> float:
        """Share of the test images that the model names rightly."""
        model.eval()
        with torch.no_grad():
            outputs = torch.cat([model(x) for x in torch.split(self.test_inputs, 2048)])
        return float((outputs.argmax(1) == self.test_targets).float().mean())


@cache
def load(path: Path) -> Data:
    """Read what `compare.py` wrote; a process that serves many clients reads it once."""
    torch.set_num_threads(1)
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    weights = {k.removeprefix("w/"): v for k, v in arrays.items() if k.startswith("w/")}
    return Data(
        arrays["inputs"],
        arrays["targets"],
        arrays["rows"],
        arrays["test_inputs"],
        arrays["test_targets"],
        weights,
    )


def lenet5() -> nn.Sequential:
    """The layers of `pisces.models.lenet5`, for environments without it."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def initial(data: Data) -> nn.Sequential:
    """The model as everybody starts from it."""
    model = lenet5()
    model.load_state_dict(data.weights)
    return model


def train(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, epochs: int, seed: int
) -> None:
    """Local training as one writes it, for peers that leave it to the user."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss = nn.CrossEntropyLoss()
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for batch in torch.split(order, BATCH_SIZE):
            optimizer.zero_grad()
            loss(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()


class Stopwatch:
    """How long each cohort took, from its start to the new global model."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.cohorts_s: list[float] = []

    def start(self) -> None:
        """The first cohort begins now."""
        self._last = time.perf_counter()

    def lap(self) -> None:
        """A cohort is done."""
        now = time.perf_counter()
        self.cohorts_s.append(now - self._last)
        self._last = now


def report(name: str, args: argparse.Namespace, cohorts_s: list[float], **more: Any) -> None:
    """The one line of JSON that `compare.py` reads."""
    said = {
        "contender": name,
        "num_trainings": args.cohort_size * len(cohorts_s),
        "num_samples": args.cohort_size * len(cohorts_s) * SIZE * args.epochs,
        "cohorts_s": cohorts_s,
        **more,
    }
    print(json.dumps(said), flush=True)
