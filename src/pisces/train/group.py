"""A group of clients that train side by side: its memory, its step, and the step's recordings.

On a GPU a step is recorded once per shape and then replayed (a CUDA graph): launching its hundred
small kernels one by one would take longer than running them. A recording knows its memory by
address, so all of it is laid out once, when the group is made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import torch

from pisces.train.base import Outcome, Recipe, Sums, report_of
from pisces.train.gradients import CannotBatchError, Gradients, Pass
from pisces.train.optimize import clipped, optimizer
from pisces.train.shuffle import Table
from pisces.types import Task, Weights

log = logging.getLogger("pisces")

Shape = tuple[int, int]  # clients, and samples of each, in a step
Samples = tuple[torch.Tensor, torch.Tensor]  # inputs and targets of everybody, on the device


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """Results of a group, perhaps still being computed by the device."""

    tasks: Sequence[Task]
    weights: Sequence[torch.Tensor]
    sums: torch.Tensor  # (2, 3, tasks): of ones, losses and squares, in first and last epoch
    num_steps: torch.Tensor
    per_epoch: torch.Tensor

    def outcomes(self, sizes: Sequence[int]) -> Iterator[Outcome]:
        """Wait for the results and hand them out, given how many samples each client has."""
        first, last = self.sums.mT.tolist()
        steps = zip(self.num_steps.tolist(), self.per_epoch.tolist(), strict=True)
        rows = zip(self.tasks, self.weights, sizes, steps, first, last, strict=True)
        for task, flat, size, (total, per_epoch), at_first, at_last in rows:
            report = report_of(size, total, per_epoch, Sums(*at_first), Sums(*at_last))
            yield Outcome(task.id, Weights(flat, task.weights.layout), report)


@dataclass(frozen=True, slots=True)
class Needs:
    """What tasks need of a group, beside a place each."""

    room: int  # samples in a step
    steps: int  # at most, of a task
    proximal: bool


class Group:
    """Memory for `size` clients with such needs, and what they do in it.

    Tasks have a step at least and come longest first, so whoever is done stands at the end and the
    group narrows.
    """

    def __init__(
        self,
        gradients: Gradients,
        recipe: Recipe,
        samples: Samples,
        like: Weights,
        *,
        size: int,
        needs: Needs,
    ) -> None:
        flat, device = like.flat, like.flat.device
        self._needs = needs
        self._gradients, self._samples, self._clip_norm = gradients, samples, recipe.clip_norm
        self._stream = torch.cuda.Stream(device) if flat.is_cuda else None
        self._weights = flat.new_zeros(size, len(flat))
        self._num_parameters = like.layout.num_parameters
        parameters = self._weights[:, : self._num_parameters]
        self._start = torch.zeros_like(parameters) if needs.proximal else parameters
        self._optimizer = optimizer(recipe, parameters)
        self._rate, self._pull = flat.new_zeros(size, 1), flat.new_zeros(size, 1)
        self._rows = torch.zeros(size, needs.room, dtype=torch.int64, device=device)
        # A sample of each client's own, to fill up its batches: others' may be spoilt.
        self._own = torch.zeros(size, dtype=torch.int64, device=device)
        self._num_steps = torch.zeros(size, dtype=torch.int64, device=device)
        self._losses = flat.new_zeros(needs.steps, size, needs.room)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._seen: set[Shape] = set()
        self._recordings: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._records = flat.is_cuda
        self._graph_memory = torch.cuda.graph_pool_handle() if flat.is_cuda else None

    def train(self, tasks: Sequence[Task], table: Table, shapes: Sequence[Shape]) -> Trained:
        """Start the tasks' training; on a GPU this returns long before it is done."""
        with self._in_own_stream():
            self._load(tasks, table)
            for rows, shape in zip(table.rows, shapes, strict=False):
                self._rows[: len(tasks)].copy_(rows)
                self._advance(shape)
            weights = [self._weights[k].clone() for k in range(len(tasks))]
            return Trained(
                tasks, weights, self._sums(len(tasks), table), table.num_steps, table.per_epoch
            )

    def holds(self, num: int, needs: Needs) -> bool:
        """Is there memory for so many clients with such needs?"""
        fits = num <= len(self._rows) and needs.steps <= self._needs.steps
        return fits and needs.room == self._needs.room and needs.proximal <= self._needs.proximal

    def join(self) -> None:
        """What the device does next comes after all this."""
        if self._stream is not None:
            torch.cuda.current_stream(self._weights.device).wait_stream(self._stream)

    def _in_own_stream(self) -> AbstractContextManager[object]:
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._weights.device))
        return torch.cuda.stream(self._stream)

    def _load(self, tasks: Sequence[Task], table: Table) -> None:
        num = len(tasks)
        torch.stack([task.weights.flat for task in tasks], out=self._weights[:num])
        if self._needs.proximal:
            self._start[:num].copy_(self._weights[:num, : self._num_parameters])
        plans = [(t.plan.learning_rate, t.plan.learning_rate * t.plan.proximal) for t in tasks]
        rates = torch.tensor(plans, dtype=self._rate.dtype).to(self._rate.device)
        self._rate[:num], self._pull[:num] = rates[:, :1], rates[:, 1:]
        self._num_steps.zero_()
        self._num_steps[:num] = table.num_steps
        self._rows.fill_(-1)
        self._own.zero_()
        self._own[:num] = table.rows[0, :, 0]
        self._step.zero_()
        self._optimizer.reset()
        self._gradients.reset()

    def _advance(self, shape: Shape) -> None:
        """Do a step: directly the first time, which warms up what it needs, then recorded."""
        if self._stream is None or not self._records or shape not in self._seen:
            self._seen.add(shape)
            self._do_step(*shape)
            return
        if shape not in self._recordings:
            self._record(shape)
        if shape in self._recordings:
            self._recordings[shape].replay()
        else:
            self._do_step(*shape)

    def _record(self, shape: Shape) -> None:
        # Not `torch.cuda.graph`, which collects garbage and empties the cache each time.
        recording = torch.cuda.CUDAGraph()
        recording.capture_begin(self._graph_memory)
        try:
            self._do_step(*shape)
            recording.capture_end()
        except Exception as error:
            with suppress(RuntimeError):
                recording.capture_end()
            if isinstance(error, (torch.OutOfMemoryError, CannotBatchError)):
                raise
            self._records = False
            log.warning("a step of this model cannot be recorded, so it is slower: %s", error)
            return
        self._recordings[shape] = recording

    def _do_step(self, width: int, room: int) -> None:
        rows = self._rows[:width, :room]
        there = rows >= 0
        rows = torch.where(there, rows, self._own[:width, None])
        inputs, targets = (part[rows] for part in self._samples)
        done = self._gradients(self._weights[:width], inputs, targets, there)
        self._move(width, done)
        self._losses[:, :width, :room].index_copy_(0, self._step, done.losses[None])
        self._step += 1

    def _move(self, width: int, done: Pass) -> None:
        """Everybody moves whose task has such a step; the others only stand beside."""
        weights = self._weights[:width]
        parameters, buffers = weights.tensor_split([self._num_parameters], dim=1)
        goes_on = self._step < self._num_steps[:width, None]
        # Both: 0 times a gradient beyond all bounds is not 0.
        rate, gradients = self._rate[:width] * goes_on, done.gradients.where(goes_on, 0.0)
        if self._gradients.frozen is not None:
            rate = rate * ~self._gradients.frozen
        if self._clip_norm is not None:
            gradients = clipped(gradients, self._clip_norm)
        if self._needs.proximal:  # FedProx: taken before the step, applied beside it
            pull = (parameters - self._start[:width]) * self._pull[:width] * goes_on
        self._optimizer.move(parameters, gradients, rate, self._step + 1)
        if self._needs.proximal:
            parameters -= pull
        if buffers.shape[1]:
            buffers.copy_(torch.where(goes_on, done.buffers, buffers))

    def _sums(self, num: int, table: Table) -> torch.Tensor:
        """Number, sum and sum of squares of each client's losses, in its first and last epoch."""
        most = len(table.rows)
        step = torch.arange(most, device=self._losses.device)[:, None]
        epochs = step < table.per_epoch, step >= table.num_steps - table.per_epoch
        counted = (table.rows >= 0) & torch.stack(epochs)[..., None]
        losses = torch.where(counted, self._losses[:most, :num].double(), 0.0)
        return torch.stack([counted, losses, losses.square()], dim=1).sum(dim=(2, 4))
