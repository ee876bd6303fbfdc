"""Calibrated updates: who is not in the buffer counts with what it said last. CA2FL's rule.

    w + server_rate * v
    v = mean over all N clients of h_i  +  mean over the buffer of (d_i - h_i)
    d_i = w_i - base_i,    then h_i <- d_i for those in the buffer

Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update
Calibration", ICLR 2024, Algorithm 2. h_i is the last update of client i, zero until it reports.
A buffer of a few fast clients alone would pull the model to their data; with everybody's last
update beside it the step is one for all. The sum of all h_i is kept, so that a version costs as
much as its buffer, however many clients there are.

Trained parameters are calibrated. Buffers such as BatchNorm statistics are averaged over those who
reported, against the current model. The coefficients recorded are those of the updates,
server_rate / K; what the cache adds is not among them.

Differs from the paper:

* N are the clients that ever joined, which may grow during a run. Who has left for good counts on
  with its last update, which then pulls at the model for ever (in the paper nobody leaves);
* K is the number of updates combined, which a tick or a starved buffer may change;
* the sum of all h_i is brought up to date in the precision of the weights, so it may drift from
  the sum by rounding;
* no quantised cache (the paper's memory-friendly variant): beyond `max_cache_bytes` it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pisces.aggregate.mean import moved
from pisces.aggregate.memory import MAX_CACHE_BYTES, ClientVectors
from pisces.clients.view import View
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights


class Calibrated(Aggregator):
    """See the module's formulas; the h_i of all clients may take `max_cache_bytes`."""

    def __init__(
        self,
        *,
        server_rate: float = 1.0,
        max_cache_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        self._server_rate = server_rate
        self._last = ClientVectors(max_cache_bytes)
        self._sum: torch.Tensor | None = None  # of all of them; none: nobody has reported

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean of the updates, and what their clients' last ones differ from everybody's."""
        num_clients = view.clients.num_clients
        self.require_room(num_clients, weights)
        start = self._calibrated(weights, updates, num_clients)
        shares = np.full(len(updates), 1 / len(updates))
        made = moved(start, updates, shares, "base", self._server_rate)
        self._note(updates)
        return made

    def require_room(self, num_clients: int, weights: Weights) -> None:
        """The trained parameters of each must fit."""
        self._last.require_room(num_clients, weights.parameters)

    def _calibrated(self, weights: Weights, updates: Sequence[Update], num_clients: int) -> Weights:
        """The weights moved by the mean of all h_i, less that over the buffer."""
        if self._sum is None:
            return weights
        step = self._sum / num_clients
        for update in updates:
            last = self._last.get(update.client)
            if last is not None:
                step.sub_(last, alpha=1 / len(updates))
        flat = weights.flat.clone()
        flat[: len(step)].add_(step, alpha=self._server_rate)
        return Weights(flat, weights.layout)

    def _note(self, updates: Sequence[Update]) -> None:
        """These are the last updates of their clients from now on."""
        first = updates[0].weights.parameters
        total = torch.zeros_like(first) if self._sum is None else self._sum.clone()
        for update in updates:
            step = update.weights.parameters - update.base.parameters
            last = self._last.get(update.client)
            total.add_(step if last is None else step - last)
            self._last.put(update.client, step)
        self._sum = total

    def state(self) -> State:
        """Everybody's last update, and their sum."""
        state = self._last.state()
        if self._sum is not None:
            state.arrays["sum"] = self._sum
        return state

    def restore(self, state: State) -> None:
        """Take both up."""
        self._last.restore(state)
        self._sum = state.arrays.get("sum")
