"""An average over recent versions: what is handed out is calmer than what is trained on.

Each version carries the accidents of the few clients behind it. In an average over the updates of
the last few cohorts most of these cancel, which makes a better model where accidents are what is
wrong with a version, and a worse one where it is only that training is not far enough yet.
Clients go on training from the versions themselves: the average lags, the training does not.

    average += (version - average) * m / min(horizon, m + seen / 2)

for a version made of m updates after `seen` others: the horizon is counted in updates, because a
pace may put one or twenty into a version, and is half of all there were while those are few.

Ours, after Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", SIAM J.
Control Optim. 1992. Differs from theirs: it forgets, theirs is over all there ever were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from pisces.aggregate.around import Around
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights


class RunningAverage:
    """Of versions; see the module's formula."""

    def __init__(self, horizon: float) -> None:
        if not horizon > 0:
            raise ConfigError(f"an average needs a horizon above 0 updates, not {horizon}")
        self._horizon = horizon
        self._num_seen = 0
        self.value: torch.Tensor | None = None  # none: nothing yet to average

    def add(self, version: torch.Tensor, num_updates: int) -> torch.Tensor:
        """The average with one more version, made of so many updates."""
        share = min(1.0, num_updates / min(self._horizon, num_updates + self._num_seen / 2))
        before = version if self.value is None else self.value
        self.value = torch.lerp(before, version, share)
        self._num_seen += num_updates
        return self.value

    def state(self) -> State:
        """The average so far, and over how many updates."""
        arrays = {} if self.value is None else {"average": self.value}
        return State({"num_seen": self._num_seen}, arrays)

    def restore(self, state: State) -> None:
        """Take it up."""
        self.value = state.arrays.get("average")
        self._num_seen = state.values["num_seen"]


class Averaged(Around):
    """Publishes the average of an inner aggregator's versions over `horizon` updates."""

    def __init__(self, inner: Aggregator, *, horizon: float) -> None:
        if inner.publishes_other:
            raise ConfigError("what is published is an average already: leave one of the two out")
        super().__init__(inner)
        self._average = RunningAverage(horizon)

    @property
    def publishes_other(self) -> bool:
        """That is what it does."""
        return True

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The inner aggregator's version, and the average with it."""
        made = self.inner.combine(weights, updates, view, rng)
        average = self._average.add(made.weights.flat, len(updates))
        return replace(made, published=Weights(average, weights.layout))

    def remember(self) -> Callable[[], None]:
        """What both do."""
        before, undo = self._average.state(), self.inner.remember()

        def back() -> None:
            self._average.restore(before)
            undo()

        return back

    def state(self) -> State:
        """The average so far, and the inner aggregator's state."""
        state = self._average.state()
        state.add("inner", self.inner.state())
        return state

    def restore(self, state: State) -> None:
        """Take both up."""
        self._average.restore(state)
        self.inner.restore(state.part("inner"))
