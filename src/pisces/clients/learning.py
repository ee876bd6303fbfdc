"""Who learns nothing from its own data? Then its labels are wrong, not rare.

A high loss says that a client's data are unlike what the model knows: they may be wrong, or just
what it still has to learn. Guided selection prefers both. What tells them apart is how much of the
loss is left after the client has trained on them. Rare data are learnt as quickly as any; wrong
labels cannot be, and what is left is the loss of one who guesses, however far training has come.

So an update is doubted if the loss left is neither well below that of guessing, nor near what is
left to others:

    loss_left > 3/4 * ignorance,          ignorance = median loss of those who trained version 0
    loss_left > 2.5 * usual,              usual = median loss_left of the last 2 C believed

The second keeps still until most clients do learn: when the model is new, hardly anybody does.
Guessing costs everybody alike. Where more than one in ten of the losses of version 0 (of fewer than
ten: more than one) is further than half their median from it, the first model knows something
already, or losses are of different scales: then nobody is judged.

A doubted update stays out of the model and costs its client a credit, as in the paper (Jiang et
al., "Pisces", SoCC 2022, section 4.2); one that is believed gives a credit back. A doubted loss
does not tell how much there is to learn from a client, so in selection it counts as the median of
those believed. Should most of the latest updates be doubted, it is training itself that has
changed: what was believed is forgotten, and judging starts anew.

It does not see labels that are wrong in a way which can be learnt (every 1 called a 7), nor wrong
ones where local training is long enough to learn them by heart. Clients that do not tell what is
left are not judged (ours do not before two epochs, as samples have to be seen again); nor is
anybody where what is usual is negative: such losses have no zero to measure from.
docs/decisions/012 has numbers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator

from pisces.clients.reliability import distance_of_nearest, middle
from pisces.policy import Judge, Verdict
from pisces.types import State, Update

ALIKE = 0.5  # of their median: so far from it losses of version 0 may be
NEAR_IGNORANCE = 0.75  # of what guessing costs
MUCH_MORE = 2.5  # than what is usual
MOST = 0.5  # of the latest updates


class NothingLearnt(Judge):
    """Doubts whoever is left with nearly the loss of guessing while others are not.

    Nobody is judged before as many updates are there as clients run at once.
    """

    def __init__(self, concurrency: int) -> None:
        self._min_records = max(2, concurrency)
        self._num_kept = 2 * self._min_records
        self._at_first = Recent(self._num_kept)  # losses of those who trained version 0
        self._forget()

    def _forget(self) -> None:
        self._losses, self._left = Recent(self._num_kept), Recent(self._num_kept)  # believed
        self._latest: deque[bool] = deque(maxlen=self._num_kept)  # updates: was it doubted?

    def judge(self, update: Update) -> Verdict:
        """Judge one update by those believed, and remember it."""
        loss, left = update.report.loss, update.report.loss_left
        if loss is None or left is None:
            return Verdict()
        if update.version == 0:
            self._at_first.add(loss)
        doubted = self._is_doubted(left)
        self._latest.append(doubted)
        if not doubted:
            self._losses.add(loss)
            self._left.add(left)
            return Verdict(forgives=True)
        verdict = Verdict(is_outlier=True, keep=False, loss=self._losses.median)
        if sum(self._latest) > MOST * self._num_kept:
            self._forget()
        return verdict

    def _is_doubted(self, left: float) -> bool:
        if len(self._left) < self._min_records or not len(self._at_first):
            return False
        ignorance, usual = self._at_first.median, self._left.median
        if ignorance <= 0 or usual < 0 or self._at_first.spread > ALIKE * ignorance:
            return False
        return left > NEAR_IGNORANCE * ignorance and left > MUCH_MORE * usual

    def state(self) -> State:
        """What it remembers of losses, and which of the latest updates were doubted."""
        return State(
            {
                "at_first": list(self._at_first),
                "losses": list(self._losses),
                "left": list(self._left),
                "latest": list(self._latest),
            }
        )

    def restore(self, state: State) -> None:
        """Take it up."""
        values = state.values
        self._at_first = Recent(self._num_kept, values["at_first"])
        self._losses = Recent(self._num_kept, values["losses"])
        self._left = Recent(self._num_kept, values["left"])
        self._latest = deque(values["latest"], maxlen=self._num_kept)


class Recent:
    """The last `most` numbers, and their median."""

    def __init__(self, most: int, numbers: Iterable[float] = ()) -> None:
        self._numbers = deque(numbers, maxlen=most)
        self._sorted = sorted(self._numbers)

    def add(self, number: float) -> None:
        """One more; the oldest makes room."""
        if len(self._numbers) == self._numbers.maxlen:
            del self._sorted[bisect_left(self._sorted, self._numbers[0])]
        self._numbers.append(number)
        insort(self._sorted, number)

    @property
    def median(self) -> float:
        """Of those there are; at least one."""
        return middle(self._sorted)

    @property
    def spread(self) -> float:
        """How far from the median nine of ten are at most; of fewer, all but one."""
        most = max(1, 9 * len(self) // 10)
        return distance_of_nearest(self._sorted, self.median, most)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[float]:
        return iter(self._numbers)
