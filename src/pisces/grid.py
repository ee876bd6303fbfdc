"""A run over a Flower grid, from a strategy and what `start` was given to Flower's `Result`."""

from __future__ import annotations

import copy
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from pisces import build, tracking
from pisces.clients.checks import Limits
from pisces.errors import ConfigError, FinishedError, RunError, Terminated
from pisces.evaluate import Schedule
from pisces.execute.base import Executor
from pisces.execute.flower.api import ArrayRecord, Grid, MetricRecord, Result
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.evaluation import evaluated
from pisces.execute.flower.letters import Letters
from pisces.execute.flower.replies import Metrics
from pisces.execute.flower.results import Collected, Doubts, Hook, combined, result_of
from pisces.execute.flower.sizes import Sizes
from pisces.execute.flower.terms import Terms, config_of
from pisces.federation import MOST_CLIENTS, Federation, Yardstick
from pisces.flower import Options
from pisces.record.checkpoint import Checkpoints
from pisces.record.lines import Line, Tee
from pisces.record.writer import EVENTS, replace_file
from pisces.running import Ran, made_here, run
from pisces.seeds import generator
from pisces.stop import Stop
from pisces.types import Weights

log = logging.getLogger("pisces")

BY_WHOM = "nodes of a Flower federation"
INITIAL = "initial.safetensors"  # what a run began with


def start(strategy: Options, grid: Grid, initial: ArrayRecord, terms: Terms) -> Result:
    """Run it to its end; see `Strategy.start`."""
    with _spoken(), _told_to_flower():
        _check_kinds(strategy)
        arrays, weights = Arrays.of(initial, strategy.buffers)
        weights = _begun_with(strategy.out, weights)
        fn = terms.evaluate_fn
        hook = None if fn is None else Hook(fn, arrays, arrays.record(weights))
        bed = _Bed(strategy, grid, arrays, terms, hook)
        ran = bed.run(_federation(strategy, weights, terms, hook))
        last = arrays.record(ran.weights)
        at_last = bed.evaluated(last, ran.summary["versions"])
        return result_of(last, bed.collected, hook, at_last)


def _check_kinds(strategy: Options) -> None:
    """Of what a strategy cannot know without torch."""
    kinds = {"schedule": Schedule, "checkpoints": Checkpoints, "limits": Limits}
    for name, kind in kinds.items():
        given = getattr(strategy, name)
        if not isinstance(given, kind | None):
            raise ConfigError(f"{name}: must be a pisces.{kind.__name__}, not {given!r}")


def _begun_with(out: str | Path | None, weights: Weights) -> Weights:
    """An app may draw other weights whenever it is started: a run that goes on has its own."""
    path = None if out is None else Path(out) / INITIAL
    if path is None or not path.exists():
        return weights
    try:
        kept = safetensors.torch.load_file(path)["flat"]
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise RunError(
            f"{path} cannot be read: {error}; restore it, or take another out"
        ) from error
    is_like = (kept.shape, kept.dtype) == (weights.flat.shape, weights.flat.dtype)
    return Weights(kept, weights.layout) if is_like else weights  # what it is will be found out


def _save(weights: Weights, path: Path) -> None:
    """Whole or not at all."""
    replace_file(path, safetensors.torch.save({"flat": weights.flat}))


def _federation(strategy: Options, weights: Weights, terms: Terms, hook: Hook | None) -> Federation:
    its = strategy
    _check_stop(its.stop, hook)
    return Federation(
        policies=copy.deepcopy(build.named_policies(its.protocol, its.concurrency, its.settings)),
        weights=weights,
        stop=replace(_named(its.stop, hook), versions=terms.num_rounds),
        yardstick=None if hook is None else Yardstick(hook.names, lambda: hook),
        seed=its.seed,
        plans=lambda _version: its.plan,
        schedule=its.schedule or Schedule(every_versions=1),
        deadline_s=terms.timeout,
        limits=its.limits or Limits(max_clients=MOST_CLIENTS),
    )


def _check_stop(stop: Stop, hook: Hook | None) -> None:
    """In the words of this room: whom to ask is said elsewhere by other names."""
    if stop.target is None and stop.patience is None and stop.metric == Stop().metric:
        return
    if hook is None:
        raise ConfigError(
            f"stop: target and patience are about {stop.metric!r} as evaluate_fn tells it, and "
            "there is none: give it to start, or leave them out"
        )
    if stop.metric not in hook.names:
        raise ConfigError(
            f"stop.metric: must be one of what evaluate_fn tells of version 0 "
            f"({', '.join(hook.names) or 'nothing'}), not {stop.metric!r}"
        )


