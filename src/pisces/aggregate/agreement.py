"""How far do updates point the same way?

    agreement = mean of <d_i, d_j> over pairs / mean of <d_i, d_i>,    d_i = w_i - base_i

1 where all are the same, 0 where they have nothing in common. The trained parameters count, not
buffers. A version of few updates says little, so it is averaged over the last `memory` or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from pisces.errors import ConfigError
from pisces.types import State, Update


class Agreement:
    """The agreement among recent updates of the same versions.

    It starts at 0: nobody has agreed yet, and no step has been too long.
    """

    def __init__(self, memory: float) -> None:
        if not memory > 0:
            raise ConfigError(f"agreement needs a memory above 0 updates, not {memory}")
        self._memory = memory
        self.value = 0.0

    def add(self, updates: Sequence[Update]) -> None:
        """The updates of one more version."""
        of_these = agreement(updates)
        if of_these is not None:
            self.value += (of_these - self.value) * min(1.0, len(updates) / self._memory)

    def state(self) -> State:
        """The average so far."""
        return State({"agreement": self.value})

    def restore(self, state: State) -> None:
        """Take it up."""
        self.value = state.values["agreement"]


def agreement(updates: Sequence[Update]) -> float | None:
    """See the module's formula; none of fewer than two, or where nobody moved."""
    num = len(updates)
    if num < 2:
        return None
    parameters = slice(updates[0].weights.layout.num_parameters)
    steps = (u.weights.flat[parameters] - u.base.flat[parameters] for u in updates)
    together = next(steps)
    squares = together.dot(together)
    for step in steps:
        squares += step.dot(step)
        together += step
    alone, all_pairs = float(squares), float(together.dot(together))
    if not (alone > 0 and isfinite(alone) and isfinite(all_pairs)):  # squares may overflow
        return None
    return (all_pairs - alone) / ((num - 1) * alone)
