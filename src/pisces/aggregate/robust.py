"""A centre of updates that a few bad ones cannot move far, in place of their mean.

    w + server_rate * (sum_i c_i) * centre(w_i - reference_i),    c_i as in `mean.py`

so that staleness shortens steps as it does there. The centres:

* `Median`: of every coordinate, weighted by c_i; where half of the weight lies on either side, the
  middle between the two (Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal
  Statistical Rates", ICML 2018, Definition 1).
* `Trimmed`: of every coordinate, the mean by c_i without the lowest and the highest `share` of the
  weight (Definition 2 there). Whoever lies in it, if only partly, is left out: a part of something
  huge is huge. Where nobody is left, the median.
* `Krum` (Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient
  Descent", NeurIPS 2017): of n updates, f of them bad, the `chosen` ones with the least sum of
  squared distances to their n - f - 2 nearest, averaged by c_i; 1 is Krum, more is multi-Krum. With
  n < 2 f + 3, where it promises nothing, the median.

Differs from the papers:

* There everybody counts the same. Here c_i weighs (in Krum, only the chosen): who holds more than
  half of it is the median. Samples are what clients say: against liars, `share = "equal"`.
* f is a share of the updates at hand, rounded up: a pace may make that few or many.
* Multi-Krum's number is open in the paper; unless given it is n - f - 2, and never more.

Buffers mix against the current model at server rate 1, by the same coordinate-wise rule, or as far
as Krum has chosen: a mean of them would let a single one in. Distances are between the trained
parameters only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol, TypeAlias

import numpy as np
import torch

from pisces.aggregate.mean import DiscountedMean, Floats, moved
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination, Trait, Traits
from pisces.types import Update, Weights
from pisces.words import Reference, Share

MOST_VALUES = 2**22  # side by side: 16 MiB, and some ten times that while they are sorted
NEARLY = 1e-5  # of all the weight: sums of shares are not exact
# of columns: the rows' values and their shares of the weight -> one value each
Centre: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What is to be combined: updates, what they count, and against what they are measured."""

    weights: Weights
    updates: Sequence[Update]
    coefficients: Floats
    reference: Reference
    server_rate: float

    def towards(self, centre: Centre) -> Combination:
        """The weights moved to the centre of every column, as far as all coefficients say."""
        new, split = self.weights.flat.clone(), self.weights.layout.num_parameters
        length = float(self.coefficients.sum())
        shares = torch.as_tensor(self.coefficients / length, dtype=new.dtype, device=new.device)
        for part, rows in self._columns(0, split, self.reference):
            new[part].add_(centre(rows, shares), alpha=self.server_rate * length)
        for part, rows in self._columns(split, len(new), "current"):
            new[part].add_(centre(rows, shares), alpha=length)
        applied = (self.server_rate * self.coefficients).tolist()
        return Combination(Weights(new, self.weights.layout), tuple(applied))

    def towards_mean_of(self, chosen: Sequence[int]) -> Combination:
        """The weights moved by these updates only, as far as all coefficients say."""
        theirs = self.coefficients[chosen]
        theirs = theirs * (self.coefficients.sum() / theirs.sum())
        updates = [self.updates[i] for i in chosen]
        made = moved(self.weights, updates, theirs, self.reference, self.server_rate)
        applied = np.zeros(len(self.updates))
        applied[chosen] = made.coefficients
        return Combination(made.weights, tuple(applied.tolist()))

    def distances(self) -> Floats:
        """Squared, between every two; infinite to oneself and where they overflow."""
        total = torch.zeros((len(self.updates),) * 2, device=self.weights.flat.device)
        for _, rows in self._columns(0, self.weights.layout.num_parameters, self.reference):
            # Not by products of the rows: what they have in common would drown the differences.
            apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
            total += apart.square()
        distances = total.cpu().numpy().astype(np.float64)
        distances[np.isnan(distances)] = np.inf
        np.fill_diagonal(distances, np.inf)
        return distances

    def _columns(
        self, start: int, stop: int, reference: Reference
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """All steps side by side, a bounded number of columns at a time."""
        width = max(1, MOST_VALUES // len(self.updates))
        for left in range(start, stop, width):
            part = slice(left, min(left + width, stop))
            ends = torch.stack([u.weights.flat[part] for u in self.updates])
            if reference == "current":
                yield part, ends.sub_(self.weights.flat[part])
            else:
                yield part, ends.sub_(torch.stack([u.base.flat[part] for u in self.updates]))


class Rule(Protocol):
    """Which centre?"""

    def moved(self, steps: Steps) -> Combination:
        """The weights moved towards it."""
        ...


@dataclass(frozen=True, slots=True)
class Median:
    """The weighted median of every coordinate."""

    def moved(self, steps: Steps) -> Combination:
        """Coordinate by coordinate."""
        return steps.towards(_median)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The weighted mean of every coordinate without `share` of the weight at each end."""

    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ConfigError(f"trim at least 0 and less than half at each end, not {self.share}")

    def moved(self, steps: Steps) -> Combination:
        """Coordinate by coordinate."""
        return steps.towards(self._mean)

    def _mean(self, rows: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        values, mass, up_to = _sorted(rows, shares)
        kept = (up_to - mass >= self.share - NEARLY) & (up_to <= 1 - self.share + NEARLY)
        mass = mass.where(kept, 0)
        total = mass.sum(0)
        mean = (mass * values.where(kept, 0)).sum(0) / total
        return mean.where(total > 0, _middle(values, up_to))


@dataclass(frozen=True, slots=True)
class Krum:
    """Those nearest to the others; `bad_share` of the updates are taken to be bad.

    `chosen` is how many: 1 for Krum, more for multi-Krum; none: all that may be.
    """

    bad_share: float = 0.2
    chosen: int | None = 1

    def __post_init__(self) -> None:
        if not 0 <= self.bad_share < 0.5:
            raise ConfigError(f"Krum takes less than half for bad, not {self.bad_share}")
        if self.chosen is not None and self.chosen < 1:
            raise ConfigError(f"Krum chooses at least 1 update, not {self.chosen}")

    def moved(self, steps: Steps) -> Combination:
        """By the chosen; the others count nothing."""
        num = len(steps.updates)
        num_bad = ceil(self.bad_share * num - 1e-9)  # 0.07 x 100 is 7.000...1
        if num < 2 * num_bad + 3:
            return Median().moved(steps)
        num_near = num - num_bad - 2
        scores = np.sort(steps.distances(), axis=1)[:, :num_near].sum(axis=1)
        ids = [u.task_id for u in steps.updates]
        best = np.lexsort((ids, scores))  # of equals, whoever was asked first
        return steps.towards_mean_of(best[: min(num_near, self.chosen or num_near)].tolist())


class RobustMean(Aggregator):
    """A rule's centre, in steps as long as those of `DiscountedMean` with the same settings."""

    def __init__(
        self,
        rule: Rule,
        *,
        share: Share = "samples",
        staleness_penalty: float = 0.0,
        reference: Reference = "current",
        server_rate: float = 1.0,
    ) -> None:
        self.rule = rule
        self._mean = DiscountedMean(share=share, staleness_penalty=staleness_penalty)
        self._reference = reference
        self._server_rate = server_rate

    @property
    def needs(self) -> Traits:
        """The centre of one update is that update."""
        return frozenset({Trait.SEVERAL})

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The current weights, moved towards the centre."""
        counts = self._mean.coefficients(updates, view)
        steps = Steps(weights, updates, counts, self._reference, self._server_rate)
        return self.rule.moved(steps)


def _median(rows: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    values, _, up_to = _sorted(rows, shares)
    return _middle(values, up_to)


def _sorted(
    rows: torch.Tensor, shares: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every column in order, the weight of each value, and of all up to it."""
    light_first = shares.argsort()  # among equal values, whichever way updates arrive
    values, order = rows[light_first].sort(dim=0, stable=True)
    mass = shares[light_first][order]
    return values, mass, mass.cumsum(0)


def _middle(values: torch.Tensor, up_to: torch.Tensor) -> torch.Tensor:
    """Where half of the weight is reached; midway to the next where it is just half."""
    low = (up_to < 0.5 - NEARLY).sum(0, keepdim=True)
    high = (up_to <= 0.5 + NEARLY).sum(0, keepdim=True)
    return (0.5 * values.gather(0, low) + 0.5 * values.gather(0, high)).squeeze(0)
