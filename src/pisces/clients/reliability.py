"""Whose losses stand apart? DBSCAN over the losses of updates from similar versions.

Jiang et al., "Pisces: Efficient Federated Learning via Guided Asynchronous Training", section 4.2,
"Robustness against training loss outliers": a newcomer's loss is clustered with those trained from
versions {t-k, ..., t}; if it belongs to no cluster it is an outlier and costs its client a credit.

Differs from the paper:

* the clustering radius is scaled to the pool's own spread (median absolute deviation) because an
  absolute one flags everybody while losses are large and nobody once they are small;
* only the newcomer is judged and debited, once: debiting every pooled outlier at every arrival
  would cost a client all its credits for one bad loss;
* what becomes of an outlier's update is a parameter. The default keeps it, as one unusual loss is
  weak evidence and rare data is worth having; the credits are what tells bad luck from bad faith.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from pisces.policy import Judge
from pisces.types import State, Update

MAD_TO_SIGMA = 1.4826  # median absolute deviation of a normal distribution, in standard deviations
SMALLEST_EPS = 1e-3  # of the median loss: losses that agree this well are never apart


class LossOutliers(Judge):
    """Clusters recent losses and flags a newcomer that is in no cluster.

    `eps_sigmas` is the radius in robust standard deviations of the pool; `window` how many versions
    count as similar (k). As in the authors' code, half the `concurrency` makes a cluster, and
    nobody is judged before as many losses are there as clients run at once. Losses are kept long
    enough to judge an update twice as stale as `max_staleness` (default: the concurrency).
    """

    def __init__(
        self,
        concurrency: int,
        *,
        window: int = 5,
        eps_sigmas: float = 3.0,
        max_staleness: int | None = None,
        drop: bool = False,
    ) -> None:
        self._min_samples = max(2, concurrency // 2)  # one alone would be a cluster to DBSCAN
        self._min_records = max(2, concurrency)
        self._window = window
        # An update that stale still needs its peers, trained up to `window` versions before it.
        self._kept = window + 2 * (concurrency if max_staleness is None else max_staleness)
        self._eps_sigmas = eps_sigmas
        self._drop = drop
        self._records: deque[tuple[int, float]] = deque()  # (version trained from, loss)
        self._newest = 0

    @property
    def drops_outliers(self) -> bool:
        """Whether an outlier's update is kept out of the model."""
        return self._drop

    def is_outlier(self, update: Update) -> bool:
        """Judge one update among its peers, and remember it."""
        loss = update.report.loss
        if loss is None:
            return False
        peers = [
            x for v, x in self._records if update.version - self._window <= v <= update.version
        ]
        self._remember(update.version, loss)
        pool = np.array([*peers, loss])
        if len(pool) < self._min_records:
            return False
        from sklearn.cluster import DBSCAN  # slow to import, and only a judge needs it

        labels = DBSCAN(eps=self.eps(pool), min_samples=self._min_samples).fit_predict(
            pool[:, None]
        )
        return bool(labels[-1] == -1)

    def eps(self, losses: NDArray[np.float64]) -> float:
        """The clustering radius for these losses."""
        median = float(np.median(losses))
        sigma = MAD_TO_SIGMA * float(np.median(np.abs(losses - median)))
        return max(self._eps_sigmas * sigma, SMALLEST_EPS * abs(median), 1e-12)

    def _remember(self, version: int, loss: float) -> None:
        self._newest = max(self._newest, version)
        self._records.append((version, loss))
        while self._records and self._records[0][0] < self._newest - self._kept:
            self._records.popleft()

    def state(self) -> State:
        """The losses seen."""
        return State({"records": [list(r) for r in self._records], "newest": self._newest})

    def restore(self, state: State) -> None:
        """Take up the losses seen."""
        self._records = deque((int(v), float(x)) for v, x in state.values["records"])
        self._newest = int(state.values["newest"])
