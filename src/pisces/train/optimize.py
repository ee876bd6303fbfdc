"""Optimiser steps on many clients' flat parameters at once, a row each.

The same rules as `torch.optim`, applied to whole rows: a few operations per step, whatever the
number of layers. Every row has its own learning rate; all of them are at the same step.
"""

from __future__ import annotations

from typing import Protocol

import torch

from pisces.train.base import ADAM_BETAS, ADAM_EPS, Recipe


class RowOptimizer(Protocol):
    """Moves rows of parameters along rows of gradients, in place."""

    def reset(self) -> None:
        """Forget everything: new tasks begin."""
        ...

    def move(
        self, rows: torch.Tensor, gradients: torch.Tensor, rate: torch.Tensor, step: torch.Tensor
    ) -> None:
        """Do the `step`-th step, counted from 1; a rate of 0 moves nothing.

        The rows are the first of those there is memory for.
        """
        ...


def optimizer(recipe: Recipe, like: torch.Tensor) -> RowOptimizer:
    """The recipe's optimiser, with memory for rows like these."""
    if recipe.optimizer == "sgd":
        return _SGD(recipe.momentum, recipe.weight_decay, like)
    return _Adam(recipe.weight_decay, like, decoupled=recipe.optimizer == "adamw")


def clipped(gradients: torch.Tensor, norm: float) -> torch.Tensor:
    """Gradients with no row longer than `norm`; the rule of `nn.utils.clip_grad_norm_`."""
    length: torch.Tensor = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    return gradients * (norm / (length + 1e-6)).clamp(max=1.0)


class _SGD(RowOptimizer):
    def __init__(self, momentum: float, weight_decay: float, like: torch.Tensor) -> None:
        self._momentum, self._weight_decay = momentum, weight_decay
        self._velocity = torch.zeros_like(like) if momentum else None

    def reset(self) -> None:
        if self._velocity is not None:
            self._velocity.zero_()

    def move(
        self, rows: torch.Tensor, gradients: torch.Tensor, rate: torch.Tensor, step: torch.Tensor
    ) -> None:
        if self._weight_decay:
            gradients = gradients.add(rows, alpha=self._weight_decay)
        if self._velocity is not None:
            velocity = self._velocity[: len(rows)]
            gradients = torch.add(gradients, velocity, alpha=self._momentum, out=velocity)
        rows.addcmul_(gradients, rate, value=-1.0)


class _Adam(RowOptimizer):
    def __init__(self, weight_decay: float, like: torch.Tensor, *, decoupled: bool) -> None:
        self._weight_decay, self._decoupled = weight_decay, decoupled
        self._mean, self._square = torch.zeros_like(like), torch.zeros_like(like)

    def reset(self) -> None:
        self._mean.zero_()
        self._square.zero_()

    def move(
        self, rows: torch.Tensor, gradients: torch.Tensor, rate: torch.Tensor, step: torch.Tensor
    ) -> None:
        if self._decoupled:
            rows.mul_(1.0 - rate * self._weight_decay)
        elif self._weight_decay:
            gradients = gradients.add(rows, alpha=self._weight_decay)
        mean, square = self._mean[: len(rows)], self._square[: len(rows)]
        mean.lerp_(gradients, 1 - ADAM_BETAS[0])
        square.mul_(ADAM_BETAS[1]).addcmul_(gradients, gradients, value=1 - ADAM_BETAS[1])
        corrections = [1 - torch.pow(beta, step.double()) for beta in ADAM_BETAS]
        size = rate * (corrections[1].sqrt() / corrections[0]).to(rows.dtype)
        eps = ADAM_EPS * corrections[1].sqrt().to(rows.dtype)
        rows.addcdiv_(mean * size, square.sqrt() + eps, value=-1.0)
