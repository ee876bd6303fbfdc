"""How good is a version? Measured off the loop's clock: evaluation takes no virtual time, and in
real time it happens in the background.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from pisces.errors import ConfigError
from pisces.models.flat import load_flat
from pisces.models.tuning import faster_pooling, pool_first
from pisces.train.base import Loss
from pisces.types import Evaluated, State, Stateful, Weights

# Samples tested at a time. On a CPU what a layer computes should still be there for the next.
_BATCH, _BATCH_ON_GPU = 256, 8192
# Numbers a model may put out at a time: a word's output is as large as the vocabulary.
_OUTPUTS, _OUTPUTS_ON_GPU = 1 << 22, 1 << 28
SHORTEST_S = 1e-3  # between two evaluations: less is a mistake that would fill the disk
Measure = Callable[[int, Weights], Mapping[str, float]]  # of a version: its number, its weights
Metric = Callable[[torch.Tensor, torch.Tensor], float]  # (outputs, targets) -> value


@dataclass(frozen=True, slots=True)
class Schedule:
    """When to evaluate: every so many seconds, every so many versions, or both."""

    every_s: float | None = None
    every_versions: int | None = None

    def __post_init__(self) -> None:
        if not (self.every_s is None or self.every_s >= SHORTEST_S):
            raise ConfigError(
                f"evaluate.every_s: must be at least {SHORTEST_S}, not {self.every_s}"
            )
        if not (self.every_versions is None or self.every_versions >= 1):
            raise ConfigError(
                f"evaluate.every_versions: must be at least 1, not {self.every_versions}"
            )

    def next_at(self, last_at: float) -> float:
        """The next instant due after `last_at`."""
        return math.inf if self.every_s is None else last_at + self.every_s

    def due(self, now: float, version: int, last_at: float, last_version: int) -> bool:
        """Is it time, given when and what was evaluated last (-1: nothing yet)?"""
        if last_version < 0 or now >= self.next_at(last_at):
            return True
        return self.every_versions is not None and version >= last_version + self.every_versions


class Evaluator(Stateful, Protocol):
    """Takes versions to evaluate and hands out results when they are there."""

    @property
    def busy(self) -> bool:
        """Is a result still to come?"""
        ...

    def start(self, at: float, version: int, weights: Weights) -> None:
        """Evaluate this version, seen at this instant."""
        ...

    def finished(self) -> list[Evaluated]:
        """Results that are there now, oldest first, each handed out once."""
        ...

    def drain(self) -> list[Evaluated]:
        """Wait for all results."""
        ...


class Inline(Evaluator):
    """Evaluates at once: right for virtual time, where the loop has all the time in the world."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._known: tuple[int, Mapping[str, float]] | None = None
        self._done: list[Evaluated] = []

    @property
    def busy(self) -> bool:
        """Never: `start` returns when it is done."""
        return False

    def start(self, at: float, version: int, weights: Weights) -> None:
        """Measure now, unless this very version was measured last time."""
        if self._known is None or self._known[0] != version:
            self._known = (version, self._measure(version, weights))
        self._done.append(Evaluated(at, version, self._known[1]))

    def finished(self) -> list[Evaluated]:
        """All results."""
        done, self._done = self._done, []
        return done

    def drain(self) -> list[Evaluated]:
        """All results."""
        return self.finished()

    def state(self) -> State:
        """What was measured last."""
        return State({"known": self._known and [self._known[0], dict(self._known[1])]})

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        known = state.values["known"]
        self._known = known and (known[0], known[1])


class Background(Evaluator):
    """Evaluates in one thread beside the loop: right for real time, where nothing may block it."""

    def __init__(self, measure: Measure) -> None:
        self._inline = Inline(measure)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluate")
        self._pending: list[Future[list[Evaluated]]] = []

    @property
    def busy(self) -> bool:
        """Is a result still to come?"""
        return bool(self._pending)

    def start(self, at: float, version: int, weights: Weights) -> None:
        """Queue this version."""
        self._pending.append(self._thread.submit(self._evaluate, at, version, weights))

    def _evaluate(self, at: float, version: int, weights: Weights) -> list[Evaluated]:
        self._inline.start(at, version, weights)
        return self._inline.finished()

    def finished(self) -> list[Evaluated]:
        """Results there now, in the order they were asked for."""
        done: list[Evaluated] = []
        while self._pending and self._pending[0].done():
            done += self._pending.pop(0).result()
        return done

    def drain(self) -> list[Evaluated]:
        """Wait for all results and end the thread."""
        self._thread.shutdown(wait=True)
        return self.finished()


