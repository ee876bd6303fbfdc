"""One client after the other, in plain PyTorch: the reference every faster trainer is held to."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from pisces.data.federated import FederatedData
from pisces.models.flat import Counters, flatten, load_flat
from pisces.models.tuning import faster_pooling, keep_memory, pool_first
from pisces.train.base import (
    ADAM_BETAS,
    ADAM_EPS,
    Loss,
    Outcome,
    Recipe,
    Sums,
    Trainer,
    report_of,
    unchanged,
)
from pisces.train.shuffle import batch_sizes, num_steps, shuffled
from pisces.types import Plan, Task

log = logging.getLogger("pisces")

_Losses = tuple[torch.Tensor, int]  # of a step's samples (or their mean), and how many they are


class SequentialTrainer(Trainer):
    """Trains any `nn.Module` on each task's client data, deterministically per task.

    `goes_on` is asked before every step but the first. Where it says no, training ends there: the
    outcome is that of a plan of so many steps.
    """

    def __init__(
        self,
        model: nn.Module,
        data: FederatedData,
        loss: Loss,
        recipe: Recipe | None = None,
        device: torch.device | str = "cpu",
        *,
        goes_on: Callable[[], bool] | None = None,
    ) -> None:
        self._goes_on = goes_on or (lambda: True)
        self._model = pool_first(model.to(device))
        self._inputs = data.inputs.to(device)
        self._targets = data.targets.to(device)
        self._rows, self._sizes = data.rows, data.num_examples
        self._loss = loss
        self._recipe = recipe or Recipe()
        self._device = torch.device(device)
        self._counters = Counters(self._model)
        if self._device.type == "cpu":
            keep_memory()

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Train the tasks in order."""
        for task in tasks:
            size = int(self._sizes[task.client])
            if num_steps(size, task.plan)[0] == 0:
                yield unchanged(task, size)
                continue
            with _seeded(self._device, task.seed):
                outcome = self._train(task)
            yield outcome

    def _train(self, task: Task) -> Outcome:
        load_flat(self._model, task.weights)
        self._counters.reset()
        self._model.train()
        step = _Step(self._model, self._loss, self._recipe, task.plan)
        size = int(self._sizes[task.client])
        _, per_epoch = num_steps(size, task.plan)
        num_done, first, last = 0, list[_Losses](), deque[_Losses](maxlen=per_epoch)
        for batch in self._batches(task):
            if num_done and not self._goes_on():
                break
            inputs, targets = (x.index_select(0, batch) for x in (self._inputs, self._targets))
            last.append((step(inputs, targets), len(batch)))
            first += [last[-1]] if num_done < per_epoch else []
            num_done += 1
        report = report_of(size, num_done, per_epoch, _sums(first), _sums(last))
        return Outcome(task.id, flatten(self._model, task.weights.layout), report)

    def _batches(self, task: Task) -> Iterator[torch.Tensor]:
        """Row numbers of each step's samples."""
        rows, plan = torch.from_numpy(self._rows[task.client]).to(self._device), task.plan
        size, left = int(self._sizes[task.client]), plan.max_steps
        for epoch in range(plan.epochs):
            order = rows[shuffled(len(rows), task.seed, epoch, self._device)[:size]]
            for batch in torch.split(order, batch_sizes(size, plan.batch_size)):
                if left is not None and (left := left - 1) < 0:
                    return
                yield batch


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Layers such as dropout draw from the device's own generator: lend it the task's seed."""
    # Not torch.manual_seed: without a GPU it queues a call, with a stack trace, every time.
    generator = torch.default_generator
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(before)


class _Step:
    """One optimiser step; fresh optimiser state for every task."""

    def __init__(self, model: nn.Module, loss: Loss, recipe: Recipe, plan: Plan) -> None:
        self._model = model
        self._pooling = faster_pooling(model)
        self._loss = loss
        self._clip_norm = recipe.clip_norm
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = _Sgd if recipe.optimizer == "sgd" else _Adam
        self._optimizer = optimizer(self._parameters, recipe, plan.learning_rate)
        self._pull = plan.proximal * plan.learning_rate
        self._start = [p.detach().clone() for p in self._parameters] if self._pull else []

    def __call__(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Do the step; returns the losses before it, per sample if the loss gives them."""
        with self._pooling():
            outputs = self._model(inputs)
        losses = self._loss(outputs, targets)
        for parameter in self._parameters:
            parameter.grad = None
        torch.autograd.backward(losses.mean())
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        with torch.no_grad():
            # FedProx (Li et al., MLSys 2020): the gradient of mu/2 |w - w_start|^2, taken before
            # the step and applied beside it, so that momentum does not accumulate it.
            pulls = [p - s for p, s in zip(self._parameters, self._start, strict=False)]
            self._optimizer.step([p for p in self._parameters if p.grad is not None])
            for parameter, pull in zip(self._parameters, pulls, strict=False):
                parameter.sub_(pull, alpha=self._pull)
        return losses.detach()


