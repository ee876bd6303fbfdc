"""Clients that mean harm: they train as asked, then tell and send something else.

What is falsified is the outcome, so any trainer will do: sequential, a pool, or batched. Of a
hostile client's report the losses may be

* `high`: ten times its own, to be picked for it;
* `low`: a tenth of its own, not to stand out;
* `same`: `SYBIL_LOSS`, whoever tells it, so that they are a crowd of their own;

and whoever lies about its loss also tells that a tenth of what is left was left. Sizes and numbers
of steps stay true. The step it sends is `times` its own, or as long as that but in a direction that
all of them share, drawn once a run. Only the trained parameters are touched: buffers stay its own.
What labels it trains on is a matter of its data (`data/corrupt.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import torch

from pisces.errors import ConfigError
from pisces.seeds import derive
from pisces.train.base import Outcome, Trainer
from pisces.types import Report, State, Task, Weights

FACTOR = 10.0  # between what is true of a loss and what is told
SYBIL_LOSS = 5.0  # twice what guessing costs among ten classes


@dataclass(frozen=True, slots=True)
class Lies:
    """Who is hostile, and what they do."""

    clients: frozenset[int]
    loss: Literal["own", "high", "low", "same"] = "own"
    direction: Literal["own", "shared"] = "own"
    times: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not isfinite(self.times):
            raise ConfigError(f"a step is sent a finite number of times, not {self.times}")

    def told(self, report: Report) -> Report:
        """What such a client tells of its training."""
        if self.loss == "own" or report.loss is None or report.loss_rms is None:
            return report
        left = None if report.loss_left is None else report.loss_left / FACTOR
        if self.loss == "same":
            return replace(report, loss=SYBIL_LOSS, loss_rms=SYBIL_LOSS, loss_left=left)
        factor = FACTOR if self.loss == "high" else 1 / FACTOR
        loss, rms = factor * report.loss, factor * report.loss_rms
        return replace(report, loss=loss, loss_rms=rms, loss_left=left)

    def sent(self, base: Weights, own: Weights) -> Weights:
        """What such a client sends, having come from `base` to its `own` weights."""
        if self.direction == "own" and self.times == 1.0:
            return own
        step = own.parameters - base.parameters
        if self.direction == "shared":
            step = step.norm() * self._shared(step)
        new = Weights(own.flat.clone(), own.layout)
        new.parameters.copy_(base.parameters + self.times * step)
        return new

    def _shared(self, like: torch.Tensor) -> torch.Tensor:
        """The direction all of them send, of length 1; drawn on the CPU, the same anywhere."""
        drawn = torch.Generator().manual_seed(derive(self.seed, "hostile"))
        direction: torch.Tensor = torch.randn(len(like), generator=drawn, dtype=like.dtype)
        direction /= direction.norm()
        return direction.to(like.device)


class Lying(Trainer):
    """Trains as another trainer does, and falsifies what comes of hostile clients' tasks."""

    def __init__(self, inner: Trainer, lies: Lies) -> None:
        self._inner, self._lies = inner, lies

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """One outcome per task, in any order."""
        hostile = {task.id: task for task in tasks if task.client in self._lies.clients}
        for outcome in self._inner.train(tasks):
            task = hostile.get(outcome.task_id)
            yield outcome if task is None else self._falsified(task, outcome)

    def _falsified(self, task: Task, outcome: Outcome) -> Outcome:
        sent = self._lies.sent(task.weights, outcome.weights)
        return replace(outcome, weights=sent, report=self._lies.told(outcome.report))

    def close(self) -> None:
        """Close the inner trainer."""
        self._inner.close()

    def state(self) -> State:
        """The inner trainer's."""
        return self._inner.state()

    def restore(self, state: State) -> None:
        """Take it up."""
        self._inner.restore(state)