def _named(stop: Stop, hook: Hook | None) -> Stop:
    """Where nobody said by which metric a run is judged, the first that there is."""
    if hook is None or not hook.names or stop.metric in hook.names:
        return stop
    return replace(stop, metric=hook.names[0])


class _Bed:
    """Where a run grows: a grid, and what is said over it."""

    def __init__(
        self, strategy: Options, grid: Grid, arrays: Arrays, terms: Terms, hook: Hook | None
    ) -> None:
        self._its, self._grid, self._arrays, self._terms = strategy, grid, arrays, terms
        keys = strategy.arrayrecord_key, strategy.configrecord_key
        self._letters = Letters(*keys, config_of("train_config", terms.train_config))
        self._last_letters = Letters(*keys, config_of("evaluate_config", terms.evaluate_config))
        self._hook = hook
        self._sizes = Sizes()
        self._doubts = Doubts()
        self.collected = Collected(strategy.weighted_by_key, strategy.train_metrics_aggr_fn)

    def run(self, federation: Federation) -> Ran:
        """To its end; in a folder that is there already it goes on."""
        its = self._its
        self._sizes = Sizes(federation.limits.max_examples)
        name = its.protocol if isinstance(its.protocol, str) else "my policies"
        train_config = dict(sorted(self._letters.settings.items()))
        made = {
            "concurrency": its.concurrency,
            "settings": repr(dict(sorted(its.settings.items()))),
            "train_config": repr(train_config),
        }
        tables = build.tables_of(its.protocol, its.concurrency, its.settings)
        tables["train_config"] = {key: _in_toml(value) for key, value in train_config.items()}
        try:
            return run(
                federation,
                partial(self._opens, federation.limits),
                protocol=name,
                by_whom=BY_WHOM,
                made={**made, "executor": "FlowerExecutor"},
                out=its.out,
                about=made_here(federation, name, "Flower", tables),
                listener=Tee(
                    self.collected,
                    self._doubts,
                    self._sizes,
                    *([] if self._hook is None else [self._hook]),
                ),
                checkpoints=None if its.out is None else its.checkpoints or Checkpoints(),
                resume=its.out is not None,
                recall=self._recall,
                ready=partial(self._begin, federation.weights),
                trackers=tracking.made(its.trackers, out=its.out),
                progress=its.progress,
            )
        except FinishedError as error:
            raise FinishedError(
                f"{error} or num_rounds, or take another out to begin anew"
            ) from None  # else Flower shows both

    def _opens(self, limits: Limits, folder: Path | None) -> Executor:
        return build.flower(
            self._grid,
            self._arrays,
            folder,
            limits=limits,
            at_least=self._its.min_available_nodes,
            letters=self._letters,
            metrics=Metrics(self._its.weighted_by_key, self._its.loss),
            sizes=self._sizes,
            heard=self.collected.hear,
        )

    def _recall(self, line: Line) -> None:
        """What a ServerApp before this one wrote down, when it goes on."""
        self._doubts.recall(line)
        match line:
            case {"kind": "arrived", "client": int(client), "num_examples": int(num)}:
                self._sizes.hear(client, num)
            case {"kind": "evaluated", "version": int(version), **metrics} if self._hook:
                self._hook.recall(version, {n: v for n, v in metrics.items() if n != "at"})

    def _begin(self, weights: Weights) -> None:
        """Nothing is in the way any more."""
        its = self._its
        path = None if its.out is None else Path(its.out)
        if path is not None and (path / EVENTS).stat().st_size:
            log.info("goes on with the run in %s", path)
            return
        if path is not None and not (path / INITIAL).exists():
            _save(weights, path / INITIAL)
        log.info("begins when %d nodes are there", its.min_available_nodes)
        if path is not None:
            log.info("the run is written to %s", path)

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
            letters=self._last_letters,
            weighted_by=its.weighted_by_key,
            timeout_s=self._terms.timeout,
            rng=generator(its.seed, "evaluate"),
        )
        try:
            combine = its.evaluate_metrics_aggr_fn
            said = combined(told, its.weighted_by_key, combine) if told else None
            return {} if said is None else {version: said}
        except Exception:  # the run is over, and its model safe
            log.exception("what nodes say of the last version could not be combined")
            return {}


def _in_toml(value: Any) -> Any:
    """A value of Flower's as TOML has it, which knows no bytes."""
    if isinstance(value, list):
        return [_in_toml(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


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
