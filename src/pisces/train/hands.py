"""Workers of a cluster: what they are handed, what they make of it, and what they say.

Data and weights come as arrays, which a node of a cluster holds once for all its workers: they can
read them, but not write.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import pisces
from pisces.data.federated import FederatedData
from pisces.errors import RunError
from pisces.train.base import Loss, Outcome, Precision, Recipe, Trainer
from pisces.train.elsewhere import Raised, Said, Telling
from pisces.train.sequential import SequentialTrainer
from pisces.types import Layout, Plan, Report, Task, Weights

Array = NDArray[np.generic]


# --- what they are handed -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Craft:
    """How a worker trains: one task after the other, or all it is handed at once."""

    batched: bool = False
    device: str = "cpu"
    precision: Precision = "float32"


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What a worker's trainer is made of, but for its data."""

    model: nn.Module
    loss: Loss
    recipe: Recipe
    craft: Craft
    layout: Layout

    def trainer(self, data: FederatedData) -> Trainer:
        """The trainer itself."""
        parts = (self.model, data, self.loss, self.recipe, self.craft.device)
        if not self.craft.batched:
            return SequentialTrainer(*parts)
        from pisces.train.batched import BatchedTrainer  # slow to import

        return BatchedTrainer(*parts, precision=self.craft.precision)


@dataclass(frozen=True, slots=True, eq=False)
class Cargo:
    """The samples of all clients in few arrays: a cluster carries arrays without looking at them.

    Tensors travel as bytes, for there are types that arrays do not know.
    """

    inputs: Array
    targets: Array
    dtypes: tuple[torch.dtype, torch.dtype]
    rows: NDArray[np.int64]  # of all clients, one after the other
    lengths: NDArray[np.int64]
    epoch_sizes: NDArray[np.int64] | None

    @classmethod
    def of(cls, data: FederatedData) -> Cargo:
        """Packed; without the test set, which stays where it is evaluated."""
        tensors = (data.inputs, data.targets)
        inputs, targets = (t.cpu().contiguous().view(torch.uint8).numpy() for t in tensors)
        return cls(
            inputs,
            targets,
            (data.inputs.dtype, data.targets.dtype),
            np.concatenate(data.rows),
            np.array([len(rows) for rows in data.rows], np.int64),
            data.epoch_sizes,
        )

    def data(self) -> FederatedData:
        """Unpacked, without a copy."""
        inputs, targets = (
            tensor_over(array).view(dtype)
            for array, dtype in zip((self.inputs, self.targets), self.dtypes, strict=True)
        )
        rows = tuple(np.split(self.rows, np.cumsum(self.lengths)[:-1]))
        return FederatedData(
            inputs, targets, rows, inputs[:0], targets[:0], epoch_sizes=self.epoch_sizes
        )


@dataclass(frozen=True, slots=True)
class Order:
    """A task, and which of the weights that come with it are its own to start from."""

    id: int
    client: int
    plan: Plan
    seed: int
    start: int


# --- what they say --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker is set up; with other software it would come to other results."""

    software: str


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What became of all that was ordered, how long it took, and what was logged meanwhile."""

    results: tuple[tuple[int, Array, Report], ...]
    seconds: float
    said: tuple[Said, ...]


def software() -> str:
    """The versions that results depend on; torch has builds that compute the same."""
    return f"pisces {pisces.__version__} and torch {torch.__version__.partition('+')[0]}"


def check_software(theirs: str, node: str) -> None:
    """Refuse a node that has other versions than this one."""
    if theirs != software():
        raise RunError(
            f"node {node} has {theirs}, this one {software()}: results would depend on who trains; "
            "install the same everywhere"
        )


class Hand:
    """A worker's own object."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._said: list[Said] = []
        Telling(self._said.append)

    def set_up(self, parts: Parts, cargo: Cargo) -> Ready | Raised:
        """Make its trainer."""
        try:
            self._layout, self._trainer = parts.layout, parts.trainer(cargo.data())
        except Exception as error:
            return Raised.of(error)
        return Ready(software())

    def train(self, orders: Sequence[Order], *starts: Array) -> Trained | Raised:
        """Carry out the orders."""
        weights = [Weights(tensor_over(array), self._layout) for array in starts]
        tasks = [Task(o.id, o.client, 0, weights[o.start], o.plan, o.seed) for o in orders]
        began = time.perf_counter()
        try:
            outcomes = list(self._trainer.train(tasks))
        except Exception as error:
            return Raised.of(error)
        seconds = time.perf_counter() - began
        said, self._said[:] = tuple(self._said), []
        return Trained(tuple(map(_result, outcomes)), seconds, said)


def _result(outcome: Outcome) -> tuple[int, Array, Report]:
    return outcome.task_id, outcome.weights.flat.numpy(force=True), outcome.report


def tensor_over(array: Array) -> torch.Tensor:
    """A tensor over an array's memory, though it must not be written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
