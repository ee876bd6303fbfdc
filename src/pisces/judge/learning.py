"""Who learns nothing from its own data? Then its labels are wrong, not rare.

A high loss says that a client's data are unlike what the model knows: they may be wrong, or just
what it still has to learn. Guided selection prefers both. What tells them apart is how much of the
loss is left after the client has trained on them. Rare data are learnt as quickly as any; wrong
labels cannot be, and what is left is the loss of one who guesses, however far training has come.

So an update is doubted if the loss left is neither well below that of guessing, nor near what is
left to others:

    loss_left > 3/4 * ignorance,      ignorance = median loss of those who trained version 0
    loss_left > 2.5 * usual,          usual = lower quartile of loss_left, of those believed lately

Each is taken over the last 2 C clients, who have one say each, however often they report. The
second keeps still until some clients do learn: when the model is new, hardly anybody does. It is a
quartile because guided selection prefers clients with wrong labels, too: they may be half of those
heard of lately, when there is nothing to tell them apart by yet.
Guessing costs everybody alike. Where more than one in ten (rounded up) of the losses of version 0
is further than half their median from it, the first model knows something already, or losses are
of different scales: then nobody is judged.

A doubted update stays out of the model and costs its client a credit, as in the paper (Jiang et
al., "Pisces", SoCC 2022, section 4.2); one that is believed gives a credit back. A doubted loss
does not tell how much there is to learn from a client, so in selection it counts as the median of
those believed. Should most of the clients judged lately be doubted, it is training itself that has
changed: what was believed is forgotten, and judging starts anew.

It does not see labels that are wrong in a way which can be learnt (every 1 called a 7), nor wrong
ones where local training is long enough to learn them by heart. Clients that do not tell what is
left are not judged (ours do not before two epochs, as samples have to be seen again); nor is
anybody where what is usual is negative: such losses have no zero to measure from.

Ours, in place of the paper's clusters (`clusters.py`); docs/decisions/012 has numbers.
"""

from __future__ import annotations

import logging

from pisces.policy import Judge, Verdict
from pisces.recent import Recent
from pisces.types import State, Update

log = logging.getLogger("pisces")

ALIKE = 0.5  # of their median: so far from it losses of version 0 may be
NEAR_IGNORANCE = 0.75  # of what guessing costs
MUCH_MORE = 2.5  # than what is usual


class NothingLearnt(Judge):
    """Doubts whoever is left with nearly the loss of guessing while others are not.

    Nobody is judged before as many clients are believed as run at once.
    """

    def __init__(self, concurrency: int) -> None:
        self._min_clients = max(2, concurrency)
        self._most_clients = 2 * self._min_clients
        self._at_first = self._nobody()  # losses of those who trained version 0
        self._told = False
        self._forget()

    def _nobody(self) -> Recent:
        return Recent(self._most_clients)

    def _forget(self) -> None:
        self._losses, self._left = self._nobody(), self._nobody()  # of those believed
        self._doubts = self._nobody()  # of those judged: 1 if doubted, 0 if believed

    def judge(self, update: Update) -> Verdict:
        """Judge one update by those believed, and remember it."""
        client, loss, left = update.client, update.report.loss, update.report.loss_left
        if loss is None or left is None:
            return Verdict()
        if update.version == 0:
            self._at_first.put(client, loss)
        doubted = self._is_doubted(left)
        self._doubts.put(client, float(doubted))
        if not doubted:
            self._losses.put(client, loss)
            self._left.put(client, left)
            return Verdict(forgives=True)
        verdict = Verdict(is_outlier=True, keep=False, loss=self._losses.median)
        if self._doubts.median > 0.5:  # most of them are doubted
            self._forget()
        return verdict

    def _is_doubted(self, left: float) -> bool:
        if len(self._left) < self._min_clients or not len(self._at_first):
            return False
        ignorance, usual = self._at_first.median, self._left.low
        if ignorance <= 0 or usual < 0 or self._at_first.spread > ALIKE * ignorance:
            self._tell_once()
            return False
        return left > NEAR_IGNORANCE * ignorance and left > MUCH_MORE * usual

    def _tell_once(self) -> None:
        if not self._told:
            log.info("guard: nobody is judged, as version 0 does not cost everybody alike")
        self._told = True

    def state(self) -> State:
        """What clients told, and who of them was doubted."""
        return State(
            {
                "at_first": self._at_first.told(),
                "losses": self._losses.told(),
                "left": self._left.told(),
                "doubts": self._doubts.told(),
            }
        )

    def restore(self, state: State) -> None:
        """Take it up."""
        values = state.values
        self._at_first = Recent(self._most_clients, values["at_first"])
        self._losses = Recent(self._most_clients, values["losses"])
        self._left = Recent(self._most_clients, values["left"])
        self._doubts = Recent(self._most_clients, values["doubts"])
