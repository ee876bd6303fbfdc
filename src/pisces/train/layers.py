"""Layers that compute the same for many clients at once, only faster or at all.

`stackable` swaps them into a copy of a model:

* convolution and max pooling use the operations of `images`, made for many small models;
* batch normalisation takes its statistics over the samples that are there, without those that only
  fill up a batch, and hands out its new running statistics instead of writing them in place.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn

from pisces.models.tuning import pool_first
from pisces.train.images import convolve, max_pool


def stackable(model: nn.Module) -> tuple[nn.Module, dict[str, MaskedBatchNorm]]:
    """A copy of `model` made of such layers, and its batch normalisations by name."""
    model = copy.deepcopy(pool_first(model))
    norms: dict[str, MaskedBatchNorm] = {}
    for name, layer in model.named_modules():
        if type(layer) is nn.Conv2d and _is_plain_convolution(layer):
            layer.__class__ = StackedConv2d
        elif type(layer) is nn.MaxPool2d and _is_plain_pooling(layer):
            layer.__class__ = StackedMaxPool2d
        elif type(layer) in _BATCH_NORMS:
            layer.__class__ = MaskedBatchNorm
            norms[name] = layer
    return model, norms


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _is_plain_convolution(layer: nn.Conv2d) -> bool:
    spread = layer.dilation != (1, 1) or layer.groups != 1
    return not spread and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _is_plain_pooling(layer: nn.MaxPool2d) -> bool:
    side_by_side = _pair(layer.kernel_size) == _pair(layer.stride)
    spread = _pair(layer.dilation) != (1, 1) or _pair(layer.padding) != (0, 0)
    plain = not (spread or layer.ceil_mode or layer.return_indices)
    # Where in its window each maximum stood is kept in a byte.
    return plain and side_by_side and math.prod(_pair(layer.kernel_size)) <= 256


class StackedConv2d(nn.Conv2d):
    """`nn.Conv2d`, told that it may be one of many clients'."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Convolve a batch of images."""
        return convolve(inputs, self.weight, self.bias, _pair(self.stride), _pair(self.padding))


class StackedMaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d` whose windows lie side by side."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The largest pixel of each window."""
        return max_pool(inputs, _pair(self.kernel_size))


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


class MaskedBatchNorm(nn.Module):
    """Batch normalisation over the samples `there` says are there, set before each pass."""

    there: torch.Tensor
    fresh: dict[str, torch.Tensor]  # the running statistics after the pass
    eps: float
    momentum: float | None
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    running_mean: torch.Tensor | None
    running_var: torch.Tensor | None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalise a batch and work out the running statistics."""
        if self.momentum is None:
            raise NotImplementedError("batch normalisation with a cumulative average")
        values = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
        dims = [d for d in range(inputs.ndim) if d != 1]
        shape = [1, -1, *[1] * (inputs.ndim - 2)]
        there = self.there.view(-1, *[1] * (inputs.ndim - 1))
        num = there.sum() * inputs[0, 0].numel()
        # Chosen, not multiplied by 0 or 1: 0 times a value beyond all bounds is not 0.
        mean = torch.where(there, values, 0.0).sum(dims) / num.clamp(min=1)
        apart = torch.where(there, values - mean.view(shape), 0.0)
        variance = apart.square().sum(dims) / num.clamp(min=1)
        self._remember(mean.detach(), (variance * num / (num - 1).clamp(min=1)).detach())
        outputs = apart * torch.rsqrt(variance + self.eps).view(shape)
        if self.weight is not None and self.bias is not None:
            outputs = outputs * self.weight.view(shape) + self.bias.view(shape)
        return outputs.to(inputs.dtype)

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.fresh = {}
        if self.running_mean is not None and self.running_var is not None:
            rate = self.momentum or 0.0
            self.fresh["running_mean"] = torch.lerp(self.running_mean, mean, rate)
            self.fresh["running_var"] = torch.lerp(self.running_var, variance, rate)
