"""What selectors share: judging a client's data, taking the best, and drawing by weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Assignment

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_TINIEST_WEIGHT = 1e-300  # keeps the logarithm finite; a weight of zero is drawn last


def data_quality(view: View, clients: Ids) -> Floats:
    """Samples times RMS loss of each of `clients` (Lai et al., Oort, OSDI 2021, section 4.2).

    A loss nobody told is guessed to be the median of the known ones, or 1 when none is known.
    """
    loss = view.clients.loss_rms[clients]
    known = ~np.isnan(loss)
    guess = np.median(loss[known]) if known.any() else 1.0
    return np.where(known, loss, guess) * view.clients.num_examples[clients]


def top(scores: Floats, num: int, rng: np.random.Generator) -> Ids:
    """Where the `num` highest scores are (all, if there are fewer); ties at the end are drawn."""
    num = min(num, len(scores))
    if num <= 0:
        return np.empty(0, np.int64)
    worst = np.partition(scores, len(scores) - num)[len(scores) - num]
    better = np.flatnonzero(scores > worst)
    tied = rng.choice(np.flatnonzero(scores == worst), num - len(better), replace=False)
    return np.concatenate([better, tied])


def draw(weights: Floats, num: int, rng: np.random.Generator) -> Ids:
    """Where `num` draws without replacement fall, each in proportion to the weights left.

    Taking the largest of log weight plus Gumbel noise is the same draw, in one vector operation
    that neither needs weights that sum to one nor minds weights of zero.
    """
    noise = rng.gumbel(size=len(weights))
    return top(np.log(np.maximum(weights, _TINIEST_WEIGHT)) + noise, num, rng)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Clients to draw from, how likely each is to be drawn first, and how many are wanted."""

    clients: Ids
    probabilities: Floats
    take: int

    @classmethod
    def of(cls, clients: Ids, weights: Floats, take: int) -> Pool:
        """Weights made probabilities: all alike where they are all zero."""
        weights = weights if weights.any() else np.ones(len(weights))
        return cls(clients, weights / weights.sum(), take)

    def draw(self, num: int, rng: np.random.Generator) -> Ids:
        """At most `num` of the clients."""
        return self.clients[draw(self.probabilities, num, rng)]


def assignments(clients: Ids) -> Sequence[Assignment]:
    """Start `clients`, each with the run's default plan."""
    return [Assignment(client) for client in clients.tolist()]


def check_range(settings: object, low: float, high: float, *names: str) -> None:
    """Raise unless every setting called one of `names` lies between `low` and `high`."""
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigError(
                f"{type(settings).__name__}: {name} must lie between {low:g} and {high:g}, "
                f"but is {value}; give it a value in that range"
            )
