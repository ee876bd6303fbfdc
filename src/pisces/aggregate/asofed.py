"""A mean of everybody's last model, kept up to date by one client at a time: ASO-Fed's rule.

    w <- w - (n_k / sum n) (old_k - new_k)

Chen et al., "Asynchronous Online Federated Learning for Edge Devices with Non-IID Data", IEEE
BigData 2020, Eq. (4). old_k is the last model of client k and sum n the samples of all clients, so
that w is the mean by samples of the last models of all. A client's model replaces its own last one
and nobody else's: a fast client counts no more than a slow one. Whoever reports for the first time
has no last model: it joins the mean, its old_k being w and its samples from then on in sum n.

The paper's server then weighs the features in the first layer, Eq. (5) and (6),

    w_ij <- alpha_ij w_ij,    alpha_ij = exp |w_ij| / sum_j exp |w_ij|

for every unit i over its inputs j. A factor alpha_ij is about one over the number of inputs: the
layer shrinks by as much with every version and is zero after a few, unless clients train it back
up each time. So this is off unless asked for (`weigh_features`).

Buffers such as BatchNorm statistics mix against the current model, with the same n_k / sum n.

Differs from the paper:

* the mean is over those who have reported. In the paper it is over all, who stand at the first
  model until they report and run from the start; where few run at a time, what is left of the first
  model would hold everybody back until the last has reported. From then on both are the same;
* samples are those that clients joined with. Who has left for good counts on with its last model,
  which then holds the mean back for ever (in the paper nobody leaves);
* Eq. (5) and (6) are as we remember them, whose rows are taken to be units; convolutions count as
  one row per filter;
* what its clients do (a proximal term, decayed gradients, a step by delay) is no part of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pisces.aggregate.mean import Floats, moved
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
        self.require_room(view.clients.num_clients, weights)
        made = moved(
            weights, self._against_last(updates, weights), self._shares(updates, view), "base"
        )
        if self._weigh_features:
            made = replace(made, weights=with_weighed_features(made.weights))
        for update in updates:  # copies: what an update holds may be a row of many's results
            self._last.put(update.client, update.weights.flat.clone())
        return made

    def require_room(self, num_clients: int, weights: Weights) -> None:
        """A model of each must fit."""
        self._last.require_room(num_clients, weights.flat)

    def _against_last(self, updates: Sequence[Update], weights: Weights) -> list[Update]:
        """The same, as if trained from their clients' last models, or from the mean."""
        lasts = [self._last.get(update.client) for update in updates]
        bases = [weights if last is None else Weights(last, weights.layout) for last in lasts]
        return [replace(u, base=base) for u, base in zip(updates, bases, strict=True)]

    def _shares(self, updates: Sequence[Update], view: View) -> Floats:
        """The samples of each, over those of all who have reported by now."""
        clients = [update.client for update in updates]
        heard = sorted({*clients, *self._last.clients})
        num_examples = view.clients.num_examples
        return np.asarray(num_examples[clients] / num_examples[heard].sum(), np.float64)

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
