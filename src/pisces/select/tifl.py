"""TiFL's selection: clients as fast as each other train together, the tier is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.policy import Assignment, Selector, Trait, Traits
from pisces.select.quantiles import parts
from pisces.select.settings import check
from pisces.select.top import Floats, Ids, choose
from pisces.types import State
from pisces.words import Count, NumTiers, Probability, RankedEvery, TierCredits


@dataclass(eq=False, kw_only=True)
class Tiers(Selector):
    """A tier by chance, those with more left to learn more likely, then uniformly inside it.

    Chai et al., "TiFL: A Tier-based Federated Learning System", HPDC 2020, the adaptive tier
    selection: with n tiers that have credits, the one in place i (from 0) is drawn with probability
    (n - i) / (n (n + 1) / 2). All are as likely until they are first ranked; each draw costs
    its tier a credit. With one tier and nobody to profile it is uniform selection, draw by draw.

    Differs from the paper:

    * tiers are ranked by the mean of their clients' last reported losses, highest first, instead of
      by accuracy, lowest first: the server has no test data per tier. A tier that told no loss
      comes first. They are ranked anew every `every` draws whether or not the last tier got better;
    * there is no profiling before the run. Newcomers are drawn uniformly, before any tier is,
      until `profile_share` of the clients have a latency or run; after `profile_tries` tasks that
      came to nothing a client is not profiled any more. Whoever has no latency after that counts
      to the slowest tier (the paper leaves such clients out for good);
    * tiers follow the last latencies at every pick instead of being made once, and equal latencies
      share a tier, however large it gets;
    * a tier with too few free clients is filled up from the next slower ones and, after the
      slowest, from the next faster ones; one without any is not drawn;
    * how many rounds there will be is not known, so `credits_per_tier` is one number for all tiers
      and unlimited by default. Once no tier with credits has a free client, those without are
      drawn, all as likely, since a run ends by its own limits.

    From memory of the paper, not checked: 5 tiers, ranked every 10 rounds.
    """

    num_tiers: NumTiers = 5
    every: RankedEvery = 10
    credits_per_tier: TierCredits = None
    profile_share: Annotated[Probability, "of the clients, drawn for their latency first"] = 1.0
    profile_tries: Annotated[Count, "tasks of a client that may come to nothing meanwhile"] = 3

    def __post_init__(self) -> None:
        check(self)
        self._weights = [1.0] * self.num_tiers
        self._num_drawn = [0] * self.num_tiers  # how often each was

    @property
    def needs(self) -> Traits:
        """Who is as fast as each other need not wait, but nobody waits where there is no round."""
        return frozenset({Trait.ROUNDS})

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Profile newcomers, then draw a tier for the slots that are left."""
        slots = min(slots, len(view.free))
        if slots <= 0:
            return []
        picked = self._newcomers(view, slots, rng)
        if len(picked) < slots:
            others = self._from_tiers(view, picked, slots - len(picked), rng)
            picked = np.concatenate([picked, others])
        return [Assignment(client) for client in picked.tolist()]

    def terms(self, view: View, clients: Ids) -> Mapping[str, Floats]:
        """The tier of each, from 0, the fastest, and how likely that is against the others."""
        tiers = self._tiers(view)[clients]
        return {"tier": tiers.astype(np.float64), "score": np.array(self._weights)[tiers]}

    def _tiers(self, view: View) -> Ids:
        return np.minimum(parts(view.clients.latency_s, self.num_tiers), self.num_tiers - 1)

    def _newcomers(self, view: View, slots: int, rng: np.random.Generator) -> Ids:
        """Whom to profile now."""
        facts, unknown = view.clients, np.isnan(view.clients.latency_s)
        num_profiled = int(np.count_nonzero(~unknown | facts.running))
        room = int(self.profile_share * facts.num_clients) - num_profiled
        is_new = view.is_selectable & unknown & (facts.num_picks < self.profile_tries)
        new = np.flatnonzero(is_new)
        num = min(slots, room, len(new))
        return new[choose(num, len(new), rng)] if num > 0 else new[:0]

    def _from_tiers(self, view: View, picked: Ids, slots: int, rng: np.random.Generator) -> Ids:
        """`slots` of the free clients that are not picked yet."""
        tiers = self._tiers(view)
        self._rank_if_due(view, tiers)
        free = view.is_selectable.copy()
        free[picked] = False
        clients = np.flatnonzero(free)
        theirs = tiers[clients]
        tier = self._draw(np.bincount(theirs, minlength=self.num_tiers), rng)
        self._num_drawn[tier] += 1
        members = (clients[theirs == t] for t in self._starting_with(tier))
        return _first_of(members, slots, rng)

    def _starting_with(self, tier: int) -> list[int]:
        """This tier, the slower ones, then the faster ones, the nearest first."""
        return [*range(tier, self.num_tiers), *range(tier - 1, -1, -1)]

    def _draw(self, num_free: Ids, rng: np.random.Generator) -> int:
        """A tier with free clients, by weight; where there is only one, nothing is drawn."""
        weights: Floats = np.where((num_free > 0) & self._has_credits(), self._weights, 0.0)
        if not weights.any():
            weights = (num_free > 0).astype(np.float64)
        if np.count_nonzero(weights) == 1:
            return int(weights.argmax())
        return int(rng.choice(self.num_tiers, p=weights / weights.sum()))

    def _has_credits(self) -> NDArray[np.bool_]:
        most = inf if self.credits_per_tier is None else self.credits_per_tier
        return np.array(self._num_drawn) < most

    def _rank_if_due(self, view: View, tiers: Ids) -> None:
        num_draws = sum(self._num_drawn)
        if num_draws == 0 or num_draws % self.every:
            return
        order = np.argsort(-self._losses(view, tiers), kind="stable")
        order = order[self._has_credits()[order]]
        weights = np.zeros(self.num_tiers)
        weights[order] = np.arange(len(order), 0, -1)
        self._weights = weights.tolist()

    def _losses(self, view: View, tiers: Ids) -> Floats:
        """The mean loss of each tier's trusted clients; infinite where none was told."""
        facts = view.clients
        told = np.flatnonzero(facts.trusted & ~np.isnan(facts.loss))
        total = np.bincount(tiers[told], facts.loss[told], minlength=self.num_tiers)
        num = np.bincount(tiers[told], minlength=self.num_tiers)
        means: Floats = np.where(num > 0, total / np.maximum(num, 1), inf)
        return means

    def state(self) -> State:
        """How likely each tier is and how often it was drawn."""
        return State({"weights": list(self._weights), "num_drawn": list(self._num_drawn)})

    def restore(self, state: State) -> None:
        """Take up both."""
        self._weights = list(state.values["weights"])
        self._num_drawn = list(state.values["num_drawn"])


def _first_of(groups: Iterable[Ids], num: int, rng: np.random.Generator) -> Ids:
    """`num` clients, drawn from the first group, and from the next only what that lacks."""
    taken = [np.empty(0, np.int64)]
    for group in groups:
        take = min(num, len(group))
        if take:
            taken.append(group[choose(take, len(group), rng)])
            num -= take
        if num == 0:  # few tiers need be looked through
            break
    return np.concatenate(taken)
