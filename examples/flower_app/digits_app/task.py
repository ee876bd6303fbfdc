"""Model, data and training: plain PyTorch, nothing of Flower's strategies."""

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

NUM_TEST = 360  # the last samples, of other writers; the server has them


class Net(nn.Sequential):
    """One hidden layer."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = load_digits(return_X_y=True)
    return torch.from_numpy(inputs / 16).float(), torch.from_numpy(targets).long()


def train_data(partition: int, num_partitions: int) -> TensorDataset:
    """A partition's own samples. Partitions differ in size and in the digits they know."""
    inputs, targets = (part[:-NUM_TEST] for part in digits())
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(num_partitions), size=10)  # of each digit, who has how much
    draws = rng.random((len(targets), 1))
    owners = (draws < shares.cumsum(1)[targets]).argmax(1)
    mine = torch.from_numpy(owners == partition)
    return TensorDataset(inputs[mine], targets[mine])


def train(net: nn.Module, data: TensorDataset, epochs: int, learning_rate: float) -> float:
    """Train in place; gives the mean loss."""
    optimiser = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    losses = []
    for _ in range(epochs):
        for inputs, targets in DataLoader(data, batch_size=16, shuffle=True):
            optimiser.zero_grad()
            loss = cross_entropy(net(inputs), targets)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return float(np.mean(losses))


def accuracy(net: nn.Module) -> float:
    inputs, targets = (part[-NUM_TEST:] for part in digits())
    with torch.no_grad():
        return (net(inputs).argmax(1) == targets).float().mean().item()


def evaluation(file: str) -> Callable[[int, ArrayRecord], MetricRecord]:
    """For a strategy's `evaluate_fn`.

    Notes (seconds since the first model, accuracy) in that file, if any.
    """
    curve: list[tuple[float, float]] = []
    began = 0.0

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal began
        began = began or time.monotonic()
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        reached = accuracy(net)
        curve.append((time.monotonic() - began, reached))
        if file:
            Path(file).write_text(json.dumps(curve))
        return MetricRecord({"accuracy": reached})

    return evaluate
