"""Mixing: every client's model is mixed into the current one, the staler the less. FedAsync's rule.

    w <- (1 - a_i) w + a_i w_i,    a_i = alpha f(staleness_i)

Xie, Koyejo and Gupta, "Asynchronous Federated Optimization", OPT 2020, Algorithm 1; f is one of
section 5 (`staleness.py`). Every a_i comes from the same alpha: nothing is compounded.

Updates that are combined together are mixed one after the other, in order of arrival, then of
their tasks. Later ones cover earlier ones, so that in the end update i has the coefficient
a_i prod_{j > i} (1 - a_j), which is what is recorded. With alpha 1 and a constant f the last one
replaces the model. Buffers such as BatchNorm statistics mix in the same way.

Differs from the paper:

* updates combined together are all as stale as the version they are combined into says; the paper
  counts a version for each of them;
* the proximal term of its clients is a setting of their training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.aggregate.mean import Floats
from pisces.aggregate.staleness import INVERSE_ROOT, Discount
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination, Trait, Traits
from pisces.types import Update, Weights


class Mixing(Aggregator):
    """See the module's formula; `staleness` is f."""

    def __init__(self, alpha: float = 0.6, staleness: Discount = INVERSE_ROOT) -> None:
        self._alpha = checked_alpha(alpha)
        self._staleness = staleness

    @property
    def needs(self) -> Traits:
        """Of several the last would count most."""
        return frozenset({Trait.ONE_AT_A_TIME})

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The models mixed in, one after the other."""
        order = by_arrival(updates)
        rates = self._alpha * self._staleness.of(updates, view)
        new = weights.flat.clone()
        for place in order:
            new.lerp_(updates[place].weights.flat, float(rates[place]))
        return Combination(Weights(new, weights.layout), effective(rates, order))


def checked_alpha(alpha: float) -> float:
    """The same alpha, if a share of the way to another model can be made of it."""
    if not 0 < alpha <= 1:
        raise ConfigError(f"alpha: must be above 0 and at most 1, not {alpha}")
    return alpha


def by_arrival(updates: Sequence[Update]) -> list[int]:
    """The places of the updates, in the order they arrived in, then that of their tasks."""
    return sorted(
        range(len(updates)), key=lambda place: (updates[place].arrived_at, updates[place].task_id)
    )


def effective(rates: Floats, order: Sequence[int]) -> tuple[float, ...]:
    """What is left of each rate once those after it are mixed in."""
    coefficients, left = np.zeros(len(rates)), 1.0
    for place in reversed(order):
        coefficients[place] = rates[place] * left
        left *= 1.0 - rates[place]
    return tuple(coefficients.tolist())
