"""Asynchronous, guided training for Flower apps: change the import and the constructor.

    from pisces.flower import Pisces

    strategy = Pisces(concurrency=20)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=200, evaluate_fn=evaluate)

ClientApps stay as they are; those that want to tell more of their losses use `Losses`. Flower
starts a process for every task, so importing this is quick: torch comes with `start`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

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
    from pisces.record.trackers.base import Tracker

    Combine: TypeAlias = Callable[[list[RecordDict], str], MetricRecord | None]
    Evaluate: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

__all__ = ["FedAsync", "FedAvg", "FedBuff", "Losses", "Oort", "Pisces", "Strategy"]

# Of Flower's own strategies
ELSEWHERE = {
    "fraction_train": "there are no rounds to choose a share for: say by concurrency how many "
    "nodes train at once",
    "min_train_nodes": "a run goes on with whoever is there: min_available_nodes says how many it "
    "begins with",
    "min_evaluate_nodes": "at least one node evaluates the last version if fraction_evaluate is "
    "not 0",
    "proximal_mu": "say plan=Plan(proximal=...), which ClientApps are told as proximal-mu",
    "protocol": "is what the class is called; any other by Strategy(protocol=...)",
}
T = TypeVar("T", bound=type)


def in_words(cls: T) -> T:
    """Let a class refuse options it does not have in words; its signature stays."""
    init = cls.__init__  # type: ignore[misc]  # of this very class
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        for name in options:
            if name not in known:
                hint = _hint(name, known)
                raise ConfigError(f"{name}: no option of {type(self).__name__}{hint}")
        init(self, *args, **options)

    cls.__init__ = checked  # type: ignore[misc]
    return cls


def _hint(name: str, known: Collection[str]) -> str:
    """Where what was probably meant is to be said."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    if close and name not in ELSEWHERE:
        return f"; did you mean {close[0]}?"
    return f": {ELSEWHERE.get(name, 'settings of the protocol go into settings={...}')}"


@in_words
@dataclass
class Options:
    """What every strategy here can be told, and how it is started.

    `concurrency` is how many nodes train at once; `settings` are the protocol's own. `stop` may end
    a run before its `num_rounds` versions: by time, updates, a target or patience. `schedule` says
    when `evaluate_fn` is asked (after every version; the newest, where that takes longer).

    With `out` the run is written to that folder, and a ServerApp started again goes on from there;
    `checkpoints` say how often the whole state is saved. A ServerApp's working directory is not the
    app's: give a whole path. `trackers` are those of `pisces.simulate`.

    `loss` names the metric of a reply that is the mean training loss; without it the usual names
    are tried. `buffers` are arrays that optimisers of the server leave alone; without them those
    that BatchNorm calls running_mean and running_var are. `plan` is for protocols that look at it:
    ClientApps are told its `proximal` ("proximal-mu") and `max_steps` ("max-steps").

    What is named as in Flower's FedAvg means the same. With `fraction_evaluate` the last version is
    evaluated by that share of the nodes; FedAvg does so after every round, for which nobody waits
    here. With `progress` a line now and then tells how far it is.
    """

    protocol: ClassVar[str | Policies]

    concurrency: int = 20
    _: KW_ONLY
    settings: Mapping[str, Any] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    schedule: Schedule | None = None
    plan: Plan = field(default_factory=Plan)
    seed: int = 1
    out: str | Path | None = None
    checkpoints: Checkpoints | None = None
    trackers: Sequence[str | Tracker] = ()
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
    progress: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.stop, Stop):
            raise ConfigError(f"stop: must be a pisces.Stop, not {self.stop!r}")
        if self.stop.versions is not None:
            raise ConfigError("stop.versions: is what num_rounds says; leave it out")
        for name in ("concurrency", "min_available_nodes"):
            num = getattr(self, name)
            if type(num) is not int or num < 1:
                raise ConfigError(f"{name}: must be a whole number of at least 1, not {num!r}")
        if type(self.seed) is not int or self.seed < 0:
            raise ConfigError(f"seed: must be a whole number of at least 0, not {self.seed!r}")
        if not isinstance(self.settings, Mapping):
            raise ConfigError(f"settings: must be a dict by name, not {self.settings!r}")
        if not isinstance(self.plan, Plan):
            raise ConfigError(f"plan: must be a pisces.Plan, not {self.plan!r}")
        if isinstance(self.buffers, str):
            raise ConfigError(f"buffers: must be a list of names, not {self.buffers!r} alone")
        for name in ("weighted_by_key", "arrayrecord_key", "configrecord_key", "loss"):
            key = getattr(self, name)
            if not (isinstance(key, str) and key) and (name, key) != ("loss", None):
                raise ConfigError(f"{name}: must be the name of a record or metric, not {key!r}")
        for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
            combine = getattr(self, name)
            if combine is not None and not callable(combine):
                raise ConfigError(f"{name}: must be a function, not {combine!r}")
        if self.out is not None and not Path(self.out).is_absolute():
            raise ConfigError(
                f"out: must be a whole path, such as /srv/runs/digits, not {str(self.out)!r}: a "
                "ServerApp works in a folder of Flower's"
            )
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
        from pisces.execute.flower.terms import Terms
        from pisces.grid import start

        terms = Terms(num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        return start(self, grid, initial_arrays, terms)


class Pisces(Options):
    """Guided selection, adaptive pace, discounted staleness (Jiang et al., SoCC 2022)."""

    protocol = "pisces"


class FedBuff(Options):
    """A version whenever K updates are there (Nguyen et al., AISTATS 2022)."""

    protocol = "fedbuff"


class FedAsync(Options):
    """A version with every update (Xie et al., OPT 2020)."""

    protocol = "fedasync"


class Oort(Options):
    """Rounds of guided clients, chosen also by speed (Lai et al., OSDI 2021)."""

    protocol = "oort"


class FedAvg(Options):
    """Rounds of clients drawn at random (McMahan et al., AISTATS 2017)."""

    protocol = "fedavg"


@in_words
@dataclass(kw_only=True)
class Strategy(Options):
    """Any protocol, by its name or as policies of one's own."""

    protocol: str | Policies = "pisces"  # type: ignore[misc]  # of each, not of all


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

    def __init__(self) -> None:
        self.num = 0
        self._sum = self._squares = self._sum_left = 0.0
        self._first = self._last = self._num_left = 0

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
