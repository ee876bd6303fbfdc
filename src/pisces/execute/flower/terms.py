"""What `start` is given beside the model and the grid: checked before anything begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pisces.errors import ConfigError
from pisces.execute.flower.api import ConfigRecord
from pisces.execute.flower.results import Evaluate


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """As Flower's own strategies take it."""

    num_rounds: int
    timeout: float
    train_config: ConfigRecord | None
    evaluate_config: ConfigRecord | None
    evaluate_fn: Evaluate | None

    def __post_init__(self) -> None:
        if type(self.num_rounds) is not int or self.num_rounds < 1:
            raise ConfigError(
                f"num_rounds: must be a whole number of at least 1, not {self.num_rounds!r}"
            )
        if not isinstance(self.timeout, int | float) or not 0 < self.timeout < math.inf:
            raise ConfigError(
                f"timeout: must be a number of seconds greater than 0, not {self.timeout!r}: it is "
                "how long one node may take for one task"
            )
        if self.evaluate_fn is not None and not callable(self.evaluate_fn):
            raise ConfigError(f"evaluate_fn: must be a function, not {self.evaluate_fn!r}")


def config_of(name: str, given: ConfigRecord | None) -> dict[str, Any]:
    """The app's own settings, which every message must be able to hold."""
    try:
        return dict(ConfigRecord(dict(given or {})))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: must be a ConfigRecord, not {given!r}: {error}") from error
