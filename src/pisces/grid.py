"""A run over a Flower grid, from a strategy and what `start` was given to Flower's `Result`."""

from __future__ import annotations

import copy
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pisces import build
from pisces.clients.checks import Limits
from pisces.errors import ConfigError, Terminated
from pisces.evaluate import Schedule
from pisces.execute.base import Executor
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.courier import Letters
from pisces.execute.flower.evaluation import evaluated
from pisces.execute.flower.replies import Metrics
from pisces.execute.flower.results import Collected, Hook, combined, result_of
from pisces.federation import Federation, Yardstick
from pisces.flower import Strategy
from pisces.record.checkpoint import Checkpoints
from pisces.running import Ran, run
from pisces.seeds import generator
from pisces.server import MOST_CLIENTS, TAKEN
from pisces.types import Weights

if TYPE_CHECKING:
    from pisces.execute.flower.api import ArrayRecord, ConfigRecord, Grid, MetricRecord, Result
    from pisces.flower import Evaluate

log = logging.getLogger("pisces")

BY_WHOM = "nodes of a Flower federation"


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What `start` is given beside the model, as Flower's own takes it."""

    num_rounds: int
    timeout: float
    train_config: ConfigRecord | None
    evaluate_config: ConfigRecord | None
    evaluate_fn: Evaluate | None

    def __post_init__(self) -> None:
        if self.num_rounds < 1:
            raise ConfigError(f"num_rounds: must be at least 1, not {self.num_rounds}")
        if not self.timeout > 0:
            raise ConfigError(f"timeout: must be greater than 0, not {self.timeout}")


def start(strategy: Strategy, grid: Grid, initial: ArrayRecord, terms: Terms) -> Result:
    """Run it to its end; see `Strategy.start`."""
    with _spoken(), _told_to_flower():
        arrays, weights = Arrays.of(initial, strategy.buffers)
        hook = None if terms.evaluate_fn is None else Hook(terms.evaluate_fn, arrays, initial)
        bed = _Bed(strategy, grid, arrays, terms)
        ran = bed.run(_federation(strategy, weights, terms, hook))
        last = arrays.record(ran.weights)
        at_last = bed.evaluated(last, ran.summary["versions"])
        return result_of(last, bed.collected, hook, at_last)


def _federation(
    strategy: Strategy, weights: Weights, terms: Terms, hook: Hook | None
) -> Federation:
    its = strategy
    return Federation(
        policies=copy.deepcopy(build.named_policies(its.protocol, its.concurrency, its.settings)),
        weights=weights,
        stop=replace(its.stop, versions=terms.num_rounds),
        yardstick=None if hook is None else Yardstick(_checked(hook.names), lambda: hook),
        seed=its.seed,
        plans=lambda _version: its.plan,
        schedule=its.schedule or Schedule(every_versions=1),
        deadline_s=terms.timeout,
        limits=its.limits or Limits(max_clients=MOST_CLIENTS),
    )


def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    for taken in TAKEN:
        if taken in names:
            raise ConfigError(f"evaluate_fn: a metric may not be called {taken!r}: rename it")
    return names


class _Bed:
    """Where a run grows: a grid, and what is said over it."""

    def __init__(self, strategy: Strategy, grid: Grid, arrays: Arrays, terms: Terms) -> None:
        self._its, self._grid, self._arrays, self._terms = strategy, grid, arrays, terms
        self._letters = Letters(
            strategy.arrayrecord_key, strategy.configrecord_key, dict(terms.train_config or {})
        )
        self.collected = Collected(strategy.weighted_by_key, strategy.train_metrics_aggr_fn)

    def run(self, federation: Federation) -> Ran:
        """To its end; in a folder that is there already it goes on."""
        its = self._its
        log.info("begins when %d nodes are there", its.min_available_nodes)
        return run(
            federation,
            partial(self._opens, federation.limits),
            protocol=its.protocol if isinstance(its.protocol, str) else "my policies",
            by_whom=BY_WHOM,
            made={
                "concurrency": its.concurrency,
                "settings": repr(dict(its.settings)),
                "train_config": repr(self._letters.settings),
                "executor": "FlowerExecutor",
            },
            out=its.out,
            listener=self.collected,
            checkpoints=None if its.out is None else its.checkpoints or Checkpoints(),
            resume=its.out is not None,
        )

    def _opens(self, limits: Limits, folder: Path | None) -> Executor:
        return build.flower(
            self._grid,
            self._arrays,
            folder,
            limits=limits,
            at_least=self._its.min_available_nodes,
            letters=self._letters,
            metrics=Metrics(self._its.weighted_by_key, self._its.loss),
            heard=self.collected.hear,
        )

    def evaluated(self, last: ArrayRecord, version: int) -> dict[int, MetricRecord]:
        """What nodes say of the last version, if they are to be asked."""
        its = self._its
        if not its.fraction_evaluate:
            return {}
        told = evaluated(
            self._grid,
            last,
            version,
            share=its.fraction_evaluate,
            letters=replace(self._letters, settings=dict(self._terms.evaluate_config or {})),
            weighted_by=its.weighted_by_key,
            timeout_s=self._terms.timeout,
            rng=generator(its.seed, "evaluate"),
        )
        combine = its.evaluate_metrics_aggr_fn
        return {version: combined(told, its.weighted_by_key, combine)} if told else {}


@contextmanager
def _spoken() -> Iterator[None]:
    """In a ServerApp nobody has said where our log goes: to standard error, as Flower's does."""
    if log.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), log.level
    handler.setFormatter(logging.Formatter("%(levelname)s pisces: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def _told_to_flower() -> Iterator[None]:
    """What ended the run is for Flower to end the process by, now that the run is safe."""
    try:
        yield
    except KeyboardInterrupt as error:
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler):
            signal.raise_signal(number)
        raise
