"""What selectors share: judging a client's data, taking the best, and drawing by weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Assignment

Bools = NDArray[np.bool_]
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

MANY = 10_000  # so many are not given a random number each
SAMPLE = 1000
_TINIEST_WEIGHT = 1e-300  # keeps the logarithm finite; a weight of zero is drawn last


def data_quality(view: View, clients: Ids) -> Floats:
    """Samples times RMS loss of each of `clients` (Lai et al., Oort, OSDI 2021, section 4.2).

    A loss nobody told is guessed to be the median of the known ones, or 1 when none is known.
    """
    quality: Floats = _losses(view, clients) * view.clients.num_examples[clients]
    return quality


def _losses(view: View, clients: Ids) -> Floats:
    loss = view.clients.loss_rms[clients]
    untold = np.isnan(loss)
    if untold.any():
        loss[untold] = 1.0 if untold.all() else np.median(loss[~untold])
    return loss


def top(scores: Floats, num: int, rng: np.random.Generator) -> Ids:
    """Where the `num` highest scores are (all, if there are fewer); ties at the end are drawn."""
    num = min(num, len(scores))
    if num <= 0:
        return np.empty(0, np.int64)
    worst = nth_largest(scores, num)
    better, tied = (scores > worst).nonzero()[0], (scores == worst).nonzero()[0]
    if len(tied) == 1:  # nothing to draw
        return np.concatenate([better, tied])
    return np.concatenate([better, tied[choose(num - len(better), len(tied), rng)]])


def choose(num: int, out_of: int, rng: np.random.Generator) -> Ids:
    """So many different places below `out_of`, each as likely as any other."""
    if num == 1:  # the same draw at a quarter of the price
        return np.array([rng.integers(out_of)])
    return rng.choice(out_of, num, replace=False)


def nth_largest(values: Floats, num: int) -> float:
    """The value at place `num`, counted from 1, when the largest comes first."""
    return float(values.max()) if num == 1 else nth_smallest(values, len(values) - num)


def nth_smallest(values: Floats, place: int) -> float:
    """The value at `place`, counted from 0, when the smallest comes first.

    Of many values a sample says between which two it must lie, and only those there are sorted out.
    """
    step = len(values) // SAMPLE
    if step > 1:
        sample, guess = np.sort(values[::step]), place // step
        low = sample[max(guess - SAMPLE // 20, 0)]
        high = sample[min(guess + SAMPLE // 20, len(sample) - 1)]
        between = values[(values >= low) & (values <= high)]
        rest = place - int(np.count_nonzero(values < low))
        if 0 <= rest < len(between):
            return float(low if low == high else np.partition(between, rest)[rest])
    return float(np.partition(values, place)[place])


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


def assignments(clients: Ids) -> list[Assignment]:
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
