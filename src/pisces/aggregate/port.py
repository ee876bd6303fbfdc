"""A mean weighted by samples, staleness and direction: the rule of Port.

    w + sum_i c_i (w_i - base_i),    c_i = raw_i / sum_j raw_j
    raw_i = n_i (alpha beta / (staleness_i + beta) + mu (cos_i + 1) / 2)

with cos_i the cosine between the update w_i - base_i and the model's last movement, which led to
the current version.

Su and Li, "How Asynchronous can Federated Learning Be?" (Port), IWQoS 2022: an update counts less
the staler it is, and the more it points away from where the model goes. The paper's constants are
parameters here: alpha and mu weigh the two terms, beta is the staleness that halves the first.
Their defaults, and the form of the terms, are those of the authors' server in Plato, where beta is
the staleness bound of the pace (10 unless set).

Differs from the authors' code:

* the movement is the last one; theirs spans two versions, and updates less than two versions behind
  are taken to agree with it fully;
* where there is nothing to compare (before the second version, of an update that went nowhere) the
  cosine is 0: neither with the model nor against it;
* should every raw weight be 0, samples decide. Cosines are of the parameters alone; buffers mix
  against the current model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from pisces.aggregate.mean import Floats, moved
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Aggregator, Combination
from pisces.types import State, Update, Weights


class SimilarityMean(Aggregator):
    """See the module's formulas.

    `staleness_weight` is alpha, `half_staleness` beta, `similarity_weight` mu.
    """

    def __init__(
        self,
        *,
        staleness_weight: float = 1.0,
        half_staleness: float = 10.0,
        similarity_weight: float = 1.0,
    ) -> None:
        weights = staleness_weight, similarity_weight
        if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ConfigError(
                "staleness_weight and similarity_weight must be at least 0, finite and not both 0, "
                f"not {staleness_weight} and {similarity_weight}"
            )
        if not 0 < half_staleness < math.inf:
            raise ConfigError(
                f"half_staleness: must be greater than 0 and finite, not {half_staleness}"
            )
        self._staleness_weight = staleness_weight
        self._half_staleness = half_staleness
        self._similarity_weight = similarity_weight
        self._movement: torch.Tensor | None = None  # none: there was no version before

    @property
    def alike(self) -> Mapping[str, float]:
        """It is the bound of PORT's pace that halves freshness."""
        return {"staleness_bound (half_staleness)": self._half_staleness}

    def combine(
        self, weights: Weights, updates: Sequence[Update], view: View, rng: np.random.Generator
    ) -> Combination:
        """The mean; how it moved the model is remembered."""
        made = moved(weights, updates, self.coefficients(updates, view), "base")
        self._movement = made.weights.parameters - weights.parameters
        return made

    def coefficients(self, updates: Sequence[Update], view: View) -> Floats:
        """c_i of every update."""
        samples = np.array([u.report.num_examples for u in updates], np.float64)
        staleness = np.array([u.staleness(view.version) for u in updates], np.float64)
        fresh = self._half_staleness / (staleness + self._half_staleness)
        alike = (self._cosines(updates) + 1.0) / 2.0
        raw = samples * (self._staleness_weight * fresh + self._similarity_weight * alike)
        raw = raw if raw.any() else samples
        return np.asarray(raw / raw.sum(), np.float64)

    def _cosines(self, updates: Sequence[Update]) -> Floats:
        """Between each update and the last movement, in one look at the device."""
        if self._movement is None:
            return np.zeros(len(updates))
        steps = (u.weights.parameters - u.base.parameters for u in updates)
        cosines = torch.stack([_cosine(step, self._movement) for step in steps])
        return np.array(cosines.tolist())

    def state(self) -> State:
        """The last movement."""
        return State({}, {} if self._movement is None else {"movement": self._movement})

    def restore(self, state: State) -> None:
        """Take it up."""
        self._movement = state.arrays.get("movement")


def _cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of the angle between two vectors; 0 where one has no direction, or is too long to tell."""
    cosine = a.dot(b) / (a.norm() * b.norm())
    return torch.where(cosine.isfinite(), cosine.clamp(-1.0, 1.0), torch.zeros_like(cosine))
