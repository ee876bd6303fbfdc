"""A dataset split over clients: one pool of samples, and each client's rows in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.errors import DataError

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """Samples (`inputs`, `targets`), the rows each client owns, and a held-out test set."""

    inputs: torch.Tensor
    targets: torch.Tensor
    rows: tuple[NDArray[np.int64], ...]
    test_inputs: torch.Tensor
    test_targets: torch.Tensor

    @property
    def num_clients(self) -> int:
        """How many clients share the data."""
        return len(self.rows)

    @property
    def num_examples(self) -> NDArray[np.int64]:
        """Samples per client."""
        return np.array([len(r) for r in self.rows], np.int64)

    def client(self, client: int) -> Pair:
        """One client's samples."""
        rows = torch.from_numpy(self.rows[client])
        return self.inputs[rows], self.targets[rows]

    @classmethod
    def from_clients(cls, clients: Sequence[Pair], test: Pair) -> FederatedData:
        """Pool per-client `(inputs, targets)` pairs."""
        if not clients:
            raise DataError("no clients: give at least one (inputs, targets) pair")
        for number, (inputs, targets) in enumerate(clients):
            if len(inputs) != len(targets) or len(inputs) == 0:
                raise DataError(
                    f"client {number} has {len(inputs)} inputs and {len(targets)} targets; "
                    "each client needs at least one sample and as many targets as inputs"
                )
        bounds = np.cumsum([0, *(len(x) for x, _ in clients)])
        return cls(
            inputs=torch.cat([x for x, _ in clients]),
            targets=torch.cat([y for _, y in clients]),
            rows=tuple(np.arange(a, b) for a, b in pairwise(bounds)),
            test_inputs=test[0],
            test_targets=test[1],
        )
