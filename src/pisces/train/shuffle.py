"""Which samples each step sees, alike in every trainer.

Shuffles come from a counter-based generator: any device, any order of work, the same permutation.
Sample i of epoch e gets the key mix(seed, e, i); sorting the keys is the shuffle. No state is
carried, so an epoch's order does not depend on what was drawn before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.data.federated import FederatedData
from pisces.types import Plan, Task

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: splitmix64's increment
_Number = TypeVar("_Number", int, torch.Tensor)
_MOST_KEYS = 1 << 24  # sorted at once; bounds the memory of a table being built


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
    """The order in which `num` samples are visited in this epoch, if it visits them all."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The row numbers of every client's samples, one client after the other."""

    flat: torch.Tensor
    starts: NDArray[np.int64]
    owned: NDArray[np.int64]  # rows of each client
    sizes: NDArray[np.int64]  # how many of them an epoch visits

    @classmethod
    def of(cls, data: FederatedData, device: torch.device) -> Rows:
        """Lay the clients' rows end to end on a device."""
        owned = np.array([len(r) for r in data.rows], np.int64)
        flat = torch.from_numpy(np.concatenate(data.rows)).to(device)
        return cls(flat, np.cumsum(owned) - owned, owned, data.num_examples)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Every step of many tasks at once: `rows[t, k]` are the samples of task k's step t.

    -1 stands where a step has fewer samples than there is room for, or a task has no such step.
    """

    rows: torch.Tensor  # (most steps, tasks, room)
    num_steps: torch.Tensor  # of each task
    per_epoch: torch.Tensor  # steps of an epoch of each task

    def part(self, tasks: slice) -> Table:
        """The same for some of the tasks."""
        return Table(self.rows[:, tasks], self.num_steps[tasks], self.per_epoch[tasks])


def num_steps(num: int, plan: Plan) -> tuple[int, int]:
    """Steps in all and per epoch, for a client of `num` samples."""
    per_epoch = len(batch_sizes(num, plan.batch_size))
    return total_steps(per_epoch, plan), per_epoch


def total_steps(per_epoch: int, plan: Plan) -> int:
    """Steps in all, for a client whose epoch has so many."""
    steps = plan.epochs * per_epoch
    return steps if plan.max_steps is None else min(steps, plan.max_steps)


def num_samples(num: int, plan: Plan) -> int:
    """Samples seen in all, or about so many: what a task of a client of `num` samples costs."""
    samples = num * plan.epochs
    return samples if plan.max_steps is None else min(samples, plan.max_steps * plan.batch_size)


def table(rows: Rows, tasks: Sequence[Task], room: int) -> Table:
    """The steps of these tasks, built on the rows' device; no step has more samples than `room`.

    Nothing loops over samples or steps: that would cost as much as the training.
    """
    device = rows.flat.device
    facts = [_facts(rows, task) for task in tasks]
    num_epochs, longest = max(f.epochs for f in facts), max(f.owned for f in facts)
    most = max(1, *(f.steps for f in facts))
    columns = torch.tensor(facts).T.to(device)
    filled = torch.full((most + 1, len(tasks), room), -1, dtype=torch.int64, device=device)
    at_once = max(1, _MOST_KEYS // (num_epochs * longest))
    for first in range(0, len(tasks), at_once):
        some = slice(first, first + at_once)
        _fill(filled[:, some], rows.flat, columns[:, some], num_epochs, longest)
    known = _Facts(*columns)
    return Table(filled[:-1], known.steps, known.per_epoch)


class _Facts(NamedTuple, Generic[_Number]):
    """Of one task, or a column of each."""

    start: _Number
    owned: _Number
    size: _Number
    seed: _Number
    epochs: _Number
    batch_size: _Number
    steps: _Number
    per_epoch: _Number


def _facts(rows: Rows, task: Task) -> _Facts[int]:
    start, owned, size = (int(of[task.client]) for of in (rows.starts, rows.owned, rows.sizes))
    plan = task.plan
    steps = num_steps(size, plan)
    return _Facts(start, owned, size, _signed(task.seed), plan.epochs, plan.batch_size, *steps)


def _fill(
    filled: torch.Tensor, flat: torch.Tensor, columns: torch.Tensor, num_epochs: int, longest: int
) -> None:
    """Put each sample where its shuffle says; what belongs nowhere goes to the row too many."""
    columns = columns[:, :, None, None]
    start, owned, size, seed, epochs, batch_size, steps, per_epoch = _Facts(*columns)
    position = torch.arange(longest, device=flat.device)
    epoch = torch.arange(num_epochs, device=flat.device)[:, None]
    keys = _mix(_mix(seed + (epoch + 1) * _signed(_GOLDEN)) + position * _signed(_GOLDEN))
    keys.masked_fill_(position >= owned, torch.iinfo(torch.int64).max)  # sorted behind the others
    order = torch.argsort(keys, dim=-1, stable=True)
    step = torch.minimum(position // batch_size, per_epoch - 1)
    at = epoch * per_epoch + step
    at = torch.where((position < size) & (epoch < epochs) & (at < steps), at, len(filled) - 1)
    task = torch.arange(columns.shape[1], device=flat.device)[:, None, None]
    column = (position - step * batch_size).clamp(max=filled.shape[2] - 1)
    filled[at, task, column] = flat[(start + order).clamp(max=len(flat) - 1)]
