"""A mean whose step is as long as there is reason for: the rule of `pisces`.

    w + server_rate * sum_i c_i (w_i - reference_i)
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
from numpy.typing import NDArray

from pisces.aggregate.mean import DiscountedMean, Reference
from pisces.clients.view import View
from pisces.types import Update


class MeasuredMean(DiscountedMean):
    """See the module's formulas; `staleness_penalty` is beta."""

    def __init__(
        self,
        *,
        staleness_penalty: float = 0.5,
        reference: Reference = "base",
        server_rate: float = 1.0,
        full_step: float = 0.6,
    ) -> None:
        super().__init__(
            staleness_penalty=staleness_penalty, reference=reference, server_rate=server_rate
        )
        self._full_step = full_step

    def coefficients(self, updates: Sequence[Update], view: View) -> NDArray[np.float64]:
        """c_i of every update."""
        arrived = np.array([u.report.num_examples for u in updates], np.float64)
        running = view.clients.num_examples[view.running.clients].astype(np.float64)
        weights = arrived * self._discounts(updates, view)
        full = self._full_step * (arrived.sum() + running.sum())
        length = arrived.sum() / max(arrived.sum(), full)
        coefficients: NDArray[np.float64] = length * weights / weights.sum()
        return coefficients
