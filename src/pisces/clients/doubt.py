"""Whose losses are too high to be believed? Judged by the losses of those who are believed.

Guided selection prefers high losses, so clients with wrong labels are picked again and again until
most of the recent losses are theirs. To a clustering of these (`reliability.py`) it is then the
others that stand apart (docs/decisions/012 has numbers).

So a loss is held against the latest losses that were themselves believed:

    loss > median + sigmas * 1.4826 * (median distance from the median)

Only high losses are doubted: nobody is preferred for a low one. A doubted loss does not tell how
much there is to learn from a client, so in selection it counts as the median of those believed; its
update stays out of the model unless asked for. As in the paper (Jiang et al., "Pisces", SoCC 2022,
section 4.2), it costs the client a credit; but every loss that is believed gives one back, so that
clients with difficult data, now and then too high, are not banned in the long run.

Should more than three quarters of the latest losses be doubted, then it is training itself that has
changed: what was believed is forgotten, and judging starts anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from pisces.clients.reliability import MAD_TO_SIGMA, SMALLEST_EPS, median_distance, middle
from pisces.policy import Judge
from pisces.types import State, Update

MOST_DOUBTED = 0.75  # of the latest losses


class HighLosses(Judge):
    """Doubts a loss far above the last ones believed, twice as many as clients run at once.

    Nobody is judged before there are as many losses as clients run at once.
    """

    def __init__(self, concurrency: int, *, sigmas: float = 3.0, drop: bool = True) -> None:
        self._min_records = max(2, concurrency)
        self._num_kept = 2 * self._min_records
        self._sigmas = sigmas
        self._drop = drop
        self._believed: deque[float] = deque()
        self._sorted: list[float] = []  # those believed
        self._doubted: deque[bool] = deque(maxlen=self._num_kept)  # the latest, believed or not

    @property
    def drops_outliers(self) -> bool:
        """Whether an outlier's update is kept out of the model."""
        return self._drop

    @property
    def forgives(self) -> bool:
        """A believed loss gives a credit back."""
        return True

    @property
    def usual_loss(self) -> float | None:
        """The median of those believed."""
        return middle(self._sorted) if self._sorted else None

    def is_outlier(self, update: Update) -> bool:
        """Judge one update by those believed, and remember it."""
        loss = update.report.loss
        if loss is None:
            return False
        is_high = len(self._sorted) >= self._min_records and loss > self._limit()
        self._doubted.append(is_high)
        if not is_high:
            self._believe(loss)
        elif sum(self._doubted) > MOST_DOUBTED * self._num_kept:
            self._forget()
        return is_high

    def _limit(self) -> float:
        centre = middle(self._sorted)
        sigma = MAD_TO_SIGMA * median_distance(self._sorted, centre)
        return centre + max(self._sigmas * sigma, SMALLEST_EPS * abs(centre))

    def _believe(self, loss: float) -> None:
        self._believed.append(loss)
        insort(self._sorted, loss)
        if len(self._believed) > self._num_kept:
            del self._sorted[bisect_left(self._sorted, self._believed.popleft())]

    def _forget(self) -> None:
        self._believed.clear()
        self._sorted.clear()
        self._doubted.clear()

    def state(self) -> State:
        """The losses believed, and which of the latest were."""
        return State({"believed": list(self._believed), "doubted": list(self._doubted)})

    def restore(self, state: State) -> None:
        """Take both up."""
        self._forget()
        for loss in state.values["believed"]:
            self._believe(loss)
        self._doubted.extend(state.values["doubted"])
