"""Guided selection: rich data first, unless it would come too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from pisces.clients.view import View
from pisces.policy import Assignment, Selector
from pisces.select.top import Floats, Ids, assignments, check_range, data_quality, top
from pisces.types import State


def utilities(view: View, clients: Ids, staleness_penalty: float) -> Floats:
    """What each of `clients` promises: data quality, discounted by its usual staleness (Eq. 2)."""
    staleness = view.clients.staleness_estimate()[clients]
    utility: Floats = data_quality(view, clients) * (staleness + 1.0) ** -staleness_penalty
    return utility


@dataclass(eq=False)
class Guided(Selector):
    """The clients with the highest utility, and a share of those nobody has heard from yet.

    Jiang, Wang, Li, Li, "Pisces: Efficient Federated Learning via Guided Asynchronous Training",
    SoCC 2022, Eq. 2: utility = samples x RMS loss x (estimated staleness + 1)^-penalty. Without
    the penalty (0) it is the paper's variant "w/o stale.".

    Differs from the paper:

    * the paper does not say how to begin. As in the authors' code, of `slots` clients
      Binomial(slots, exploration) are drawn uniformly among those that never reported; the share
      shrinks by `exploration_decay` with each selection, down to `min_exploration`;
    * where one kind of client runs out, the other kind fills the slots;
    * a client that reported without a loss is given the median loss of the candidates.
    """

    staleness_penalty: float = 0.5  # beta
    exploration: float = 0.9
    exploration_decay: float = 0.98
    min_exploration: float = 0.3

    def __post_init__(self) -> None:
        check_range(self, 0, inf, "staleness_penalty")
        check_range(self, 0, 1, "exploration", "exploration_decay")
        check_range(self, 0, self.exploration, "min_exploration")
        self._share = self.exploration

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Draw the newcomers, take the best of the others."""
        slots = min(slots, len(view.selectable))
        if slots <= 0:
            return []
        is_new = view.clients.num_reports[view.selectable] == 0
        new, known = view.selectable[is_new], view.selectable[~is_new]
        num_new = min(max(rng.binomial(slots, self._share), slots - len(known)), len(new))
        self._share = max(self._share * self.exploration_decay, self.min_exploration)
        scores = utilities(view, known, self.staleness_penalty)
        best = known[top(scores, slots - num_new, rng)]
        return assignments(np.concatenate([rng.choice(new, num_new, replace=False), best]))

    def state(self) -> State:
        """The current exploration share."""
        return State({"share": self._share})

    def restore(self, state: State) -> None:
        """Take up the exploration share."""
        self._share = state.values["share"]
