"""A mean of the buffer, mixed into the current model: TEA-Fed's rule.

    (1 - a) w + a u
    u = sum_i n_i f_i w_i / sum_j n_j f_j,    a = alpha * mean of f_i,    f_i = f(staleness_i)

Zhou et al., "TEA-Fed: Time-Efficient Asynchronous Federated Learning for Edge Computing", CF 2021.
Where FedAsync (`fedasync.py`) lets the last update of a buffer count most, here their order does
not matter. With alpha 1 and a constant f it is FedAvg.

Differs from the paper:

* alpha 0.6 and the form of a are as we remember them, not checked against it;
* the mean takes whatever is combined together; the paper's is over a cache of a tenth of the
  clients, which is for the pace to say;
* the proximal term of its clients is a setting of their training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.aggregate.fedasync import checked_alpha
from pisces.aggregate.mean import moved
from pisces.aggregate.staleness import INVERSE_ROOT, Discount
from pisces.clients.view import View
from pisces.policy import Aggregator, Combination
from pisces.types import Update, Weights


class MixedMean(Aggregator):
    """See the module's formulas; `staleness` is f."""

    def __init__(self, alpha: float = 0.6, staleness: Discount = INVERSE_ROOT) -> None:
        self._alpha = checked_alpha(alpha)
        self._staleness = staleness

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean, mixed in."""
        discounts = self._staleness.of(updates, view)
        shares = discounts * np.array([u.report.num_examples for u in updates], np.float64)
        rate = self._alpha * discounts.mean()
        return moved(weights, updates, rate * (shares / shares.sum()), "current")
