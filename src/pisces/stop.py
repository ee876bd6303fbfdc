"""When is a run over?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pisces.errors import ConfigError
from pisces.types import Evaluated

REASONS = ("target", "time", "versions", "updates", "patience")


def lower_is_better(metric: str) -> bool:
    """Is less more? For `loss`, `perplexity` and names ending in them, as in `train_loss`."""
    return metric.rpartition("_")[2] in ("loss", "perplexity")


def gain(value: float, metric: str) -> float:
    """The value as one of which more is better."""
    return -value if lower_is_better(metric) else value


def best(values: Iterable[float], metric: str) -> float | None:
    """The best of them; None of none. A value that is not a number must not be among them."""
    return (min if lower_is_better(metric) else max)(values, default=None)


def worst(metric: str) -> float:
    """What no value is worse than."""
    return -gain(math.inf, metric)


def meets(value: float, target: float, metric: str) -> bool:
    """Is the value at least as good? What is not a number is not."""
    return gain(value, metric) >= gain(target, metric)


@dataclass(frozen=True, slots=True)
class Stop:
    """Limits of a run; whichever comes first ends it.

    `time_s` counts the executor's seconds, `versions` aggregations, `updates` accepted arrivals.
    `target` is a value of `metric` to reach; `patience` is how many evaluated versions in a row may
    pass without a new best.
    """

    time_s: float | None = None
    versions: int | None = None
    updates: int | None = None
    target: float | None = None
    patience: int | None = None
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        for name in ("time_s", "versions", "updates", "patience"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ConfigError(f"stop.{name}: must be greater than 0, not {limit}")

    def reason(
        self, now: float, version: int, num_updates: int, history: Sequence[Evaluated]
    ) -> str | None:
        """Why to stop now, if at all."""
        if self._reached(history):
            return "target"
        if self.time_s is not None and now >= self.time_s:
            return "time"
        if self.versions is not None and version >= self.versions:
            return "versions"
        if self.updates is not None and num_updates >= self.updates:
            return "updates"
        return "patience" if self._out_of_patience(history) else None

    def _reached(self, history: Sequence[Evaluated]) -> bool:
        if self.target is None or not history or self.metric not in history[-1].metrics:
            return False
        return meets(history[-1].metrics[self.metric], self.target, self.metric)

    def _out_of_patience(self, history: Sequence[Evaluated]) -> bool:
        if self.patience is None or len(history) <= self.patience:
            return False
        # Looking at one version twice is not a second chance: a slow round would lose its patience.
        by_version = {e.version: self._gain(e) for e in history if self.metric in e.metrics}
        gains = list(by_version.values())
        if not gains:
            return False
        best_at = max(range(len(gains)), key=gains.__getitem__)
        return len(gains) - 1 - best_at >= self.patience

    def _gain(self, evaluated: Evaluated) -> float:
        value = evaluated.metrics[self.metric]
        return -math.inf if math.isnan(value) else gain(value, self.metric)
