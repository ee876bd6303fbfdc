"""Whose losses are too high to be believed? Judged by the losses of those who are believed.

Guided selection prefers high losses, so clients with wrong labels are picked again and again until
most of the recent losses are theirs. To a clustering of these (`reliability.py`) it is then the
others that stand apart (docs/decisions/012 has numbers).

So a loss is held against the latest losses that were themselves believed:

    loss > median + sigmas * 1.4826 * (median distance from the median)

Only high losses are doubted: nobody is preferred for a low one. A doubted loss does not tell how
much there is to learn from a client, so in selection it counts as the median of those believed; the
update stays out of the model. As in the paper (Jiang et al., "Pisces", SoCC 2022, section 4.2), it
costs the client a credit; but every loss that is believed gives one back, so that a client whose
data are difficult now and then keeps its place. One whose data nobody else has may still be banned.

Should more than three quarters of the latest losses be doubted, then it is training itself that has
changed: what was believed is forgotten, and judging starts anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from pisces.clients.reliability import MAD_TO_SIGMA, SMALLEST_EPS, median_distance, middle
from pisces.policy import Judge, Verdict
from pisces.types import State, Update

MOST_DOUBTED = 0.75  # of the latest losses


class HighLosses(Judge):
    """Doubts a loss far above the last ones believed, twice as many as clients run at once.

    Nobody is judged before there are as many losses as clients run at once.
    """

    def __init__(self, concurrency: int, *, sigmas: float = 3.0) -> None:
        self._min_records = max(2, concurrency)
        self._num_kept = 2 * self._min_records
        self._sigmas = sigmas
        self._believed: deque[float] = deque()
        self._sorted: list[float] = []  # those believed
        self._latest: deque[bool] = deque(maxlen=self._num_kept)  # losses: was it doubted?

    def judge(self, update: Update) -> Verdict:
        """Judge one update by those believed, and remember it."""
        loss = update.report.loss
        if loss is None:
            return Verdict()
        if len(self._sorted) < self._min_records or loss <= self._limit():
            self._believe(loss)
            return Verdict(forgives=True)
        verdict = Verdict(is_outlier=True, keep=False, loss=middle(self._sorted))
        self._doubt()
        return verdict

    def _limit(self) -> float:
        centre = middle(self._sorted)
        sigma = MAD_TO_SIGMA * median_distance(self._sorted, centre)
        return centre + max(self._sigmas * sigma, SMALLEST_EPS * abs(centre))

    def _believe(self, loss: float) -> None:
        self._latest.append(False)
        self._believed.append(loss)
        insort(self._sorted, loss)
        if len(self._believed) > self._num_kept:
            del self._sorted[bisect_left(self._sorted, self._believed.popleft())]

    def _doubt(self) -> None:
        self._latest.append(True)
        if sum(self._latest) > MOST_DOUBTED * self._num_kept:
            self._forget()

    def _forget(self) -> None:
        self._believed.clear()
        self._sorted.clear()
        self._latest.clear()

    def state(self) -> State:
        """The losses believed, and which of the latest were not."""
        return State({"believed": list(self._believed), "latest": list(self._latest)})

    def restore(self, state: State) -> None:
        """Take both up."""
        self._forget()
        for loss in state.values["believed"]:
            self._believe(loss)
        self._latest.clear()
        self._latest.extend(state.values["latest"])
