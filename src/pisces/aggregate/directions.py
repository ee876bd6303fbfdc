"""Where do updates point: the same way as each other, or back to where the model was lately?

    agreement    = mean of <d_i, d_j> over pairs / mean of <d_i, d_i>,    d_i = w_i - base_i
    turning_back = sum <d_i, b_i> / sqrt(sum <d_i, d_i> * sum <b_i, b_i>),    b_i = lately - base_i

with `lately` the average over the versions of the last 2 `memory` updates (`average.py`). Of both,
1 is the most: all the same, or straight back. 0 is nothing in common. Who goes on in the direction
the model has taken turns back by less than 0, unless its base is older than `lately`: then to go on
is to follow, and counts as turning back, as at the start of a run or from very stale clients.

The trained parameters count, not buffers. A version of few updates says little, so both are
averaged over the last `memory` updates or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

import torch

from pisces.aggregate.average import RunningAverage
from pisces.errors import ConfigError
from pisces.types import State, Update, Weights


class Directions:
    """How far recent updates agree and turn back.

    Both start at 0: nobody has pointed anywhere yet.
    """

    def __init__(self, memory: float) -> None:
        if not memory > 0:
            raise ConfigError(f"directions need a memory above 0 updates, not {memory}")
        self._memory = memory
        self._lately = RunningAverage(2 * memory)
        self.agreement = self.turning_back = 0.0

    def add(self, updates: Sequence[Update]) -> None:
        """The updates of one more version."""
        share = min(1.0, len(updates) / self._memory)
        self.agreement = _nearer(self.agreement, agreement(updates), share)
        if self._lately.value is not None:
            found = turning_back(updates, self._lately.value)
            self.turning_back = _nearer(self.turning_back, found, share)

    def moved(self, weights: Weights, num_updates: int) -> None:
        """The new version's weights, made of so many updates."""
        new = _parameters(weights)
        if bool(new.isfinite().all()):  # nobody will take it otherwise
            self._lately.add(new, num_updates)

    def state(self) -> State:
        """Both so far, and where the model was lately."""
        state = State({"agreement": self.agreement, "turning_back": self.turning_back})
        state.add("lately", self._lately.state())
        return state

    def restore(self, state: State) -> None:
        """Take it up."""
        self.agreement = state.values["agreement"]
        self.turning_back = state.values["turning_back"]
        self._lately.restore(state.part("lately"))


def agreement(updates: Sequence[Update]) -> float | None:
    """See the module's formula; none of fewer than two, or where nobody moved."""
    num = len(updates)
    if num < 2:
        return None
    steps = (_step(update) for update in updates)
    together = next(steps)
    squares = together.dot(together)
    for step in steps:
        squares += step.dot(step)
        together += step
    alone, all_pairs = float(squares), float(together.dot(together))
    if not (alone > 0 and isfinite(alone) and isfinite(all_pairs)):  # squares may overflow
        return None
    return (all_pairs - alone) / ((num - 1) * alone)


def turning_back(updates: Sequence[Update], lately: torch.Tensor) -> float | None:
    """See the module's formula; none where nobody moved, or the model has not."""
    both = squares = ways = torch.zeros((), device=lately.device)
    for update in updates:
        step, way = _step(update), lately - _parameters(update.base)
        both, squares, ways = both + step.dot(way), squares + step.dot(step), ways + way.dot(way)
    most = sqrt(float(squares)) * sqrt(float(ways))
    if not (most > 0 and isfinite(most)):
        return None
    return float(both) / most


def _nearer(value: float, found: float | None, share: float) -> float:
    return value if found is None else value + (found - value) * share


def _step(update: Update) -> torch.Tensor:
    return _parameters(update.weights) - _parameters(update.base)


def _parameters(weights: Weights) -> torch.Tensor:
    return weights.flat[: weights.layout.num_parameters]
