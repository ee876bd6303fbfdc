"""A weighted mean of updates, discounted by staleness: the rule of FedAvg, FedBuff and Pisces.

    w + server_rate * sum_i c_i (w_i - reference_i),    c_i = share_i * (1 + staleness_i)^-beta

* FedAvg (McMahan et al., AISTATS 2017): share = n_i / sum n, beta 0.
* FedBuff (Nguyen et al., AISTATS 2022, Algorithm 1): share = 1 / K, beta 0.5, reference `base`.
* Pisces (Jiang et al., SoCC 2022, section 6: "we execute Federated Averaging"): share =
  n_i / sum n, beta 0, reference `base` (Theorem 2). Its authors' code: beta 0.5, `current`. The
  rule of our own `pisces` is in `measured.py`.

`base` measures an update against the version its client started from; `current` mixes the client's
model into the present one, which damps stale updates. Buffers such as BatchNorm statistics always
mix against the current model, at server rate 1.

Differs from the papers:

* FedBuff's 1 / K is one over the number of updates combined: a tick or a starved buffer may make
  that more or fewer than K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.policy import Aggregator, Combination
from pisces.types import Update, Weights
from pisces.words import Reference, Share

Floats: TypeAlias = NDArray[np.float64]


class DiscountedMean(Aggregator):
    """See the module's formulas; `staleness_penalty` is beta."""

    def __init__(
        self,
        *,
        share: Share = "samples",
        staleness_penalty: float = 0.0,
        reference: Reference = "current",
        server_rate: float = 1.0,
    ) -> None:
        self._share = share
        self._staleness_penalty = staleness_penalty
        self._reference = reference
        self._server_rate = server_rate

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean, taken in one pass over the updates."""
        coefficients = self.coefficients(updates, view)
        return moved(weights, updates, coefficients, self._reference, self._server_rate)

    def coefficients(self, updates: Sequence[Update], view: View) -> Floats:
        """c_i of every update."""
        shares = np.ones(len(updates))
        if self._share == "samples":
            shares = np.array([u.report.num_examples for u in updates], np.float64)
        shares = shares / shares.sum()
        return np.asarray(shares * discounts(updates, view, self._staleness_penalty), np.float64)


def discounts(updates: Sequence[Update], view: View, penalty: float) -> Floats:
    """How much less each update counts for its staleness."""
    staleness = np.array([u.staleness(view.version) for u in updates], np.float64)
    return np.asarray((1.0 + staleness) ** -penalty, np.float64)


def moved(
    weights: Weights,
    updates: Sequence[Update],
    coefficients: Floats,
    reference: Reference,
    server_rate: float = 1.0,
) -> Combination:
    """The weights moved by every update, as far as its coefficient says."""
    new = weights.flat.clone()
    split = weights.layout.num_parameters
    for update, c in zip(updates, coefficients.tolist(), strict=True):
        origin = weights if reference == "current" else update.base
        step = update.weights.flat - origin.flat
        if split == len(new):
            new.add_(step, alpha=server_rate * c)
            continue
        new[:split].add_(step[:split], alpha=server_rate * c)
        new[split:].add_(update.weights.flat[split:] - weights.flat[split:], alpha=c)
    applied = (server_rate * coefficients).tolist()
    return Combination(Weights(new, weights.layout), tuple(applied))
