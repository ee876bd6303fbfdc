"""Oort's selection: clients with much to learn from that are also fast enough, by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, log
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pisces.clients.view import View
from pisces.policy import Assignment, Selector, Trait, Traits
from pisces.select.draw import Pool
from pisces.select.quality import data_quality
from pisces.select.settings import check
from pisces.select.top import Floats, Ids, nth_smallest, top
from pisces.types import State
from pisces.words import (
    Count,
    Exploration,
    MinExploration,
    NotNegative,
    Probability,
    StragglerPenalty,
)

# Both as in the reference: the poorest client scores above zero, equal ones do not divide by it.
_BELOW_MIN = 0.999
_MIN_SPREAD = 1e-4
Percentile = Annotated[float, Field(ge=0, le=100)]


@dataclass(frozen=True, slots=True)
class Memory:
    """What Oort knows from the rounds before."""

    version: int  # of the last round
    exploration: float
    percentile: float
    utilities: list[float] = field(default_factory=list)  # of the exploited, round by round
    exploited: list[list[int]] = field(default_factory=list)  # [client, version], not back yet

    def waiting_for(self, clients: Ids) -> Memory:
        """The same after starting `clients`; what they were started for before came to nothing."""
        again = set(clients.tolist())
        others = [pair for pair in self.exploited if pair[0] not in again]
        started = [[client, self.version] for client in clients.tolist()]
        return replace(self, exploited=others + started)


@dataclass(frozen=True, slots=True, eq=False)
class Rating:
    """What the scores of clients are made of."""

    reward: Floats  # brought to [0, 1]
    bonus: Floats  # for those not seen for long
    slowdown: Floats  # a factor: 1, less for those slower than preferred

    @property
    def score(self) -> Floats:
        """All of it together."""
        return (self.reward + self.bonus) * self.slowdown


TERMS = ("reward", "bonus", "slowdown", "score")  # of a rating


@dataclass(frozen=True, slots=True, eq=False)
class Odds:
    """All that is decided before the dice are rolled."""

    memory: Memory
    preferred_duration_s: float
    exploit: Pool
    explore: Pool


@dataclass(eq=False, kw_only=True)
class Oort(Selector):
    """Clients drawn in proportion to utility, the slow ones penalised, some of them new.

    Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant
    Selection", OSDI 2021, Eq. 1 and Algorithm 1; details as in the selector its authors ship with
    FedScale. Oort's round r starts from version r - 1. Its pacer, which moves the preferred
    duration and has nothing to do with `pisces.policy.Pacer`, is part of the selector. Where slots
    come one at a time, choose `exploration_draw="binomial"`: a share of one slot rounds to none.

    Differs from the paper:

    * candidates reach down to 5 % of the k-th score instead of 95 % (so does the authors' code);
    * once nobody is left to explore, the authors' code repeats its last explored clients for ever,
      and may pick too few or too many; here clients that reported fill the slots, or newcomers
      where those are missing, and in the end anybody free who is not blacklisted;
    * share and preferred duration move once per version, however often the selector is asked, and
      an exploited client counts for the pacer when its update comes, be it versions later;
    * a client that reported without a loss is given the median loss of the candidates.
    """

    exploration: Exploration = 0.9
    exploration_decay: Annotated[Probability, "its factor per round, the first included"] = 0.98
    min_exploration: MinExploration = 0.3
    exploration_draw: Annotated[
        Literal["share", "binomial"], "share | binomial, for slots that come one at a time"
    ] = "share"
    sample_window: Annotated[
        float,
        Field(ge=1, description="explore among so many times as many as wanted, largest first"),
    ] = 5.0
    clip_quantile: Annotated[Probability, "of the rewards; a higher one counts as this"] = 0.9
    confidence: Annotated[NotNegative, "of the bonus for those not seen for long"] = 0.1
    cut_off: Annotated[Probability, "of the first score not taken"] = 0.05
    straggler_penalty: StragglerPenalty = 2.0
    duration_percentile: Annotated[Percentile, "where the preferred duration T starts"] = 30.0
    unseen_duration_s: Annotated[NotNegative, "of a client not seen yet"] = 1.0
    pacer_interval: Annotated[Count, "rounds between two looks at T"] = 20
    pacer_step: Annotated[Percentile, "percentile points by which T moves"] = 5.0
    flat_change: Annotated[NotNegative, "of the exploited utility; at most this: raise T"] = 0.1
    sharp_change: Annotated[NotNegative, "of the exploited utility; at least this: lower T"] = 5.0
    max_picks: Annotated[Count | None, "blacklisted when picked more often; none: never"] = None
    max_blacklisted: Annotated[Probability, "of all clients"] = 0.3

    def __post_init__(self) -> None:
        check(self)
        self._floor = min(self.min_exploration, self.exploration)
        self._memory = Memory(-1, self.exploration, self.duration_percentile)

    @property
    def needs(self) -> Traits:
        """A share of one seat is none: it would explore no more."""
        return frozenset({Trait.ROUNDS} if self.exploration_draw == "share" else ())

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Draw from both pools, then fill what is left with whoever is free."""
        slots = min(slots, int(np.count_nonzero(self._free(view))))
        if slots <= 0:
            return []
        odds = self.odds(view, slots, rng)
        exploited = odds.exploit.draw(slots - odds.explore.take, rng)
        explored = odds.explore.draw(slots - len(exploited), rng)
        self._memory = odds.memory.waiting_for(exploited)
        picked = np.concatenate([explored, exploited])
        if len(picked) < slots:
            picked = np.concatenate([picked, self._others(view, picked, slots, rng)])
        return [Assignment(client) for client in picked.tolist()]

    def _others(self, view: View, picked: Ids, slots: int, rng: np.random.Generator) -> Ids:
        """Anybody else who is free, for the slots that are left."""
        free = self._free(view).copy()
        free[picked] = False
        return rng.choice(np.flatnonzero(free), slots - len(picked), replace=False)

    def odds(self, view: View, slots: int, rng: np.random.Generator) -> Odds:
        """Whom to draw from and how likely; `rng` serves ties and the binomial draw only."""
        memory = self._memory if self._memory.version == view.version else self._next_round(view)
        free, facts = self._free(view), view.clients
        new = np.flatnonzero(free & (facts.num_reports == 0))  # nobody has heard from them yet
        known = np.flatnonzero(free & (facts.num_reports > 0))
        durations = self._durations(view)
        preferred_s = _percentile(durations, memory.percentile)
        num_new = self._num_new(slots, memory.exploration, rng)
        sizes = facts.num_examples[new].astype(np.float64)
        rating = self._rating(view, known, sizes, durations[known], preferred_s)
        exploit = self._exploit(known, rating.score, slots - num_new)
        explore = self._explore(new, sizes, num_new, rng)
        return Odds(memory, preferred_s, exploit, explore)

    def terms(self, view: View, clients: Ids) -> Mapping[str, Floats]:
        """Reward in [0, 1], bonus for long absence, factor for being slow; NaN for newcomers."""
        free, facts = self._free(view), view.clients
        known = np.flatnonzero(free & (facts.num_reports > 0))
        if not len(known):
            return {name: np.full(len(clients), np.nan) for name in TERMS}
        sizes = facts.num_examples[free & (facts.num_reports == 0)].astype(np.float64)
        durations = self._durations(view)
        preferred_s = _percentile(durations, self._memory.percentile)
        rating = self._rating(view, known, sizes, durations[known], preferred_s)
        place = np.full(facts.num_clients, -1)
        place[known] = np.arange(len(known))

        return {name: np.append(getattr(rating, name), np.nan)[place[clients]] for name in TERMS}

    def _durations(self, view: View) -> Floats:
        latency_s = view.clients.latency_s
        durations: Floats = np.where(np.isnan(latency_s), self.unseen_duration_s, latency_s)
        return durations

    def _rating(
        self, view: View, known: Ids, new_sizes: Floats, durations: Floats, preferred_s: float
    ) -> Rating:
        """What is thought of those who reported, of these durations."""
        rewards = self._scores(data_quality(view, known), new_sizes)
        bonus = self._bonus(view.version + 1, view.clients.last_version[known] + 1)
        return Rating(rewards, bonus, self._slowdown(durations, preferred_s))

    def _num_new(self, slots: int, share: float, rng: np.random.Generator) -> int:
        by_share = self.exploration_draw == "share"
        return int(slots * share) if by_share else rng.binomial(slots, share)

    def _free(self, view: View) -> NDArray[np.bool_]:
        """The selectable clients without the blacklist, which holds those most often picked."""
        if self.max_picks is None:
            return view.is_selectable
        picks, free = view.clients.num_picks, view.is_selectable.copy()
        most = np.argsort(-picks, kind="stable")[: int(self.max_blacklisted * len(picks))]
        free[most[picks[most] > self.max_picks]] = False
        return free

    def _slowdown(self, durations: Floats, preferred_s: float) -> Floats:
        """(T / duration)^alpha of those slower than T, else 1."""
        slow, factors = durations > preferred_s, np.ones(len(durations))
        factors[slow] = (preferred_s / durations[slow]) ** self.straggler_penalty
        return factors

    def _scores(self, rewards: Floats, sizes: Floats) -> Floats:
        """Rewards brought to [0, 1]; what newcomers promise, their size, counts for the scale."""
        both = np.concatenate([rewards, sizes])
        place = min(int(len(both) * self.clip_quantile), len(both) - 1)
        clip = nth_smallest(both, place)
        low = _BELOW_MIN * both.min()
        scores: Floats = np.minimum(rewards, clip) - low
        scores /= max(both.max() - low, _MIN_SPREAD)
        return scores

    def _bonus(self, now: int, last_rounds: NDArray[np.int32]) -> Floats:
        """For those not seen for long."""
        bonus: Floats = np.sqrt(self.confidence * log(now) / np.maximum(last_rounds, 1))
        return bonus

    def _exploit(self, clients: Ids, scores: Floats, wanted: int) -> Pool:
        """Everybody who comes near the best `wanted`."""
        take = min(wanted, len(clients))
        place = max(len(clients) - 1 - take, 0)
        cut = self.cut_off * nth_smallest(scores, place) if len(clients) else 0.0
        near = scores >= cut
        return Pool.of(clients[near], scores[near], take)

    def _explore(self, new: Ids, weights: Floats, wanted: int, rng: np.random.Generator) -> Pool:
        """The newcomers with the most data."""
        take = min(wanted, len(new))
        window = top(weights, int(self.sample_window * take), rng)
        return Pool.of(new[window], weights[window], take)

    def _next_round(self, view: View) -> Memory:
        """Count who came back, explore less, and prefer longer or shorter durations."""
        old = self._memory
        pairs = np.array(old.exploited, np.int64).reshape(-1, 2)
        clients, versions = pairs.T
        back = view.clients.last_version[clients] >= versions
        rewards = data_quality(view, clients[back])
        utility = float(rewards.mean()) if len(rewards) else 0.0
        utilities = [*old.utilities, utility][-2 * self.pacer_interval :]
        return Memory(
            version=view.version,
            exploration=max(old.exploration * self.exploration_decay, self._floor),
            percentile=self._pace(old, view.version, utilities),
            utilities=utilities,
            exploited=pairs[~back].tolist(),
        )

    def _pace(self, old: Memory, version: int, utilities: Sequence[float]) -> float:
        """Oort's pacer: patience while the utility is flat, haste when it leaps."""
        every, percentile = self.pacer_interval, old.percentile
        if version + 1 < 2 * every or (version + 1) // every == (old.version + 1) // every:
            return percentile
        before, lately = sum(utilities[-2 * every : -every]), sum(utilities[-every:])
        if abs(lately - before) <= self.flat_change * before:
            return min(percentile + self.pacer_step, 100.0)
        if abs(lately - before) >= self.sharp_change * before:
            return max(percentile - self.pacer_step, self.pacer_step)
        return percentile

    def state(self) -> State:
        """The memory."""
        return State(asdict(self._memory))

    def restore(self, state: State) -> None:
        """Take up the memory."""
        self._memory = Memory(**state.values)


def _percentile(durations: Floats, percentile: float) -> float:
    """The preferred duration T over all clients, there or not; the 100th percentile is no limit."""
    place = int(len(durations) * percentile / 100)
    return inf if percentile >= 100 else nth_smallest(durations, place)
