"""Updates shortened to a length before any aggregator sees them: nobody moves the model far alone.

    w_i <- base_i + (w_i - base_i) * min(1, norm / |w_i - base_i|)

with the L2 norm of the trained parameters. Buffers stay as they are. (McMahan et al., "Learning
Differentially Private Recurrent Language Models", ICLR 2018, "flat clipping"; as a defence: Sun et
al., "Can You Really Backdoor Federated Learning?", 2019.)

Differs from the papers:

* No noise is added, so nothing is private by this alone.
* An update is measured against the version its client started from. An inner aggregator that mixes
  models into the current one (`reference = "current"`) moves it by more than `norm` where a stale
  client's start is far away.
* An update so long that its length is no float any more ends where it started.

The length is given, not learned: the usual length falls as training goes on, but a limit that
follows it (the median of recent lengths, say) always shortens half of the honest ones. One that
keeps far above it is `usual.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Annotated

import numpy as np
import torch

from pisces.aggregate.around import Around
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.types import Update, Weights
from pisces.words import Positive


class Clipped(Around):
    """Updates are shortened to the length `norm` before the inner aggregator sees them.

    Those that are too long are copied, so a full buffer may take twice its memory meanwhile.
    """

    def __init__(
        self, inner: Aggregator, *, norm: Annotated[Positive, "longest an update may be"]
    ) -> None:
        if not (norm > 0 and isfinite(norm)):
            raise ConfigError(f"updates are clipped to a norm above 0, not {norm}")
        super().__init__(inner)
        self._norm = norm

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """What the inner aggregator makes of the shortened updates."""
        fitting = [
            update if length <= self._norm else shortened(update, self._norm / length)
            for update, length in zip(updates, lengths_of(updates), strict=True)
        ]
        return self.inner.combine(weights, fitting, view, rng)


def lengths_of(updates: Sequence[Update]) -> list[float]:
    """How far each went; infinite where it is no float any more."""
    ways = [(u.weights.parameters - u.base.parameters).norm() for u in updates]
    lengths: list[float] = torch.stack(ways).tolist()
    return lengths


def shortened(update: Update, share: float) -> Update:
    """The update gone only so much of its way."""
    base, new = update.base.parameters, Weights(update.weights.flat.clone(), update.base.layout)
    gone = torch.lerp(base, new.parameters, share) if share > 0 else base  # not 0 x inf
    new.parameters.copy_(gone)
    return replace(update, weights=new)
