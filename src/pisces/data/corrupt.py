"""Clients whose data is spoilt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.errors import ConfigError


def flip_labels(
    targets: torch.Tensor,
    rows: Sequence[NDArray[np.int64]],
    share_of_clients: float,
    num_classes: int,
    rng: np.random.Generator,
) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Give every sample of some clients another label; also says which clients.

    The corruption of the Pisces paper (Jiang et al., SoCC 2022, Fig. 14): the wrong label of a
    sample is drawn once and stays. The number of clients is rounded. With one seed, a larger share
    spoils the same clients in the same way, and more.
    """
    _check(targets, share_of_clients, num_classes)
    corrupted = chosen(len(rows), share_of_clients, rng)
    shift = torch.from_numpy(rng.integers(1, num_classes, len(targets)))
    return _shifted(targets, rows, corrupted, shift, num_classes), corrupted


def shift_labels(
    targets: torch.Tensor,
    rows: Sequence[NDArray[np.int64]],
    share_of_clients: float,
    num_classes: int,
    rng: np.random.Generator,
) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Give every sample of the same clients the label after its own; the first follows the last.

    All of them are wrong in the same way, which can be learnt.
    """
    _check(targets, share_of_clients, num_classes)
    corrupted = chosen(len(rows), share_of_clients, rng)
    shift = torch.ones(len(targets), dtype=torch.int64)
    return _shifted(targets, rows, corrupted, shift, num_classes), corrupted


def _shifted(
    targets: torch.Tensor,
    rows: Sequence[NDArray[np.int64]],
    corrupted: NDArray[np.int64],
    shift: torch.Tensor,
    num_classes: int,
) -> torch.Tensor:
    """The labels of these clients, each so much further on."""
    honest = np.setdiff1d(np.arange(len(rows)), corrupted)
    spoilt = _owned(rows, corrupted, len(targets))
    if (spoilt & _owned(rows, honest, len(targets))).any():
        raise ConfigError(
            "labels cannot be flipped where a corrupted and an honest client own the same row; "
            "use a partition without overlap"
        )
    flipped = ((targets + shift) % num_classes).to(targets.dtype)
    return torch.where(torch.from_numpy(spoilt), flipped, targets)


def chosen(num_clients: int, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which clients are corrupted, ascending; with one seed a larger share has them all again."""
    order = rng.permutation(num_clients)
    return np.sort(order[: round(share * num_clients)])


def _owned(
    rows: Sequence[NDArray[np.int64]], clients: NDArray[np.int64], num_rows: int
) -> NDArray[np.bool_]:
    owned = np.zeros(num_rows, bool)
    for client in clients:
        owned[rows[client]] = True
    return owned


def _check(targets: torch.Tensor, share_of_clients: float, num_classes: int) -> None:
    if not 0 <= share_of_clients <= 1:
        raise ConfigError(
            f"the share of corrupted clients must be within [0, 1], not {share_of_clients}"
        )
    if num_classes < 2:
        raise ConfigError(f"another label needs at least 2 classes, not {num_classes}")
    if targets.ndim != 1 or targets.is_floating_point() or targets.dtype == torch.bool:
        raise ConfigError(
            "only integer labels, one per sample, can be flipped, not targets of shape "
            f"{tuple(targets.shape)} and type {targets.dtype}; leave the corruption out"
        )
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < num_classes:
        raise ConfigError(
            f"labels must lie within 0 .. {num_classes - 1}, not {int(targets.min())} .. "
            f"{int(targets.max())}; give the number of classes there are"
        )
