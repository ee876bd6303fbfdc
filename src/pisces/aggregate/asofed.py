"""A mean of everybody's last model, kept up to date by one client at a time: ASO-Fed's rule.

    w <- w - (n_k / sum n) (old_k - new_k)

Chen et al., "Asynchronous Online Federated Learning for Edge Devices with Non-IID Data", IEEE
BigData 2020, Eq. (4). old_k is the last model of client k and sum n the samples of all clients, so
that w is the mean by samples of the last models of all. A client's model replaces its own last one
and nobody else's: a fast client counts no more than a slow one.

The paper's server then weighs the features in the first layer, Eq. (5) and (6),

    w_ij <- alpha_ij w_ij,    alpha_ij = exp |w_ij| / sum_j exp |w_ij|

for every unit i over its inputs j. A factor alpha_ij is about one over the number of inputs: the
layer shrinks by as much with every version and is zero after a few, unless clients train it back
up each time. So this is off unless asked for (`weigh_features`).

Buffers such as BatchNorm statistics mix against the current model, with the same n_k / sum n.

Differs from the paper:

* old_k of a client that reports for the first time is the model it was sent. In the paper everybody
  starts from the first model and runs always, where that is the same; where few run at a time, what
  is left of the first model would otherwise hold everybody back until the last has reported;
* the samples of all clients are those they joined with, also of the ones that have left;
* Eq. (5) and (6) are as we remember them, whose rows are taken to be units; convolutions count as
  one row per filter;
* what its clients do (a proximal term, decayed gradients, a step by delay) is no part of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pisces.aggregate.mean import moved
from pisces.aggregate.memory import MAX_CACHE_BYTES, ClientVectors
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights


class AsoFed(Aggregator):
    """See the module's formulas; the last models of all clients may take `max_cache_bytes`."""

    def __init__(
        self, *, weigh_features: bool = False, max_cache_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        self._weigh_features = weigh_features
        self._last = ClientVectors(max_cache_bytes)

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean, with these clients' last models replaced."""
        self._last.require_room(view.clients.num_clients, weights.flat)
        shares = np.array([u.report.num_examples for u in updates], np.float64)
        shares = shares / view.clients.num_examples.sum()
        made = moved(weights, [self._against_last(u) for u in updates], shares, "base")
        if self._weigh_features:
            made = replace(made, weights=with_weighed_features(made.weights))
        for update in updates:  # copies: what an update holds may be a row of many's results
            self._last.put(update.client, update.weights.flat.clone())
        return made

    def _against_last(self, update: Update) -> Update:
        """The same, as if it had been trained from its client's last model."""
        last = self._last.get(update.client)
        return update if last is None else replace(update, base=Weights(last, update.base.layout))

    def state(self) -> State:
        """Everybody's last model."""
        return self._last.state()

    def restore(self, state: State) -> None:
        """Take them up."""
        self._last.restore(state)


def with_weighed_features(weights: Weights) -> Weights:
    """Eq. (5) and (6) on the first parameter that is a matrix, or a stack of filters."""
    layers = [s for s in weights.layout.slices if s.role == "parameter" and len(s.shape) > 1]
    if not layers:
        raise ConfigError("weigh_features: needs a first layer, this model has none; leave it off")
    first = layers[0]
    new = weights.flat.clone()
    matrix = new[first.start : first.stop].view(first.shape[0], -1)
    matrix.mul_(matrix.abs().softmax(dim=1))
    return Weights(new, weights.layout)
