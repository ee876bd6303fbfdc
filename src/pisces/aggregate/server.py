"""A server optimiser around any aggregator: its step is taken for a gradient.

    pseudo = the inner aggregator's weights - w,    w + rule.step(pseudo)

with the trained parameters only; buffers come from the inner aggregator as they are. The rules:

* `Momentum`, FedAvgM (Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for
  Federated Visual Classification", 2019):  u <- beta u + pseudo,  step = rate u.
* `Adam` and `Yogi` (Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2):
  m <- beta1 m + (1 - beta1) pseudo,  step = rate m / (sqrt(v) + tau),  without bias correction,
  m from 0, v from tau^2 (the paper: at least that), and
      Adam:  v <- beta2 v + (1 - beta2) pseudo^2
      Yogi:  v <- v - (1 - beta2) pseudo^2 sign(v - pseudo^2)
* `AMSGrad`, FADAS (Wang et al., "FADAS: Towards Federated Adaptive Asynchronous Optimization", ICML
  2024): Adam's m and v, v from 0; the largest v so far takes the place of v. Where an update is
  staler than `patience` (the paper's tau_c), the rate is divided by the largest staleness.

Differs from the papers:

* The gradient is any aggregator's step, not only a plain mean's.
* FedAvgM: no Nesterov's variant.
* FADAS: beyond tau_c the paper takes min(rate, 1 / staleness), up to constants, which leaves small
  rates as they are; rate / staleness is the same at rate 1 and works at any. The defaults of
  `AMSGrad` and that v starts at 0 are remembered, not checked.

`Averaged` goes around an optimiser. Inside, it would average versions that never were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Protocol, TypeAlias

import numpy as np
import torch

from pisces.aggregate.around import Around
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights

INSIDE_OUT = (
    "a server optimiser cannot go around an aggregator that publishes other weights than it "
    "trains: put the average around the optimiser"
)
Memory: TypeAlias = Mapping[str, torch.Tensor]  # what a rule goes on from; empty at first


class Rule(Protocol):
    """How far to go along a step. Pure: what to remember is handed back."""

    def step(
        self, pseudo: torch.Tensor, staleness: int, memory: Memory
    ) -> tuple[torch.Tensor, Memory]:
        """The step and what to remember; `staleness` is the largest among the updates."""
        ...


@dataclass(frozen=True, slots=True)
class Momentum:
    """FedAvgM: the step goes on.

    See the module's formulas. Rate 1 and beta 0 change nothing.
    """

    rate: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        _check(self.rate, self.beta)

    def step(
        self, pseudo: torch.Tensor, staleness: int, memory: Memory
    ) -> tuple[torch.Tensor, Memory]:
        """As far as the steps so far go on."""
        before = memory.get("momentum")
        momentum = pseudo if before is None else pseudo + self.beta * before
        return self.rate * momentum, {"momentum": momentum}


@dataclass(frozen=True, slots=True)
class Adam:
    """FedAdam: the step as a gradient for Adam.

    See the module's formulas.
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check(self.rate, self.beta1, self.beta2, tau=self.tau)

    def step(
        self, pseudo: torch.Tensor, staleness: int, memory: Memory
    ) -> tuple[torch.Tensor, Memory]:
        """Every parameter in proportion to how large its steps are lately."""
        m = torch.lerp(_before(memory, "m", pseudo), pseudo, 1 - self.beta1)
        v = self._next(_before(memory, "v", pseudo, self.tau**2), pseudo.square())
        return self.rate * m / (v.sqrt() + self.tau), {"m": m, "v": v}

    def _next(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return torch.lerp(v, square, 1 - self.beta2)


class Yogi(Adam):
    """FedYogi: the step as a gradient for Yogi, which forgets large ones more slowly than Adam.

    See the module's formulas.
    """

    def _next(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return v - (1 - self.beta2) * square * (v - square).sign()


@dataclass(frozen=True, slots=True)
class AMSGrad:
    """FADAS: the step as a gradient for AMSGrad, which never forgets large ones.

    See the module's formulas. Without `patience` staleness does not count.
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-8
    patience: int | None = None

    def __post_init__(self) -> None:
        _check(self.rate, self.beta1, self.beta2, tau=self.tau)
        if self.patience is not None and self.patience < 0:
            raise ConfigError(f"patience is a staleness of 0 or more, not {self.patience}")

    def step(
        self, pseudo: torch.Tensor, staleness: int, memory: Memory
    ) -> tuple[torch.Tensor, Memory]:
        """Every parameter in proportion to how large its steps have been; shorter for the stale."""
        m = torch.lerp(_before(memory, "m", pseudo), pseudo, 1 - self.beta1)
        v = torch.lerp(_before(memory, "v", pseudo), pseudo.square(), 1 - self.beta2)
        v_max = torch.maximum(_before(memory, "v_max", pseudo), v)
        is_late = self.patience is not None and staleness > self.patience
        rate = self.rate / staleness if is_late else self.rate
        return rate * m / (v_max.sqrt() + self.tau), {"m": m, "v": v, "v_max": v_max}


class Optimized(Around):
    """An inner aggregator's step, made longer or shorter by a rule. Coefficients stay its own.

    What is not finite leaves no trace in the rule. Where a step is long, its square may overflow
    although the step does not: such a v would stop a parameter for ever.
    """

    def __init__(self, inner: Aggregator, rule: Rule) -> None:
        if inner.publishes_other:
            raise ConfigError(INSIDE_OUT)
        super().__init__(inner)
        self.rule = rule
        self._memory: Memory = {}

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The rule's step along the inner aggregator's."""
        made = self.inner.combine(weights, updates, view, rng)
        if made.published is not None:
            raise ConfigError(INSIDE_OUT)
        split = weights.layout.num_parameters
        now, inner = weights.flat[:split], made.weights.flat[:split]
        pseudo = inner - now
        staleness = max(u.staleness(view.version) for u in updates)
        step, memory = self.rule.step(pseudo, staleness, self._memory)
        new = made.weights.flat.clone()
        # In floats, now + (inner - now) may be next to inner: a step left as it was stays exact.
        new[:split] = torch.where(step == pseudo, inner, now + step)
        if _is_finite(memory):
            self._memory = memory
        return replace(made, weights=Weights(new, weights.layout))

    def state(self) -> State:
        """What the rule remembers, and the inner aggregator's state."""
        state = State()
        state.add("rule", State(arrays=dict(self._memory)))
        state.add("inner", self.inner.state())
        return state

    def restore(self, state: State) -> None:
        """Take both up."""
        self._memory = state.part("rule").arrays
        self.inner.restore(state.part("inner"))


def _before(memory: Memory, name: str, pseudo: torch.Tensor, start: float = 0.0) -> torch.Tensor:
    return memory[name] if name in memory else torch.full_like(pseudo, start)


def _is_finite(memory: Memory) -> bool:
    all_of_each = [tensor.isfinite().all() for tensor in memory.values()]
    return bool(torch.stack(all_of_each).all())  # asks the device once


def _check(rate: float, *betas: float, tau: float = 1.0) -> None:
    if not (rate > 0 and isfinite(rate)):
        raise ConfigError(f"a server optimiser needs a rate above 0, not {rate}")
    for beta in betas:
        if not 0 <= beta < 1:
            raise ConfigError(f"a server optimiser's beta is at least 0 and below 1, not {beta}")
    if not (tau > 0 and isfinite(tau)):
        raise ConfigError(f"a server optimiser needs a tau above 0, not {tau}")
