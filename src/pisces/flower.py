"""Asynchronous, guided training for Flower apps: change the import and the constructor.

    from pisces.flower import Pisces

    strategy = Pisces(concurrency=20)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=200, evaluate_fn=evaluate)

ClientApps stay as they are; those that want to tell more of their losses use `Losses`. Flower
starts a process for every task, so importing this is quick: torch comes with `start`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pisces.errors import ConfigError
from pisces.stop import Stop
from pisces.types import Plan

if TYPE_CHECKING:
    from pisces.clients.checks import Limits
    from pisces.evaluate import Schedule
    from pisces.execute.flower.api import (
        ArrayRecord,
        ConfigRecord,
        Grid,
        MetricRecord,
        RecordDict,
        Result,
    )
    from pisces.policy import Policies
    from pisces.record.checkpoint import Checkpoints

    Combine: TypeAlias = Callable[[list[RecordDict], str], MetricRecord]
    Evaluate: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

__all__ = ["FedAsync", "FedAvg", "FedBuff", "Losses", "Oort", "Pisces", "Strategy"]

# Of FedAvg's own options
ELSEWHERE = {
    "fraction_train": "there are no rounds to choose a share for; say by `concurrency` how many "
    "nodes train at once",
    "min_train_nodes": "a run goes on with whoever is there; `min_available_nodes` says how many "
    "it begins with",
    "min_evaluate_nodes": "at least one node evaluates the last version if `fraction_evaluate` "
    "is not 0",
}


@dataclass
class Strategy:
    """Any protocol of Pisces as a strategy of Flower's; `Pisces`, `FedBuff` ... are shorter to say.

    `concurrency` is how many nodes train at once; `settings` are the protocol's own. `stop` may end
    a run before its `num_rounds` versions: by time, updates, a target or patience. `schedule` says
    when `evaluate_fn` is asked (after every version).

    With `out` the run is written to that folder, and a ServerApp started again goes on from there;
    `checkpoints` say how often the whole state is saved. A ServerApp's working directory is not the
    app's: give a whole path.

    `loss` names the metric of a reply that is the mean training loss; without it the usual names
    are tried. `buffers` are arrays that optimisers of the server leave alone; without them those
    that BatchNorm calls running_mean and running_var are. `plan` is for protocols that look at it:
    ClientApps are told its `proximal` ("proximal-mu") and `max_steps` ("max-steps").

    What is named as in Flower's FedAvg means the same. With `fraction_evaluate` the last version is
    evaluated by that share of the nodes; FedAvg does so after every round, for which nobody waits
    here.
    """

    concurrency: int = 20
    _: KW_ONLY
    protocol: str | Policies = "pisces"
    settings: Mapping[str, Any] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    schedule: Schedule | None = None
    plan: Plan = field(default_factory=Plan)
    seed: int = 1
    out: str | Path | None = None
    checkpoints: Checkpoints | None = None
    limits: Limits | None = None
    buffers: Collection[str] | None = None
    loss: str | None = None
    min_available_nodes: int = 2
    fraction_evaluate: float = 0.0
    weighted_by_key: str = "num-examples"
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: Combine | None = None
    evaluate_metrics_aggr_fn: Combine | None = None

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """What FedAvg knows and nobody needs here is refused in words."""
        for name in ELSEWHERE.keys() & options.keys():
            raise ConfigError(f"{name}: {ELSEWHERE[name]}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if not isinstance(self.stop, Stop):
            raise ConfigError(f"stop: must be a pisces.Stop, not {self.stop!r}")
        if self.stop.versions is not None:
            raise ConfigError("stop.versions: is what num_rounds says; leave it out")
        for name in ("concurrency", "min_available_nodes"):
            num = getattr(self, name)
            if type(num) is not int or num < 1:
                raise ConfigError(f"{name}: must be a whole number of at least 1, not {num!r}")
        share = self.fraction_evaluate
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"fraction_evaluate: must be a share from 0 to 1, not {share!r}")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Train until there are `num_rounds` versions, or `stop` says so.

        `timeout` is the time one node has for one task; nobody else waits for it. `evaluate_fn` is
        asked in a thread beside the run, for version 0 before it.
        """
        from pisces.grid import Terms, start

        terms = Terms(num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        return start(self, grid, initial_arrays, terms)


@dataclass
class Pisces(Strategy):
    """Guided selection, adaptive pace, discounted staleness (Jiang et al., SoCC 2022)."""

    protocol: str | Policies = "pisces"


@dataclass
class FedBuff(Strategy):
    """A version whenever K updates are there (Nguyen et al., AISTATS 2022)."""

    protocol: str | Policies = "fedbuff"


@dataclass
class FedAsync(Strategy):
    """A version with every update (Xie et al., OPT 2020)."""

    protocol: str | Policies = "fedasync"


@dataclass
class Oort(Strategy):
    """Rounds of guided clients, chosen also by speed (Lai et al., OSDI 2021)."""

    protocol: str | Policies = "oort"


@dataclass
class FedAvg(Strategy):
    """Rounds of clients drawn at random (McMahan et al., AISTATS 2017)."""

    protocol: str | Policies = "fedavg"


@dataclass
class Losses:
    """The losses of single samples, for a ClientApp to tell of.

        losses = Losses()
        for epoch in range(epochs):
            for inputs, targets in loader:
                each = cross_entropy(net(inputs), targets, reduction="none")
                losses.add(each, epoch)
                each.mean().backward()
        MetricRecord({"num-examples": len(data), **losses.metrics()})

    Told are, of the first epoch, the mean and the root mean square, which is what Pisces' utility
    asks for (Eq. 2 of its paper); and of the last one, if it is another, the mean: what training
    could not bring down, by which Pisces knows clients whose labels are wrong.
    """

    num: int = 0
    _sum: float = 0.0
    _squares: float = 0.0
    _first: int = 0
    _last: int = 0
    _num_left: int = 0
    _sum_left: float = 0.0

    def add(self, each: ArrayLike, epoch: int = 0) -> None:
        """Those of some samples, before the step they are for: numpy's, torch's, a list."""
        if hasattr(each, "detach"):  # torch's, wherever they are and however short
            each = each.detach().cpu().double()
        values = np.asarray(each, np.float64).reshape(-1)
        if not self.num:
            self._first = self._last = epoch
        if epoch == self._first:
            self.num += values.size
            self._sum += float(values.sum())
            self._squares += float(np.square(values).sum())
            return
        if epoch != self._last:
            self._last, self._num_left, self._sum_left = epoch, 0, 0.0
        self._num_left += values.size
        self._sum_left += float(values.sum())

    def metrics(self) -> dict[str, float]:
        """As metrics of a reply, by the names that are looked for."""
        if not self.num:
            return {}
        rms = math.sqrt(self._squares / self.num)
        told = {"train_loss": self._sum / self.num, "loss-rms": rms}
        if self._num_left:
            told["loss-left"] = self._sum_left / self._num_left
        return told
