"""Which samples each step sees, alike in every trainer.

Shuffles come from a counter-based generator: any device, any order of work, the same permutation.
Sample i of epoch e gets the key mix(seed, e, i); sorting the keys is the shuffle. No state is
carried, so an epoch's order does not depend on what was drawn before it.
"""

from __future__ import annotations

import torch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: splitmix64's increment


def _signed(value: int) -> int:
    """The int64 with the same bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift of int64 (torch's shift keeps the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser (Steele et al., OOPSLA 2014) on int64 with wrap-around."""
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def shuffled(num: int, seed: int, epoch: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """The order in which `num` samples are visited in this epoch."""
    start = _signed(seed + (epoch + 1) * _GOLDEN)
    base = _mix(torch.tensor([start], device=device))
    keys = _mix(base + torch.arange(num, device=device) * _signed(_GOLDEN))
    return torch.argsort(keys, stable=True)


def batch_sizes(num: int, batch_size: int) -> list[int]:
    """Batches over `num` samples; a last one of a single sample, which BatchNorm could not take,
    joins the one before it.
    """
    sizes = [min(batch_size, num - start) for start in range(0, num, batch_size)]
    if batch_size > 1 and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [batch_size + 1]
    return sizes
