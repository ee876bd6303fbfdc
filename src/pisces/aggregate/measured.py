"""A mean whose step is as long as there is reason for: the rule of `pisces`.

    w + sum_i c_i (w_i - base_i)
    c_i = length * n_i d_i / sum_j n_j d_j,    d_i = (1 + staleness_i)^-beta
    length = min(1, arrived / (full_step * (arrived + running)))

with `arrived` and `running` the samples of the clients behind these updates and of those still at
work. Two differences from `mean.py`:

* A mean has one length, whether taken over one update or twenty, but one client's opinion is not
  worth that of twenty: a pace that often aggregates few takes large steps in directions of chance.
  Here a step is full only if the updates hold the share `full_step` of the samples at work; below
  that it is shorter in proportion.
* Staleness weighs updates against each other. It does not shorten the step: where everybody is
  stale, the discounts of `mean.py` only make a smaller server rate, the smaller the more versions
  the pace makes.

With `full_step` 0 and beta 0 it is the plain mean by samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.aggregate.mean import Floats, discounts, moved
from pisces.clients.view import View
from pisces.policy import Aggregator, Combination
from pisces.types import Update, Weights


class MeasuredMean(Aggregator):
    """See the module's formulas; `staleness_penalty` is beta."""

    def __init__(self, *, staleness_penalty: float = 0.5, full_step: float = 0.6) -> None:
        self._staleness_penalty = staleness_penalty
        self._full_step = full_step

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean, as long as it may be."""
        return moved(weights, updates, self.coefficients(updates, view), "base")

    def coefficients(self, updates: Sequence[Update], view: View) -> Floats:
        """c_i of every update."""
        arrived = np.array([u.report.num_examples for u in updates], np.float64)
        running = view.clients.num_examples[view.running.clients].astype(np.float64)
        shares = arrived * discounts(updates, view, self._staleness_penalty)
        full = self._full_step * (arrived.sum() + running.sum())
        length = arrived.sum() / max(arrived.sum(), full)
        return np.asarray(length * shares / shares.sum(), np.float64)