class Nothing(Evaluator):
    """Evaluates nothing: for a server that has nothing to test on."""

    @property
    def busy(self) -> bool:
        """Never."""
        return False

    def start(self, at: float, version: int, weights: Weights) -> None:
        """Let it be."""

    def finished(self) -> list[Evaluated]:
        """None."""
        return []

    def drain(self) -> list[Evaluated]:
        """None."""
        return []


class TestSet:
    """Measures weights on held-out samples: mean loss, metrics, and what follows from the loss.

    `metrics` are functions of all outputs, which are kept only if there are any; `means` of one
    value per sample, taken batch by batch, as the loss is.
    """

    __test__ = False  # not a test case, whatever its name says to a test runner

    def __init__(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        loss: Loss,
        metrics: Mapping[str, Metric] | None = None,
        means: Mapping[str, Loss] | None = None,
        of_loss: Mapping[str, Callable[[float], float]] | None = None,
        *,
        batch_size: int | None = None,
    ) -> None:
        self._model = pool_first(model)
        self._pooling = faster_pooling(self._model)
        self._inputs = inputs
        self._targets = targets
        self._metrics = {"accuracy": accuracy} if metrics is None else dict(metrics)
        self._means = {**(means or {}), "loss": loss}
        self._of_loss = dict(of_loss or {})
        self._batch_size = batch_size

    @torch.no_grad()
    def __call__(self, weights: Weights) -> dict[str, float]:
        """All metrics of these weights."""
        load_flat(self._model, weights)
        self._model.eval()
        if self._batch_size is None:
            self._batch_size = self._fitting_batch()
        kept: list[torch.Tensor] = []
        columns = {name: _Column(len(self._targets)) for name in self._means}
        parts = (torch.split(part, self._batch_size) for part in (self._inputs, self._targets))
        for inputs, targets in zip(*parts, strict=True):
            outputs = self._outputs(inputs)
            for name, mean in self._means.items():
                columns[name].add(mean(outputs, targets), len(targets))
            if self._metrics:
                kept.append(outputs)
        return self._measured(kept, {name: column.mean() for name, column in columns.items()})

    def _outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        with self._pooling():
            outputs: torch.Tensor = self._model(inputs)
        return outputs

    def _measured(self, kept: list[torch.Tensor], means: Mapping[str, float]) -> dict[str, float]:
        measured: dict[str, float] = {}
        if self._metrics:
            outputs = torch.cat(kept)
            measured = {
                name: float(metric(outputs, self._targets))
                for name, metric in self._metrics.items()
            }
        measured |= means
        return measured | {name: of(measured["loss"]) for name, of in self._of_loss.items()}

    def _fitting_batch(self) -> int:
        """Samples at a time; where each has many targets, by how much one puts out."""
        on_gpu = self._inputs.is_cuda
        most = _BATCH_ON_GPU if on_gpu else _BATCH
        if self._targets.ndim == 1:
            return most
        room = _OUTPUTS_ON_GPU if on_gpu else _OUTPUTS
        return min(most, max(1, room // self._outputs(self._inputs[:1]).numel()))


class _Column:
    """A value of each sample, filled in batch by batch.

    It lies in one piece: many small pieces kept would splinter the memory that outputs come and go
    in, which would then grow with every batch.
    """

    def __init__(self, num: int) -> None:
        self._num, self._filled = num, 0
        self._values: torch.Tensor | None = None

    def add(self, values: torch.Tensor, num: int) -> None:
        """The values of the next `num` samples; their mean, where there is only that, for each."""
        if self._values is None:
            self._values = values.new_empty(self._num, *values.shape[1:])
        self._values[self._filled : self._filled + num] = values
        self._filled += num

    def mean(self) -> float:
        """Over all samples."""
        assert self._values is not None
        return float(self._values.mean())


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Share of samples whose largest output is their target.

    Counted: a mean in float32 of 9780 out of 10 000 is just below 0.978, a target it has met.
    """
    right = outputs.argmax(dim=-1) == targets
    return int(right.sum()) / right.numel()
