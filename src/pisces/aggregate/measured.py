"""A mean whose step is as long as there is reason for: the rule of `pisces`.

    w + sum_i c_i (w_i - base_i)
    c_i = length * n_i d_i / sum_j n_j d_j,    d_i = (1 + staleness_i)^-beta
    length = min(1, arrived / (full_share * (arrived + running)))
    full_share = max(turning_back / 0.1, agreement / 0.6), within [1/2, 1]

with `arrived` and `running` the samples of the clients behind these updates and of those still at
work (each as at most a hundred times the median), and `directions.py` saying how far recent updates
point back to where the model was, and the same way. Three differences from `mean.py`:

* A mean has one length, whether taken over one update or twenty, but one client's opinion is not
  worth that of twenty: a pace that often aggregates few takes large steps in directions of chance.
  Here a step is full only if the updates hold the share `full_share` of the samples at work; below
  that it is shorter in proportion. With 1, all who work at the same time move the model as far as
  their mean; with 1/2 twice as far.
* Which of the two is right, the updates tell. Clients at work at the same time do not know of each
  other. Where they have little in common, twice their mean is no step too far. Where they agree,
  each adds what another has done already. And where the model has gone too far, whoever trains it
  turns back: then steps are too long.
* Staleness weighs updates against each other. It does not shorten the step: where everybody is
  stale, the discounts of `mean.py` only make a smaller server rate, the smaller the more versions
  the pace makes.

With a `full_share` of 0 and beta 0 it is the plain mean by samples.

Ours: what the Pisces paper averages (`mean.py`) takes steps of full length whoever is behind them.
docs/decisions/009 has numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pisces.aggregate.directions import Directions
from pisces.aggregate.mean import Floats, discounts, moved
from pisces.clients.view import View
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights

TURNING_BACK = 0.1  # where the model goes too far ...
AGREEMENT = 0.6  # ... or everybody does the same
LEAST_SHARE = 0.5  # of the samples at work to make a full step
MOST_TIMES_USUAL = 100  # or whoever declares samples without number is all that counts


class MeasuredMean(Aggregator):
    """See the module's formulas; `staleness_penalty` is beta.

    A `full_share` that is given stays as it is; otherwise it follows the last `memory` updates.
    """

    def __init__(
        self,
        *,
        staleness_penalty: float = 0.5,
        full_share: float | None = None,
        memory: float = 20,
    ) -> None:
        self._staleness_penalty = staleness_penalty
        self._given_full_share = full_share
        self._directions = Directions(memory)

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean, as long as it may be."""
        if self._given_full_share is not None:
            return moved(weights, updates, self.coefficients(updates, view), "base")
        self._directions.add(updates)
        made = moved(weights, updates, self.coefficients(updates, view), "base")
        self._directions.moved(made.weights, len(updates))
        return made

    def coefficients(self, updates: Sequence[Update], view: View) -> Floats:
        """c_i of every update."""
        told = [u.report.num_examples for u in updates]
        at_work = np.concatenate([told, view.clients.num_examples[view.running.clients]])
        at_work = np.minimum(at_work, MOST_TIMES_USUAL * np.median(at_work))
        arrived = at_work[: len(updates)]
        shares = arrived * discounts(updates, view, self._staleness_penalty)
        length = arrived.sum() / max(arrived.sum(), self._full_share * at_work.sum())
        return np.asarray(length * shares / shares.sum(), np.float64)

    @property
    def _full_share(self) -> float:
        if self._given_full_share is not None:
            return self._given_full_share
        too_far = self._directions.turning_back / TURNING_BACK
        alike = self._directions.agreement / AGREEMENT
        return min(1.0, max(LEAST_SHARE, too_far, alike))

    def state(self) -> State:
        """Where updates have pointed so far."""
        return self._directions.state()

    def restore(self, state: State) -> None:
        """Take it up."""
        self._directions.restore(state)
