"""Drawing clients by weight, a few out of very many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pisces.select.top import Floats, Ids, top

MANY = 10_000  # so many are not given a random number each
_TINIEST_WEIGHT = 1e-300  # keeps the logarithm finite; a weight of zero is drawn last


def draw(weights: Floats, num: int, rng: np.random.Generator) -> Ids:
    """Where `num` draws without replacement fall, each in proportion to the weights left.

    With replacement, leaving out who was drawn before, it is the same draw: quick where few are
    drawn out of many. What that leaves to be drawn is drawn out of the others by noise.
    """
    if len(weights) < MANY:
        return _by_noise(weights, num, rng)
    drawn = _few_of_many(weights, num, rng)
    if len(drawn) == num:
        return drawn
    others = np.delete(np.arange(len(weights)), drawn)
    return np.concatenate([drawn, others[_by_noise(weights[others], num - len(drawn), rng)]])


def _few_of_many(weights: Floats, num: int, rng: np.random.Generator) -> Ids:
    """The first `num` different ones of twice as many draws with replacement, perhaps fewer."""
    ends = np.cumsum(weights)
    drawn = np.searchsorted(ends, ends[-1] * rng.random(2 * num), side="right").tolist()
    return np.array([place for place in dict.fromkeys(drawn) if place < len(ends)][:num], np.int64)


def _by_noise(weights: Floats, num: int, rng: np.random.Generator) -> Ids:
    """Taking the largest of log weight plus Gumbel noise is such a draw, in one vector operation
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
