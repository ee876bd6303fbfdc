"""Least squares whose clients share the minimiser, trained in closed form, in a world of trouble.

Client i minimises |A_i (w - OPTIMUM)|^2 / 2 with H_i = A_i^T A_i of its own conditioning, so that
every client's minimum is the same point and nobody's data pull the model away from it. A step is

    w <- w - rate (H_i (w - OPTIMUM) + proximal (w - start))

The buffer of the model is nobody's to train and stays at 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from runs import START, Assembled, World, assemble

from pisces.evaluate import Schedule
from pisces.execute.availability import Always, Late
from pisces.execute.failures import Failures
from pisces.execute.virtual import VirtualExecutor
from pisces.policy import Policies
from pisces.train.base import Outcome, Trainer
from pisces.train.shuffle import num_steps
from pisces.types import Plan, Report, Task, Weights

Matrix = NDArray[np.float64]
OPTIMUM = np.array([1.0, -2.0, 3.0])  # START is at the origin


@dataclass(frozen=True, eq=False)
class LeastSquares(Trainer):
    """Clients of these sizes; their curvatures lie between 1/8 and 1, along axes of their own."""

    sizes: Sequence[int]
    curvatures: Sequence[Matrix] = field(init=False)  # H_i

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        made = [_curvature(rng, least=2.0 ** -(1 + i % 3)) for i in range(len(self.sizes))]
        object.__setattr__(self, "curvatures", made)

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        yield from map(self._trained, tasks)

    def _trained(self, task: Task) -> Outcome:
        size, plan = self.sizes[task.client], task.plan
        steps, per_epoch = num_steps(size, plan)
        curvature, flat = self.curvatures[task.client], task.weights.flat.numpy().astype(np.float64)
        start, losses = flat[:3].copy(), np.empty(steps)
        for k in range(steps):
            away = flat[:3] - OPTIMUM
            slope = curvature @ away
            losses[k] = away @ slope / 2
            flat[:3] -= plan.learning_rate * (slope + plan.proximal * (flat[:3] - start))
        first, last = losses[:per_epoch], float(losses[-per_epoch:].mean())
        told = Report(size, float(first.mean()), float((first @ first / len(first)) ** 0.5), steps)
        made = torch.from_numpy(flat.astype(np.float32))
        return Outcome(task.id, Weights(made, task.weights.layout), replace(told, loss_left=last))


def _curvature(rng: np.random.Generator, least: float) -> Matrix:
    """A matrix with eigenvalues from `least` to 1 and axes by chance."""
    axes, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return np.asarray(axes @ np.diag([least, least**0.5, 1.0]) @ axes.T)


@dataclass(frozen=True)
class PerStep:
    """Clients that take so long for each step, so that fewer steps take less time."""

    seconds: Sequence[float]
    sizes: Sequence[int]
    plan: Plan

    def profile(self, client: int) -> float:
        return self.seconds[client] * num_steps(self.sizes[client], self.plan)[0]

    def draw(self, client: int, turn: int, task: Task) -> float:
        return self.seconds[client] * num_steps(self.sizes[client], task.plan)[0]


PLAN = Plan(epochs=2, batch_size=20, learning_rate=0.1)
# Twelve clients, six at a time; the slowest takes twelve times as long as the fastest.
SIZES = (40, 80, 60, 20) * 3
SECONDS = tuple(float(1 + 7 * i % 12) for i in range(12))
# 15 % of the tasks come to nothing, and four in ten clients are not there from the start.
TROUBLED = World(
    concurrency=6,
    failures=Failures(crash=0.05, dropout=0.05, vanish=0.05, return_after_s=5.0, seed=3),
    availability=Late(Always(), over_s=30.0, share=0.4, seed=2),
    deadline_s=40.0,
    plan=PLAN,
    schedule=Schedule(every_versions=50),
    credits=10**6,
)


def convex(
    protocol: str | Policies,
    world: World = TROUBLED,
    *,
    sizes: Sequence[int] = SIZES,
    seconds: Sequence[float] = SECONDS,
    **settings: Any,
) -> Assembled:
    """A run over these clients that has not begun; `seconds` are those of a whole task of each."""
    per_step = [s / num_steps(n, world.plan)[0] for s, n in zip(seconds, sizes, strict=True)]
    executor = VirtualExecutor(
        LeastSquares(sizes),
        np.array(sizes),
        PerStep(per_step, sizes, world.plan),
        layout=START.layout,
        availability=world.availability,
        failures=world.failures,
    )
    return assemble(protocol, world, executor=executor, **settings)


def error(weights: Weights) -> float:
    """How far from the optimum, over how far it was at first."""
    away = np.linalg.norm(weights.parameters.numpy() - OPTIMUM)
    return float(away / np.linalg.norm(OPTIMUM))
