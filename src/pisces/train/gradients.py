"""One forward and backward pass of a group of clients, each on its own weights and samples."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from pisces.models.flat import Counters
from pisces.train.base import Loss, Precision
from pisces.train.layers import stackable
from pisces.types import Layout, Slice


class CannotBatchError(Exception):
    """Clients of this model must be trained one after the other; says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What came out of it, a row per client."""

    gradients: torch.Tensor  # of the parameters; zero for those that are not trained
    losses: torch.Tensor  # of each sample, before the step
    buffers: torch.Tensor  # after it


class Gradients(ABC):
    """Computes a pass; the rows of `weights` are flat models, `there` says which samples count."""

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout, precision: Precision) -> None:
        self._model = model.train()
        self._loss = loss
        self._layout = layout
        self._half = precision == "bf16"
        self._buffers = [s.name for s in layout.slices if s.role == "buffer"]
        self._trained = _trained(model, layout)
        self.frozen = _frozen(model, layout)  # which parameters are not trained; None: all are
        self._counters = Counters(model)

    def reset(self) -> None:
        """New tasks begin: whatever the model counts starts again."""
        self._counters.reset()

    @abstractmethod
    def __call__(
        self,
        weights: torch.Tensor,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        there: torch.Tensor,
    ) -> Pass:
        """The pass over one batch per client."""


class Stacked(Gradients):
    """All clients in one pass, vectorised by `torch.func`; batches may be filled up."""

    def __init__(
        self, model: nn.Module, loss: Loss, layout: Layout, precision: Precision = "float32"
    ) -> None:
        model, self._norms = stackable(model)
        super().__init__(model, loss, layout, precision)
        self._pass = vmap(grad(self._objective, has_aux=True))

    def __call__(
        self,
        weights: torch.Tensor,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        there: torch.Tensor,
    ) -> Pass:
        """The pass over one batch per client."""
        tensors = _views(self._layout, weights)
        trained = {name: tensors.pop(name) for name in self._trained}
        gradients, (losses, fresh) = self._pass(trained, tensors, inputs, targets, there)
        buffers = [fresh.get(name, tensors[name]).flatten(1) for name in self._buffers]
        return Pass(
            _joined(gradients, self._layout, weights),
            losses,
            torch.cat([weights[:, :0], *buffers], dim=1),
        )

    def _objective(
        self,
        trained: Mapping[str, torch.Tensor],
        fixed: Mapping[str, torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        there: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        """One client's mean loss; its losses and running statistics beside it."""
        for norm in self._norms.values():
            norm.there = there
        tensors = dict(trained) | dict(fixed)
        if self._half:  # statistics stay as they are: they are sums over many batches
            tensors |= {name: tensor.bfloat16() for name, tensor in trained.items()}
            inputs = inputs.bfloat16() if inputs.is_floating_point() else inputs
        outputs = functional_call(self._model, tensors, (inputs,))
        outputs = outputs.float() if self._half else outputs
        losses = self._loss(outputs, targets).reshape(len(there), -1).mean(dim=1)
        losses = torch.where(there, losses, 0.0)
        fresh = {f"{at}.{n}": t for at, norm in self._norms.items() for n, t in norm.fresh.items()}
        return losses.sum() / there.sum().clamp(min=1), (losses.detach(), fresh)


class Alone(Gradients):
    """One client at a time by ordinary autograd: for models that fill a GPU by themselves, or that
    cannot be vectorised. Takes no batches that are filled up.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, layout: Layout, precision: Precision = "float32"
    ) -> None:
        super().__init__(_images_last(copy.deepcopy(model)), loss, layout, precision)
        tensors = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        self._tensors = {s.name: tensors[s.name] for s in layout.slices}

    def __call__(
        self,
        weights: torch.Tensor,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        there: torch.Tensor,
    ) -> Pass:
        """The pass over one client's batch, all of which is there."""
        # Copied, not viewed: kernels want tensors that begin at round addresses.
        _copy(_parts(self._layout, weights[0]), self._tensors)
        with torch.autocast(weights.device.type, torch.bfloat16, enabled=self._half):
            outputs = self._model(inputs[0])
        losses = self._loss(outputs.to(weights.dtype), targets[0])
        trained = [self._tensors[name] for name in self._trained]
        found = torch.autograd.grad(losses.mean(), trained, allow_unused=True)
        gradients = {n: g for n, g in zip(self._trained, found, strict=True) if g is not None}
        if len(gradients) < len(found):  # weight decay must not move the others in this step
            raise CannotBatchError("the loss does not depend on the same parameters in each step")
        done = torch.zeros_like(weights)
        buffers = {name: self._tensors[name] for name in self._buffers}
        _copy(gradients | buffers, _parts(self._layout, done[0]))
        split = self._layout.num_parameters
        losses = losses.detach().reshape(inputs.shape[1], -1).mean(dim=1)
        return Pass(done[:, :split], losses[None], done[:, split:])


@torch.no_grad()
def _copy(source: Mapping[str, torch.Tensor], to: Mapping[str, torch.Tensor]) -> None:
    """Copy tensors by name; those that lie in memory alike all at once."""
    alike = [name for name in source if source[name].stride() == to[name].stride()]
    torch._foreach_copy_([to[name] for name in alike], [source[name] for name in alike])
    for name in [name for name in source if name not in alike]:
        to[name].copy_(source[name])


def _parts(layout: Layout, flat: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each tensor of one client's model, without copying."""
    return {s.name: flat[s.start : s.stop].view(s.shape) for s in layout.slices}


def _images_last(model: nn.Module) -> nn.Module:
    """Convolutions with channels last: on a GPU they are half as fast again."""
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    if on_gpu:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _trained(model: nn.Module, layout: Layout) -> list[str]:
    """The parameters that are trained, by the name they have in the layout."""
    wanted = {n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    return [s.name for s in layout.slices if s.role == "parameter" and s.name in wanted]


def _frozen(model: nn.Module, layout: Layout) -> torch.Tensor | None:
    trained = set(_trained(model, layout))
    parameters = [s for s in layout.slices if s.role == "parameter"]
    if len(trained) == len(parameters):
        return None
    frozen = [torch.full((s.stop - s.start,), s.name not in trained) for s in parameters]
    return torch.cat(frozen).to(next(model.parameters()).device)


def _views(layout: Layout, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each tensor of the model, a row per client, without copying."""
    return {s.name: weights[:, s.start : s.stop].view(-1, *s.shape) for s in layout.slices}


def _joined(
    gradients: Mapping[str, torch.Tensor], layout: Layout, weights: torch.Tensor
) -> torch.Tensor:
    """The gradients as flat rows."""
    return torch.cat([_gradient(gradients, s, weights) for s in layout.slices], dim=1)


def _gradient(
    gradients: Mapping[str, torch.Tensor], s: Slice, weights: torch.Tensor
) -> torch.Tensor:
    if s.role == "buffer":
        return weights[:, :0]
    if s.name not in gradients:
        return torch.zeros_like(weights[:, s.start : s.stop])
    return gradients[s.name].flatten(1).to(weights.dtype)
