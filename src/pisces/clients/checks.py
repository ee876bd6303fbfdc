"""What is wrong with what a client sent? Nothing from a client is believed before this."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from reprlib import repr as shortened  # a client may send anything, of any length
from typing import TYPE_CHECKING

import numpy as np

from pisces.errors import ConfigError
from pisces.types import MOST_CLIENTS, Layout, Report, Weights

if TYPE_CHECKING:
    import torch

_MOST = sys.float_info.max  # what is above it is infinite, limit or none


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond these a claim is absurd, whoever makes it."""

    max_clients: int = MOST_CLIENTS
    max_examples: int = 100_000_000
    max_loss: float = 1e6
    max_norm: float = 1e15  # of an update's weights, and of what they differ by from those sent
    max_update_bytes: int | None = None  # of its weights; none: what the model takes
    max_buffered_bytes: int = 16 * 2**30  # of the weights of all updates that wait

    def __post_init__(self) -> None:
        if not 1 <= self.max_clients <= MOST_CLIENTS:
            raise ConfigError(
                f"limits: max_clients must be from 1 to {MOST_CLIENTS}, not {self.max_clients}"
            )
        if not (self.max_norm > 0 and self.max_loss > 0):
            raise ConfigError(
                "limits: max_norm and max_loss must be greater than 0, not "
                f"{self.max_norm} and {self.max_loss}"
            )
        sizes = (self.max_update_bytes, self.max_buffered_bytes)
        if any(size is not None and size < 1 for size in sizes):
            raise ConfigError(
                "limits: max_update_bytes and max_buffered_bytes must be at least 1, not "
                f"{self.max_update_bytes} and {self.max_buffered_bytes}"
            )


def update_bytes(layout: Layout, limits: Limits) -> int:
    """How many bytes the weights of an update take; refused where that is more than allowed.

    Whoever reads updates from a network asks for this, and reads no more. Where clients are in the
    same process nobody needs to: weights of any other shape are refused as they arrive.
    """
    wanted = Shape.of(layout)
    size = layout.size * wanted.dtype.itemsize
    if limits.max_update_bytes is not None and size > limits.max_update_bytes:
        raise ConfigError(
            f"max_update_bytes: an update of this model takes {size} bytes, more than "
            f"{limits.max_update_bytes}; raise it, or use a smaller model"
        )
    return size


def most_buffered(num_wanted: int, layout: Layout, limits: Limits) -> int:
    """How many updates may wait at once; refused where a pace wants more of them to."""
    size = update_bytes(layout, limits)
    needed = num_wanted * size
    if needed > limits.max_buffered_bytes:
        raise ConfigError(
            f"max_buffered_bytes: the pace lets {num_wanted} updates wait, which takes {needed} "
            f"bytes ({num_wanted} x {size}), more than {limits.max_buffered_bytes}; raise it if "
            "there is memory, or use a smaller buffer, fewer clients at once or a smaller model"
        )
    return limits.max_buffered_bytes // max(1, size)


def no_client(client: object) -> str | None:
    """Is that a client's number at all, be it a wrong one? If not, why not."""
    if type(client) is not int:
        return f"a client must be an integer, not {shortened(client)}"
    if abs(client) >= 2**63:  # too long a number cannot even be written
        return f"a client must be an integer of 64 bits, not of {client.bit_length()}"
    return None


def wrong_client(client: object, limits: Limits) -> str | None:
    """What is wrong with a client's number? The table has a row for every number up to it."""
    if problem := no_client(client):
        return problem
    assert isinstance(client, int)
    if not 0 <= client < limits.max_clients:
        return f"client {shortened(client)}, outside 0..{limits.max_clients - 1}"
    return None


def wrong_size(num_examples: object, limits: Limits) -> str | None:
    """What is wrong with the number of examples a client says it has?"""
    if not isinstance(num_examples, int) or isinstance(num_examples, bool):
        return f"the number of examples must be an integer, not {shortened(num_examples)}"
    if not 1 <= num_examples <= limits.max_examples:
        return f"{shortened(num_examples)} examples, outside 1..{limits.max_examples}"
    return None


@dataclass(frozen=True, slots=True)
class Shape:
    """What weights of a layout look like."""

    shape: tuple[int]
    dtype: torch.dtype

    @classmethod
    def of(cls, layout: Layout) -> Shape:
        """Of float64 where one tensor is: a finite float64 may be infinite as a float32."""
        import torch  # here, because limits can be set without it

        return cls((layout.size,), getattr(torch, layout.dtype))


def wrong_weights(weights: Weights, sent: Weights, wanted: Shape, limits: Limits) -> str | None:
    """What is wrong with a client's weights, which was sent others to begin from?

    Finite is not enough: a model or a memory moved to where floats end overflows with whatever is
    added next, so that one such update would keep a run from ever making another version.
    """
    flat = weights.flat
    if not hasattr(flat, "isfinite"):
        return f"weights that are no tensor but a {type(flat).__name__}"
    if flat.shape != wanted.shape:
        return f"weights of shape {tuple(flat.shape)}, not {wanted.shape}"
    if flat.dtype != wanted.dtype:
        return f"weights of type {flat.dtype}, not {str(wanted.dtype).removeprefix('torch.')}"
    if _norm(flat) <= min(limits.max_norm, _MOST):  # neither NaN nor infinity is
        return None
    if not is_finite(flat):
        return "weights that are not finite"
    # Whoever begins far away, because others brought the model there, may end there.
    far = _norm(flat - sent.flat.to(flat.device))
    if far <= limits.max_norm:
        return None
    return f"weights {far:g} away from those it was sent, above {limits.max_norm:g}"


def is_finite(flat: torch.Tensor) -> bool:
    """Is every number finite?"""
    # Their sum is not if one of them is not, and is quick; but it may also have grown too large.
    return math.isfinite(_sum(flat)) or bool(flat.isfinite().all())


def _norm(flat: torch.Tensor) -> float:
    """Infinite also where its square is; in one pass, as the sum is."""
    if not flat.is_cpu:
        return math.sqrt(float(flat.detach().dot(flat.detach())))
    values = flat.detach().numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(float(np.dot(values, values)))


def _sum(flat: torch.Tensor) -> float:
    if not flat.is_cpu:
        return float(flat.detach().sum())
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.add.reduce(flat.detach().numpy()))  # half of what torch takes


def wrong_report(report: Report, declared: int, limits: Limits) -> str | None:
    """What is wrong with a report of a client that declared so many examples when it joined?"""
    if problem := wrong_size(report.num_examples, limits):
        return problem
    if report.num_examples > declared:
        return f"{report.num_examples} examples, more than the {declared} it joined with"
    losses = ("loss", report.loss), ("RMS loss", report.loss_rms), ("loss left", report.loss_left)
    for name, loss in losses:
        if loss is not None and not _is_within(loss, limits.max_loss):
            return f"{name} {shortened(loss)}, not a finite number up to {limits.max_loss:g}"
    return _wrong_rms(report)


def _is_within(value: object, most: float) -> bool:
    return isinstance(value, int | float) and -most <= value <= most  # NaN is not


def _wrong_rms(report: Report) -> str | None:
    if report.loss_rms is None:
        return None
    # A root mean square is never below the mean; float32 sums may miss that by a little.
    mean = 0.0 if report.loss is None else abs(report.loss)
    if report.loss_rms < mean * (1 - 1e-3):
        return f"RMS loss {report.loss_rms:g}, below {mean:g}, the least its mean allows"
    return None
