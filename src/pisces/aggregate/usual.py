"""Updates far longer than is usual are shortened to what is: nobody outshouts all the others.

    w_i <- base_i + (w_i - base_i) * usual / length_i    where length_i > max(longest * usual, |w|)
    length_i = |w_i - base_i|,    usual = the median of what clients sent lately

with the L2 norm of the trained parameters; buffers stay as they are. What is not that long is not
touched, not even copied. Longer than the whole model as well, because honest steps differ too: late
in training most clients hardly move, and the few that still learn go a hundred times as far.

The median is over the last lengths of the 10 C clients heard from last, so that neither a client
that reports often nor the few that guided selection prefers have more to say. Until C of them (ten
at least) have been heard nobody knows what is usual, and what is more than three times as long as
the model goes nowhere at all: first steps are the longest. A model of zeros has no length, and
nothing is shortened before enough are heard.

What was too long is remembered as the longest that is not: should most be so, training itself has
changed, and what is usual follows.

It is a guard against clients that went wrong, and against crude ones that mean it. Whoever knows of
it sends something shorter: docs/robustness.md says what is against that.

Ours: the bound of `clip.py` is a number one has to find, while the usual length falls as training
goes on. A limit that follows it closely always shortens half of the honest ones; one far above it
shortens none of them. docs/decisions/015 has numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Annotated

import numpy as np
from pydantic import Field

from pisces.aggregate.around import Around
from pisces.aggregate.clip import lengths_of, shortened
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.recent import Recent
from pisces.types import State, Update, Weights

LONGEST = 20.0  # usual lengths
FEWEST = 10  # clients, however few run at once
MEMORY = 10  # times as many are remembered
FIRST = 3.0  # models long a step may be before it is known what is usual


class Usual(Around):
    """What is more than `longest` times as long as usual is shortened to the usual length."""

    def __init__(
        self,
        concurrency: int,
        inner: Aggregator,
        *,
        longest: Annotated[
            float, Field(gt=1, allow_inf_nan=False, description="an update may be, in usual ones")
        ] = LONGEST,
    ) -> None:
        if not 1 < longest < inf:
            raise ConfigError(f"updates may be longer than usual, more than 1 times, not {longest}")
        super().__init__(inner)
        self._longest = longest
        self._enough = max(FEWEST, concurrency)
        self._lengths = Recent(MEMORY * self._enough)

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """What the inner aggregator makes of updates none of which is too long."""
        most, usual = self._limits(float(weights.parameters.norm()))
        lengths = lengths_of(updates)
        fitting = [
            update if length <= most else shortened(update, usual / length)
            for update, length in zip(updates, lengths, strict=True)
        ]
        for update, length in zip(updates, lengths, strict=True):
            self._lengths.put(update.client, min(length, most))
        return self.inner.combine(weights, fitting, view, rng)

    def _limits(self, model: float) -> tuple[float, float]:
        """How long an update may be beside such a model, and how long a longer one becomes."""
        if len(self._lengths) < self._enough:
            return FIRST * model or inf, 0.0
        usual = self._lengths.median
        return max(self._longest * usual, model) or inf, usual

    def remember(self) -> Callable[[], None]:
        """A copy: a state of so many clients takes longer to write than most versions to make."""
        before, undo = self._lengths.copy(), self.inner.remember()

        def back() -> None:
            self._lengths = before
            undo()

        return back

    def state(self) -> State:
        """The lengths, beside the inner aggregator's state."""
        state = self.inner.state()
        state.values["lengths"] = self._lengths.told()
        return state

    def restore(self, state: State) -> None:
        """Take both up; a state from before there were lengths has none."""
        self._lengths = Recent(MEMORY * self._enough, state.values.get("lengths", ()))
        self.inner.restore(state)
