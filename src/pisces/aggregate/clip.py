"""Norm clipping: no update moves the model further than updates usually do.

    delta_i * min(1, factor * median / |delta_i|),    delta_i = w_i - base_i

with the median over the norms of recent updates, so that there is no norm to be tuned: updates grow
shorter as training goes on, and the limit with them. (A running quantile as the limit: Andrew et
al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021; there it is private.)

What combines the clipped updates is another aggregator's business. Buffers, such as BatchNorm
statistics, are neither measured nor clipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import torch

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights


class Clipped(Aggregator):
    """Clips updates to `factor` times the median norm of the last `window`, then has them combined.

    An update is measured together with those it arrives with, so the first ones have peers, too.
    """

    def __init__(self, inner: Aggregator, *, factor: float = 1.0, window: int = 64) -> None:
        if not factor > 0 or window < 1:
            raise ConfigError(
                "clipping needs a factor above 0 and a window of at least 1 update, not "
                f"{factor} and {window}"
            )
        self._inner = inner
        self._factor = factor
        self._norms: deque[float] = deque(maxlen=window)

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """Clip, then combine; coefficients are of the clipped updates."""
        norms = [float(torch.linalg.vector_norm(_delta(update))) for update in updates]
        self._norms.extend(norms)
        limit = self._factor * median(self._norms)
        clipped = [
            update if norm <= limit else _shortened(update, limit / norm)
            for update, norm in zip(updates, norms, strict=True)
        ]
        return self._inner.combine(weights, clipped, view, rng)

    def state(self) -> State:
        """The recent norms, and the inner aggregator's state."""
        state = State({"norms": list(self._norms)})
        state.add("inner", self._inner.state())
        return state

    def restore(self, state: State) -> None:
        """Take both up."""
        self._norms.clear()
        self._norms.extend(state.values["norms"])
        self._inner.restore(state.part("inner"))


def _delta(update: Update) -> torch.Tensor:
    """How the update's parameters moved."""
    split = update.weights.layout.num_parameters
    return update.weights.flat[:split] - update.base.flat[:split]


def _shortened(update: Update, by: float) -> Update:
    """The same update, its parameters moved only `by` (less than 1) times as far."""
    flat = update.weights.flat.clone()
    split = update.weights.layout.num_parameters
    torch.add(update.base.flat[:split], _delta(update), alpha=by, out=flat[:split])
    return replace(update, weights=Weights(flat, update.weights.layout))