# torch.optim's functions, not its classes: the first of those to be made imports a compiler, which
# takes a second in every process.


class _Sgd:
    def __init__(
        self, parameters: Sequence[torch.Tensor], recipe: Recipe, learning_rate: float
    ) -> None:
        self._velocities = {p: torch.zeros_like(p) for p in parameters}
        self._recipe = recipe
        self._learning_rate = learning_rate

    def step(self, parameters: list[torch.Tensor]) -> None:
        """Move these parameters, which have gradients."""
        sgd(
            parameters,
            _gradients(parameters),
            [self._velocities[p] for p in parameters],
            fused=True,
            lr=self._learning_rate,
            momentum=self._recipe.momentum,
            weight_decay=self._recipe.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class _Adam:
    def __init__(
        self, parameters: Sequence[torch.Tensor], recipe: Recipe, learning_rate: float
    ) -> None:
        self._means = {p: torch.zeros_like(p) for p in parameters}
        self._squares = {p: torch.zeros_like(p) for p in parameters}
        self._num_steps = {p: torch.zeros((), device=p.device) for p in parameters}
        self._recipe = recipe
        self._learning_rate = learning_rate

    def step(self, parameters: list[torch.Tensor]) -> None:
        """Move these parameters, which have gradients."""
        adam(
            parameters,
            _gradients(parameters),
            [self._means[p] for p in parameters],
            [self._squares[p] for p in parameters],
            [],
            [self._num_steps[p] for p in parameters],
            fused=True,
            decoupled_weight_decay=self._recipe.optimizer == "adamw",
            lr=self._learning_rate,
            weight_decay=self._recipe.weight_decay,
            beta1=ADAM_BETAS[0],
            beta2=ADAM_BETAS[1],
            eps=ADAM_EPS,
            amsgrad=False,
            maximize=False,
        )


def _gradients(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


@cache
def _say_once_that_losses_are_means() -> None:
    log.warning(
        "the loss gives one value per batch, so the spread within a batch is not seen, on which "
        "guided selection relies; a loss per sample (reduction='none') is better"
    )


def _sums(steps: Iterable[_Losses]) -> Sums:
    """Of losses and their squares, in float64, step by step."""
    sums = Sums(0, 0.0, 0.0)
    for losses, num in steps:
        of_each = _per_sample(losses, num)
        total, squares = float(of_each.sum()), float(of_each.square().sum())
        sums = Sums(sums.num + num, sums.total + total, sums.squares + squares)
    return sums


def _per_sample(losses: torch.Tensor, num: int) -> torch.Tensor:
    if losses.ndim == 0:
        _say_once_that_losses_are_means()
        return losses.double().expand(num)
    # A loss per token (or per output) counts as its sample's mean.
    return losses.double().reshape(num, -1).mean(dim=1)
