"""The trainer's contract, and the recipe every trainer follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

import torch

from pisces.errors import ConfigError
from pisces.types import Report, Stateful, Task, Weights

Optimizer = Literal["sgd", "adam", "adamw"]
Precision = Literal["float32", "bf16"]  # of the arithmetic; weights are kept in float32 either way
# (outputs, targets) -> one loss per sample, or a scalar mean over the batch
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8  # Kingma and Ba, ICLR 2015; torch's defaults


@dataclass(frozen=True, slots=True)
class Recipe:
    """How every client trains; what may differ from task to task is in the task's `Plan`."""

    optimizer: Optimizer = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None  # gradient norm per step; None: no clipping

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(Optimizer):
            choices = ", ".join(get_args(Optimizer))
            raise ConfigError(f"optimizer: must be one of {choices}, not {self.optimizer!r}")
        if not (
            0 <= self.momentum < 1
            and self.weight_decay >= 0
            and (self.clip_norm is None or self.clip_norm > 0)
        ):
            raise ConfigError(
                f"a recipe needs momentum in [0, 1), weight decay >= 0 and clip norm > 0: {self}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of one task."""

    task_id: int
    weights: Weights
    report: Report


def unchanged(task: Task, num_examples: int) -> Outcome:
    """Asked for no step, a client gives back what it got."""
    return Outcome(task.id, task.weights, Report(num_examples))


class Sums(NamedTuple):
    """Of the losses of an epoch's samples."""

    num: float
    total: float
    squares: float


def report_of(num_examples: int, num_steps: int, per_epoch: int, first: Sums, last: Sums) -> Report:
    """A report on the first and the last epoch, of so many steps each, given their losses."""
    if not first.num:
        return Report(num_examples, num_steps=num_steps)
    # Before a second epoch is over not every sample was learnt from, then seen again.
    left = last.total / last.num if num_steps >= 2 * per_epoch else None
    return Report(
        num_examples,
        loss=first.total / first.num,
        loss_rms=(first.squares / first.num) ** 0.5,
        num_steps=num_steps,
        loss_left=left,
    )


class Trainer(Stateful, Protocol):
    """Trains many tasks at once, each from its own weights.

    A result depends only on the task's weights, client, plan and seed: not on the other tasks in
    the call (where they are computed together, but for rounding), nor on how many calls were made
    before.
    """

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """One outcome per task, in any order."""
        ...

    def close(self) -> None:
        """Give back whatever is held."""
        return
