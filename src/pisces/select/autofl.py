"""AutoFL's selection: learning which kinds of clients bring much for little energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Assignment, Selector
from pisces.select.quantiles import parts
from pisces.select.settings import check
from pisces.select.top import Floats, Ids, choose, top
from pisces.types import State
from pisces.words import (
    EnergyWeight,
    Epsilon,
    LowerIsBetter,
    NotNegative,
    Probability,
    RewardMetric,
    WholeNumber,
)

_SPEEDS, _SIZES, _RESTS = 4, 3, 2  # fast, middle, slow, unknown; small to large; just now, long ago
NUM_STATES = _SPEEDS * _SIZES * _RESTS
Counts = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Memory:
    """What was learned, and what is still to be learned from."""

    values: list[float] = field(default_factory=lambda: [0.0] * NUM_STATES)  # Q, state by state
    version: int = -1  # last one evaluated
    score: float | None = None  # what came out, higher is better
    waiting: list[list[int]] = field(default_factory=list)  # [client, state, reports before]

    def waiting_for(self, clients: Ids, states: Ids, num_reports: Counts) -> Memory:
        """The same after starting `clients`; an earlier start of theirs does not count any more."""
        again = set(clients.tolist())
        others = [row for row in self.waiting if row[0] not in again]
        started = np.stack([clients, states[clients], num_reports[clients]], axis=1)
        return replace(self, waiting=others + started.tolist())


@dataclass(eq=False, kw_only=True)
class QLearning(Selector):
    """The free clients in the states of highest value, now and then anybody.

    Kim and Wu, "AutoFL: Enabling Heterogeneity-Aware Energy Efficient Federated Learning",
    MICRO 2021: tabular Q-learning over binned device states, the K devices of the highest Q are
    picked, e-greedy. A client's state is its speed (terciles of the latencies known, or unknown),
    its data (terciles of the samples) and whether its last update is more than `recent_versions`
    old. When a newer version has been evaluated, each client that ended its task meanwhile teaches
    the state it was picked in: Q += learning_rate (reward + discount Q(its state now) - Q), with
    reward = gain of the metric since the evaluation before - `energy_weight` x its energy.

    Differs from the paper:

    * the states are what the server knows; the paper's also hold the network's layers, the load of
      a device and its signal. The only action is to train: there are no processors or
      frequencies to choose, so the next state's best action is that one;
    * the energy model is ours, since devices tell no energy: the power of a client's speed class
      times its latency, over the mean of all clients whose latency is known (1 where it is not);
    * the reward is that difference only; the paper weighs accuracy, its gain, and local and global
      energy, and gives a fixed punishment when accuracy does not rise. A task that came to
      nothing shares in a loss but not in a gain;
    * several clients that teach one state at once teach it the mean of what each would;
    * it learns when a newer version has been evaluated, so `evaluate.every_s` is part of it, as of
      no other protocol: between two evaluations nothing is learnt;
    * a client picked again before anything was evaluated teaches its later state only;
    * values begin at 0 instead of at random; ties are drawn.

    From memory of the paper, not checked: epsilon, learning rate and discount. The powers, the
    energy's weight and what is recent are guesses of ours.
    """

    epsilon: Epsilon = 0.1
    learning_rate: Annotated[Probability, "of the values"] = 0.9
    discount: Annotated[Probability, "of what comes later"] = 0.1
    metric: RewardMetric = "accuracy"
    lower_is_better: LowerIsBetter = False
    energy_weight: EnergyWeight = 0.01
    fast_w: Annotated[NotNegative, "power of the fastest third"] = 3.0
    middle_w: Annotated[NotNegative, "of the middle third"] = 2.0
    slow_w: Annotated[NotNegative, "of the slowest third"] = 1.0
    recent_versions: Annotated[WholeNumber, "updates as old as this are recent"] = 10

    def __post_init__(self) -> None:
        check(self)
        self._memory = Memory()

    @property
    def learns_from(self) -> str:
        """The metric whose gain is the reward."""
        return self.metric

    def pick(self, view: View, slots: int, rng: np.random.Generator) -> Sequence[Assignment]:
        """Learn from what came back, take the best, and some at random out of the others."""
        slots = min(slots, len(view.free))
        if slots <= 0:
            return []
        states = self.states(view)
        memory = self._learned(view, states)
        num_random = rng.binomial(slots, self.epsilon)
        free = view.selectable
        values = np.array(memory.values)[states[free]]
        best = free[top(values, slots - num_random, rng)]
        picked = np.concatenate([best, _others(view, best, num_random, rng)])
        self._memory = memory.waiting_for(picked, states, view.clients.num_reports)
        return [Assignment(client) for client in picked.tolist()]

    def terms(self, view: View, clients: Ids) -> Mapping[str, Floats]:
        """The value of each one's state (Q)."""
        return {"score": np.array(self._memory.values)[self.states(view)[clients]]}

    def states(self, view: View) -> Ids:
        """The state of every client, as a number below `NUM_STATES`."""
        facts = view.clients
        speed = parts(facts.latency_s, _SPEEDS - 1)
        size = parts(facts.num_examples.astype(np.float64), _SIZES)
        heard = facts.last_version >= 0
        rest = heard & (view.version - facts.last_version > self.recent_versions)
        return (speed * _SIZES + size) * _RESTS + rest

    def energies(self, view: View) -> Floats:
        """The energy of a task of every client, over the mean of those known."""
        latency_s = view.clients.latency_s
        powers = np.array([self.fast_w, self.middle_w, self.slow_w, np.nan])
        energies: Floats = powers[parts(latency_s, _SPEEDS - 1)] * latency_s
        known = ~np.isnan(energies)
        mean = energies[known].mean() if known.any() else 0.0
        return np.where(known, energies / mean, 1.0) if mean > 0 else np.ones(len(energies))

    def _learned(self, view: View, states: Ids) -> Memory:
        """The memory after the newest evaluation, if there is one since the last."""
        old, newest = self._memory, view.history[-1] if view.history else None
        if newest is None or newest.version <= old.version:
            return old
        score = self._score(newest.metrics)
        if isnan(score):
            return old
        new = replace(old, version=newest.version, score=score)
        return new if old.score is None else self._taught(new, view, states, score - old.score)

    def _score(self, metrics: Mapping[str, float]) -> float:
        if self.metric not in metrics:
            rule = f"metric: must be one that is evaluated, not {self.metric!r}"
            raise ConfigError(f"{rule}; choose one of {', '.join(sorted(metrics))}")
        return -metrics[self.metric] if self.lower_is_better else metrics[self.metric]

    def _taught(self, memory: Memory, view: View, states: Ids, gain: float) -> Memory:
        """What the tasks that ended teach the states their clients were picked in."""
        facts, rows = view.clients, np.array(memory.waiting, np.int64).reshape(-1, 3)
        ended = ~(facts.running | facts.buffered)[rows[:, 0]]
        clients, before, num_reports = rows[ended].T
        is_back = facts.num_reports[clients] > num_reports
        gains = np.where(is_back, gain, min(gain, 0.0))
        rewards = gains - self.energy_weight * self.energies(view)[clients]
        values = np.array(memory.values)
        targets = rewards + self.discount * values[states[clients]]
        num = np.bincount(before, minlength=NUM_STATES)
        means = np.bincount(before, targets, minlength=NUM_STATES) / np.maximum(num, 1)
        values += np.where(num > 0, self.learning_rate * (means - values), 0.0)
        return replace(memory, values=values.tolist(), waiting=rows[~ended].tolist())

    def state(self) -> State:
        """The memory."""
        return State(asdict(self._memory))

    def restore(self, state: State) -> None:
        """Take up the memory."""
        self._memory = Memory(**state.values)


def _others(view: View, taken: Ids, num: int, rng: np.random.Generator) -> Ids:
    """`num` of the free clients that are not taken, each as likely."""
    free = view.is_selectable.copy()
    free[taken] = False
    others = np.flatnonzero(free)
    return others[choose(num, len(others), rng)] if num else others[:0]
