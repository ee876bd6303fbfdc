"""Where do updates point: the same way as each other, or back to where the model was lately?

    agreement    = mean of <d_i, d_j> over pairs / mean of <d_i, d_i>,    d_i = w_i - base_i
    turning_back = sum <d_i, b_i> / sqrt(sum <d_i, d_i> * sum <b_i, b_i>),    b_i = lately - base_i

with `lately` the average over the versions of the last 2 `memory` updates (`average.py`). Of both,
1 is the most: all the same, or straight back. 0 is nothing in common. Who goes on in the direction
the model has taken turns back by less than 0, unless its base is older than `lately`: then to go on
is to follow, and counts as turning back, as at the start of a run or from very stale clients.

Agreement needs two updates in a version: where a pace makes versions of one, it stays as it is. A
long update speaks louder in both than a short one.

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
        agree, turn = directions(updates, self._lately.value)
        self.agreement = _nearer(self.agreement, agree, share)
        self.turning_back = _nearer(self.turning_back, turn, share)

    def moved(self, weights: Weights, num_updates: int) -> None:
        """The new version's weights, made of so many updates."""
        self._lately.add(weights.parameters, num_updates)

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


def directions(
    updates: Sequence[Update], lately: torch.Tensor | None
) -> tuple[float | None, float | None]:
    """Agreement and turning back; see the module's formulas.

    None where nobody moved; agreement of fewer than two; turning back where the model has not
    moved yet.
    """
    together = torch.zeros_like(updates[0].base.parameters)
    squares = back = ways = torch.zeros((), device=together.device)
    for update in updates:  # one after the other: all steps at once would be as many models
        base = update.base.parameters
        step = update.weights.parameters - base
        together += step
        squares = squares + step.dot(step)
        if lately is not None:
            way = lately - base
            back, ways = back + step.dot(way), ways + way.dot(way)
    alone = float(squares)
    pairs = float(together.dot(together)) - alone
    return _ratio(pairs, (len(updates) - 1) * alone), _ratio(float(back), sqrt(alone * float(ways)))


def _ratio(part: float, whole: float) -> float | None:
    """None where there is nothing to compare, or squares were too large for their kind of float."""
    return part / whole if whole > 0 and isfinite(part) and isfinite(whole) else None


def _nearer(value: float, found: float | None, share: float) -> float:
    return value if found is None else value + (found - value) * share
