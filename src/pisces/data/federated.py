"""A dataset split over clients: one pool of samples, and each client's rows in it."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from pisces.errors import DataError
from pisces.types import Objective

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """Samples (`inputs`, `targets`), the rows each client owns, and a held-out test set.

    An epoch visits all of a client's rows, or where there are `epoch_sizes` that many of them,
    other ones each time. `objective` is what is learned; `num_classes`, where it is known, how many
    labels or words there are.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    rows: tuple[NDArray[np.int64], ...]
    test_inputs: torch.Tensor
    test_targets: torch.Tensor
    num_classes: int | None = None
    objective: Objective = "labels"
    epoch_sizes: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.epoch_sizes is not None:
            _check_epochs(self.epoch_sizes, self.rows)

    @property
    def num_clients(self) -> int:
        """How many clients share the data."""
        return len(self.rows)

    @property
    def num_examples(self) -> NDArray[np.int64]:
        """Samples of an epoch, per client."""
        return _lengths(self.rows) if self.epoch_sizes is None else self.epoch_sizes

    def client(self, client: int) -> Pair:
        """One client's samples: as many as an epoch has."""
        rows = torch.from_numpy(self.rows[client])
        if self.epoch_sizes is not None:
            rows = rows[: self.epoch_sizes[client]]
        return self.inputs[rows], self.targets[rows]

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[Pair | Dataset[Pair]],
        test: Pair,
        objective: Objective = "labels",
    ) -> FederatedData:
        """Pool per-client data: `(inputs, targets)` pairs, or datasets of one pair per sample."""
        if not clients:
            raise DataError("no clients: give at least one (inputs, targets) pair")
        pairs = [_tensors(c) if isinstance(c, tuple) else _stacked(c) for c in clients]
        test = _tensors(test)
        for number, (inputs, targets) in enumerate(pairs):
            if len(inputs) != len(targets) or len(inputs) == 0:
                raise DataError(
                    f"client {number} has {len(inputs)} inputs and {len(targets)} targets; "
                    "each client needs at least one sample and as many targets as inputs"
                )
        _check_shapes(pairs, test)
        bounds = np.cumsum([0, *(len(x) for x, _ in pairs)])
        return cls(
            inputs=torch.cat([x for x, _ in pairs]),
            targets=torch.cat([y for _, y in pairs]),
            rows=tuple(np.arange(a, b) for a, b in pairwise(bounds)),
            test_inputs=test[0],
            test_targets=test[1],
            objective=objective,
        )


def _lengths(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.array([len(r) for r in rows], np.int64)


def _check_epochs(sizes: NDArray[np.int64], rows: Sequence[NDArray[np.int64]]) -> None:
    if len(sizes) != len(rows) or np.any(sizes < 1) or np.any(sizes > _lengths(rows)):
        raise DataError(
            "epoch_sizes: give each client one number, from 1 to that of its rows, or leave them "
            "out: an epoch then visits all rows"
        )


def _check_shapes(clients: Sequence[Pair], test: Pair) -> None:
    """Everybody's samples look like those of the test set, of which there are some."""
    if len(test[0]) != len(test[1]) or len(test[0]) == 0:
        raise DataError(
            f"test has {len(test[0])} inputs and {len(test[1])} targets; "
            "it needs at least one sample and as many targets as inputs"
        )
    wanted = _sample_shapes(test)
    for number, pair in enumerate(clients):
        if _sample_shapes(pair) != wanted:
            raise DataError(
                f"client {number} has samples of shape {_sample_shapes(pair)}, the test set of "
                f"{wanted} (input, target): give all the same"
            )


def _sample_shapes(pair: Pair) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(part.shape[1:]) for part in pair)


def _tensors(pair: Pair) -> Pair:
    """The pair as tensors: numpy arrays are welcome."""
    return torch.as_tensor(pair[0]), torch.as_tensor(pair[1])


def _stacked(dataset: Dataset[Pair]) -> Pair:
    """All samples of a dataset in two tensors."""
    samples = [dataset[i] for i in range(len(cast(Sized, dataset)))]
    if not samples:
        return torch.empty(0), torch.empty(0)
    inputs, targets = zip(*samples, strict=True)
    return torch.stack(inputs), torch.stack([torch.as_tensor(target) for target in targets])
