"""One by one while few wait, as a mean when many do: HySync's rule, as far as we know it.

    up to `threshold` updates:    w <- (1 - a_i) w + a_i w_i one after the other, as in FedAsync
    more of them:                 (1 - a) w + a sum_i q_i w_i,    q_i = n_i / sum n
                                  a = alpha sum_i q_i f(staleness_i)

Shi et al., "HySync: Hybrid Federated Learning with Effective Synchronization", HPCC 2020. Mixed in
one after the other, the last of many updates would cover all others; their mean does justice to
each.

Where every arrival makes a version, as in `hysync`, several are combined only if they come at the
very same instant or in one tick: with `tick_s` 0 and latencies that differ it is FedAsync.

Differs from the paper: this is a reconstruction from the idea, that a crowd is merged in one
synchronous average before it is mixed in. The mixing by alpha and f is FedAsync's, a mean is as
stale as its parts are on average, and the threshold is a parameter without a usual value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.mean import moved
from pisces.aggregate.staleness import INVERSE_ROOT, Discount
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination, Traits
from pisces.types import Update, Weights


class Hybrid(Aggregator):
    """See the module's formulas; more than `threshold` updates are a crowd, `staleness` is f."""

    def __init__(
        self, threshold: int, alpha: float = 0.6, staleness: Discount = INVERSE_ROOT
    ) -> None:
        if threshold < 0:
            raise ConfigError(f"threshold: must be at least 0 updates, not {threshold}")
        self._threshold = threshold
        self._alpha = alpha
        self._staleness = staleness
        self._one_by_one = Mixing(alpha, staleness)

    @property
    def needs(self) -> Traits:
        """Up to the threshold it is FedAsync's rule, which several do not suit."""
        return self._one_by_one.needs if self._threshold > 1 else frozenset()

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """One by one, or their mean."""
        if len(updates) <= self._threshold:
            return self._one_by_one.combine(weights, updates, view, rng)
        shares = np.array([u.report.num_examples for u in updates], np.float64)
        shares = shares / shares.sum()
        rate = self._alpha * float(shares @ self._staleness.of(updates, view))
        return moved(weights, updates, rate * shares, "current")
