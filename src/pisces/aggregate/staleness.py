"""What staleness costs: by which factor f(s) an update counts less that is s versions behind.

    constant      1
    polynomial    (1 + s)^-penalty
    hinge         1 up to hinge_start, beyond it 1 / (hinge_slope (s - hinge_start) + 1)

Xie, Koyejo and Gupta, "Asynchronous Federated Optimization" (FedAsync), OPT 2020, section 5. The
constants are those of its experiments as we remember them: set your own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from pisces.aggregate.mean import Floats
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.types import Update
from pisces.words import Forms


@dataclass(frozen=True, slots=True)
class Discount:
    """One of the module's functions; the settings of the others do nothing."""

    form: Forms = "polynomial"
    penalty: float = 0.5
    hinge_slope: float = 10.0
    hinge_start: float = 4.0

    def __post_init__(self) -> None:
        if self.form not in get_args(Forms):
            raise ConfigError(f"staleness: must be one of {get_args(Forms)}, not {self.form!r}")
        for name in ("penalty", "hinge_slope", "hinge_start"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name}: must be at least 0 and finite, not {value}")

    def of(self, updates: Sequence[Update], view: View) -> Floats:
        """The factor of every update."""
        staleness = np.array([u.staleness(view.version) for u in updates], np.float64)
        if self.form == "constant":
            return np.ones(len(updates))
        if self.form == "hinge":
            beyond = np.maximum(staleness - self.hinge_start, 0.0)
            return np.asarray(1.0 / (self.hinge_slope * beyond + 1.0), np.float64)
        return np.asarray((1.0 + staleness) ** -self.penalty, np.float64)


INVERSE_ROOT = Discount("polynomial", penalty=0.5)
