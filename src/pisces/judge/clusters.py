"""Whose losses stand apart? DBSCAN over the losses of updates from similar versions.

Jiang et al., "Pisces: Efficient Federated Learning via Guided Asynchronous Training", SoCC 2022,
section 4.2, "Robustness against training loss outliers": a newcomer's loss is clustered with those
trained from versions {t-k, ..., t}; if it belongs to no cluster it is an outlier and costs its
client a credit.

Differs from the paper:

* the clustering radius is scaled to the pool's own spread (median absolute deviation) because an
  absolute one flags everybody while losses are large and nobody once they are small;
* only the newcomer is judged and debited, once: debiting every pooled outlier at every arrival
  would cost a client all its credits for one bad loss;
* what becomes of an outlier's update is a parameter. The default keeps it, as one unusual loss is
  weak evidence and rare data is worth having; the credits are what tells bad luck from bad faith.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from pisces.policy import Judge, Verdict
from pisces.recent import median_distance, middle
from pisces.types import State, Update

MAD_TO_SIGMA = 1.4826  # median absolute deviation of a normal distribution, in standard deviations
AUTHORS_EPS = 0.5  # the radius in the authors' code
SMALLEST_EPS = 1e-3  # of the median loss: losses that agree this well are never apart


class LossOutliers(Judge):
    """Clusters recent losses and flags a newcomer that is in no cluster.

    `eps_sigmas` is the radius in robust standard deviations of the pool; `window` how many versions
    count as similar (k). As in the authors' code, half the `concurrency` makes a cluster, and
    nobody is judged before as many losses are there as clients run at once. Losses are kept long
    enough to judge an update twice as stale as `max_staleness` (default: the concurrency).
    A fixed radius (`eps`) takes the place of the scaled one: the authors' code has `AUTHORS_EPS`.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        window: int = 5,
        eps_sigmas: float = 3.0,
        eps: float | None = None,
        max_staleness: int | None = None,
        drop: bool = False,
    ) -> None:
        self._min_samples = max(2, concurrency // 2)  # one alone would be a cluster to DBSCAN
        self._min_records = max(2, concurrency)
        self.window = window
        # An update that stale still needs its peers, trained up to `window` versions before it.
        self._kept = window + 2 * (concurrency if max_staleness is None else max_staleness)
        self._eps_sigmas, self._fixed_eps = eps_sigmas, eps
        self._drop = drop
        self._records: deque[tuple[int, float]] = deque()  # (version trained from, loss)
        # version -> losses of those trained from it or from one of the `window` before it, sorted
        self._pools: defaultdict[int, list[float]] = defaultdict(list)
        self._newest = 0

    def judge(self, update: Update) -> Verdict:
        """Judge one update among its peers, and remember it."""
        loss = update.report.loss
        if loss is None:
            return Verdict()
        self._remember(update.version, loss)
        pool = self._pools[update.version]
        if len(pool) < self._min_records:
            return Verdict()
        stands_apart = is_noise(pool, loss, self.eps(pool), self._min_samples)
        return Verdict(is_outlier=stands_apart, keep=not (stands_apart and self._drop))

    def clusters_of(
        self, records: Iterable[tuple[int, float]], version: int
    ) -> Sequence[tuple[float, float]]:
        """The ranges of losses in which an update trained from `version` would be in a cluster.

        Among these (version trained from, loss), whatever it has judged itself.
        """
        first = version - self.window
        pool = sorted(loss for trained_from, loss in records if first <= trained_from <= version)
        if len(pool) < self._min_records:
            return ()
        return dense(pool, self.eps(pool), self._min_samples)

    def eps(self, pool: Sequence[float]) -> float:
        """The clustering radius for these losses, which must be sorted."""
        if self._fixed_eps is not None:
            return self._fixed_eps
        median = middle(pool)
        sigma = MAD_TO_SIGMA * median_distance(pool, median)
        return max(self._eps_sigmas * sigma, SMALLEST_EPS * abs(median), 1e-12)

    def _remember(self, version: int, loss: float) -> None:
        self._newest = max(self._newest, version)
        self._add(version, loss)
        while self._records[0][0] < self._newest - self._kept:
            self._forget(*self._records.popleft())

    def _add(self, version: int, loss: float) -> None:
        self._records.append((version, loss))
        for similar in range(version, version + self.window + 1):
            insort(self._pools[similar], loss)

    def _forget(self, version: int, loss: float) -> None:
        for similar in range(version, version + self.window + 1):
            pool = self._pools[similar]
            del pool[bisect_left(pool, loss)]
            if not pool:
                del self._pools[similar]

    def state(self) -> State:
        """The losses seen."""
        return State({"records": [list(r) for r in self._records], "newest": self._newest})

    def restore(self, state: State) -> None:
        """Take up the losses seen."""
        self._records.clear()
        self._pools.clear()
        for version, loss in state.values["records"]:
            self._add(int(version), float(loss))
        self._newest = int(state.values["newest"])


# --- in one dimension what lies near something is a run of the sorted pool ------------------------


def is_noise(pool: Sequence[float], loss: float, eps: float, min_samples: int) -> bool:
    """Would DBSCAN put `loss`, one of the sorted pool, into no cluster?

    It is in one if it is a core point, with `min_samples` within `eps`, or if one of these is.
    """
    near = _near(pool, loss, eps)
    if len(near) >= min_samples:
        return False
    return not any(len(_near(pool, pool[i], eps)) >= min_samples for i in near)


def dense(pool: Sequence[float], eps: float, min_samples: int) -> list[tuple[float, float]]:
    """From where to where DBSCAN's clusters of a sorted pool reach: all within `eps` of a core."""
    ranges: list[tuple[float, float]] = []
    for loss in pool:
        if len(_near(pool, loss, eps)) < min_samples:
            continue
        if ranges and loss - eps <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], loss + eps)
        else:
            ranges.append((loss - eps, loss + eps))
    return ranges


def _near(pool: Sequence[float], loss: float, eps: float) -> range:
    """Where the losses not further than `eps` away stand."""
    first = bisect_left(pool, -eps, key=lambda other: other - loss)
    return range(first, bisect_right(pool, eps, lo=first, key=lambda other: other - loss))
