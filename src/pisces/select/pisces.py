"""Guided selection: rich data first, unless it would come too late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pisces.clients.view import View
from pisces.policy import Assignment, Selector
from pisces.select.quality import LossTerm, data_quality, told_losses
from pisces.select.ranking import Ranking
from pisces.select.settings import check
from pisces.select.top import Floats, Ids, choose, top
from pisces.types import State
from pisces.words import Exploration, ExplorationDecay, MinExploration, SelectionPenalty


def utilities(
    view: View, clients: Ids, staleness_penalty: float, loss_term: LossTerm = "rms"
) -> Floats:
    """What each of `clients` promises: data quality, discounted by its usual staleness (Eq. 2)."""
    quality = data_quality(view, clients, loss_term)
    return _discounted(quality, view, clients, staleness_penalty)


def _discounted(quality: Floats, view: View, clients: Ids, staleness_penalty: float) -> Floats:
    return quality * _discount(view, clients, staleness_penalty)


def _discount(view: View, clients: Ids, staleness_penalty: float) -> Floats:
    discount: Floats = (view.clients.staleness[clients] + 1.0) ** -staleness_penalty
    return discount


@dataclass(eq=False)
class Guided(Selector):
    """The clients with the highest utility, and a share of those nobody has heard from yet.

    Jiang, Wang, Li, Li, "Pisces: Efficient Federated Learning via Guided Asynchronous Training",
    SoCC 2022, Eq. 2: utility = samples x RMS loss x (estimated staleness + 1)^-penalty. Without
    the penalty (0) it is the paper's variant "w/o stale."; with `loss_term = "root"` the root of
    the mean loss takes the place of the RMS loss, as in the authors' code.

    Differs from the paper:

    * the paper does not say how to begin. As in the authors' code, of `slots` clients
      Binomial(slots, exploration) are drawn uniformly among those that never reported; the share
      shrinks by `exploration_decay` with each selection, down to `min_exploration`;
    * where one kind of client runs out, the other kind fills the slots;
    * a client that reported without a loss is given the median loss of the candidates.
    """

    staleness_penalty: SelectionPenalty = 0.5
    exploration: Exploration = 0.9
    exploration_decay: ExplorationDecay = 0.98
    min_exploration: MinExploration = 0.3
    loss_term: Annotated[
        LossTerm, "rms: root mean square of the losses; root: root of their mean"
    ] = "rms"

    def __post_init__(self) -> None:
        check(self)
        self._share = self.exploration
        self._floor = min(self.min_exploration, self.exploration)
        self._ranking = Ranking(self._lasting_utilities)

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Draw the newcomers, take the best of the others."""
        slots = min(slots, len(view.free))
        if slots <= 0:
            return []
        num_known, num_unseen = len(view.free) - len(view.unseen), len(view.unseen)
        num_new = min(max(rng.binomial(slots, self._share), slots - num_known), num_unseen)
        self._share = max(self._share * self.exploration_decay, self._floor)
        best = self._best(view, slots - num_new, rng).tolist() if num_new < slots else []
        new = view.unseen.nth(choose(num_new, num_unseen, rng)).tolist() if num_new else []
        return [Assignment(client) for client in new + best]

    def terms(self, view: View, clients: Ids) -> Mapping[str, Floats]:
        """Samples x loss, the discount for its usual staleness, and their product (Eq. 2)."""
        told = told_losses(view, clients, self.loss_term) * view.clients.num_examples[clients]
        discount = _discount(view, clients, self.staleness_penalty)
        return {"utility": told, "discount": discount, "score": told * discount}

    def _best(self, view: View, num: int, rng: np.random.Generator) -> Ids:
        """The `num` free clients of the highest utility among those that reported."""
        self._ranking.follow(view)
        if not self._ranking.has_unknown():
            return self._ranking.top(num, rng)
        # A guessed loss depends on the losses of the others.
        known = np.flatnonzero(view.free.mask & ~view.unseen.mask)
        return known[top(self._utilities(view, known), num, rng)]

    def _lasting_utilities(self, view: View, clients: Ids) -> Floats:
        """Utilities that change with a client's own facts only: NaN where a loss is untold."""
        told = told_losses(view, clients, self.loss_term) * view.clients.num_examples[clients]
        return _discounted(told, view, clients, self.staleness_penalty)

    def _utilities(self, view: View, clients: Ids) -> Floats:
        return utilities(view, clients, self.staleness_penalty, self.loss_term)

    def state(self) -> State:
        """The current exploration share."""
        return State({"share": self._share})

    def restore(self, state: State) -> None:
        """Take up the exploration share."""
        self._share = state.values["share"]
