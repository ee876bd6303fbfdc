"""FedAR's selection: clients with enough resources, the more trusted the more likely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.policy import Assignment, Selector
from pisces.select.draw import draw
from pisces.select.settings import check, check_order
from pisces.select.top import Floats, Ids
from pisces.types import State
from pisces.words import MaxLatency, MinExamples, MinTrust, NotNegative, Probability, Timeout

_TRUST, _REPORTS, _LOST, _MISSED = range(4)  # the rows of the books


@dataclass(eq=False, kw_only=True)
class Trusting(Selector):
    """Whoever has enough resources, the more likely the more often it has been on time.

    Imteaj and Amini, "FedAR: Activity and Resource-Aware Federated Learning Model for Distributed
    Mobile Robots", ICMLA 2020. Trust begins at `start` and grows by `reward` with each update
    within `timeout_s`. A task is missed when its update took longer or never came. The
    first one missed costs `penalty`; any later one `ban` where more than `most` of the client's
    tasks so far were missed, `blame` where more than `some`, else `penalty`. Trust stays between
    `min_trust` and `max_trust`. Free clients are drawn in proportion to it, but for those who need
    longer than `max_latency_s` or have fewer than `min_examples` samples.

    Differs from the paper:

    * clients are drawn, the paper takes the most trusted. Only who is picked can gain trust, so the
      first cohort would be picked for ever, and nobody ever hear from the others. For the same
      reason trust has bounds: nobody gets so far ahead that the others are as good as left out, and
      who has lost it all is drawn now and then, and may mend it (with a `min_trust` of 0, where
      nobody else is free);
    * resources are what the server knows of them: the latency of the last update stands for
      processor, memory and bandwidth, and one nobody has heard from passes. Samples are told when a
      client joins, so everybody must have enough;
    * a task that was called off counts as missed, whoever's doing it was;
    * a client is not banned for an update far from the others: that is what the judges
      (`pisces.judge`) are for;
    * a client left out for its latency never gets to mend it. Where that is everybody, nobody is
      picked, and the run stops.

    From memory of the paper, not checked: 50, +8, -2, -8, -16, a fifth and a half.
    """

    timeout_s: Timeout = 60.0
    max_latency_s: MaxLatency = None
    min_examples: MinExamples = 0
    start: Annotated[NotNegative, "trust at first"] = 50.0
    reward: Annotated[NotNegative, "for an update in time"] = 8.0
    penalty: Annotated[NotNegative, "for the first one missed, or a rare one"] = 2.0
    blame: Annotated[NotNegative, "where some were"] = 8.0
    ban: Annotated[NotNegative, "where most were"] = 16.0
    some: Annotated[Probability, "of a client's tasks"] = 0.2
    most: Annotated[Probability, "of a client's tasks"] = 0.5
    min_trust: MinTrust = 10.0
    max_trust: Annotated[NotNegative, "most of it"] = 100.0

    def __post_init__(self) -> None:
        check(self)
        check_order(self, "some", "most")
        check_order(self, "min_trust", "start", "max_trust")
        self._books = np.empty((4, 0))

    @property
    def alike(self) -> Mapping[str, float]:
        """What is late to it must be late to the pace."""
        return {"timeout_s": self.timeout_s}

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """See who was on time, then draw by trust."""
        self._books = self._looked(view)
        fit = np.flatnonzero(view.is_selectable & self._is_fit(view))
        drawn = fit[draw(self._books[_TRUST, fit], slots, rng)]
        return [Assignment(client) for client in drawn.tolist()]

    def terms(self, view: View, clients: Ids) -> Mapping[str, Floats]:
        """The trust by which they are drawn."""
        return {"score": self.trust(view)[clients]}

    def trust(self, view: View) -> Floats:
        """What every client's trust is now."""
        trust: Floats = self._looked(view)[_TRUST]
        return trust

    def _is_fit(self, view: View) -> NDArray[np.bool_]:
        facts = view.clients
        most_s = inf if self.max_latency_s is None else self.max_latency_s
        is_slow = facts.latency_s > most_s  # not where it is unknown
        has_data = facts.num_examples >= self.min_examples
        is_fit: NDArray[np.bool_] = ~is_slow & has_data
        return is_fit

    def _looked(self, view: View) -> Floats:
        """The books with what ended since the last look."""
        facts, books = view.clients, self._with_room(view.clients.num_clients)
        lost = np.maximum(facts.num_picks - facts.num_reports - facts.running, 0)
        num_reports = np.maximum(facts.num_reports - books[_REPORTS], 0)
        num_lost = np.maximum(lost - books[_LOST], 0)
        is_late = facts.latency_s > self.timeout_s
        num_missed = num_lost + np.where(is_late, num_reports, 0)
        books[_REPORTS], books[_LOST] = facts.num_reports, lost
        books[_MISSED] += num_missed
        costs = self._costs(books[_MISSED], facts.num_reports + lost)
        books[_TRUST] += np.where(is_late, 0.0, self.reward * num_reports) - costs * num_missed
        books[_TRUST] = books[_TRUST].clip(self.min_trust, self.max_trust)
        return books

    def _costs(self, num_missed: Floats, num_tasks: Ids) -> Floats:
        """What one more missed task costs each client."""
        share = num_missed / np.maximum(num_tasks, 1)
        dear = np.where(share > self.most, self.ban, self.blame)
        costs: Floats = np.where((num_missed > 1) & (share > self.some), dear, self.penalty)
        return costs

    def _with_room(self, num_clients: int) -> Floats:
        """A copy of the books that knows as many clients."""
        num_new = max(num_clients - self._books.shape[1], 0)
        return np.concatenate([self._books, np.repeat(self._blank, num_new, axis=1)], axis=1)

    @property
    def _blank(self) -> Floats:
        return np.array([[self.start], [0.0], [0.0], [0.0]])

    def state(self) -> State:
        """The books of whoever was ever given a task."""
        clients = np.flatnonzero((self._books != self._blank).any(axis=0))
        return State({"clients": clients.tolist(), "books": self._books[:, clients].tolist()})

    def restore(self, state: State) -> None:
        """Open the books again."""
        clients = state.values["clients"]
        self._books = np.empty((4, 0))
        self._books = self._with_room(max(clients, default=-1) + 1)
        self._books[:, clients] = state.values["books"]
