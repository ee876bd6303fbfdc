"""The parts of a simulated run as objects, checked before anything starts."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import nn

from pisces import config as cfg
from pisces.clients.checks import Limits, most_buffered
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError
from pisces.evaluate import Metric, Schedule
from pisces.execute import availability, latency
from pisces.execute.failures import Failures
from pisces.explain import known
from pisces.machine import device_of, in_words, num_cores
from pisces.models.flat import flatten
from pisces.objective import Goal, goal_of
from pisces.policy import Policies
from pisces.sense import check_sense, check_surroundings
from pisces.stop import Stop
from pisces.train.base import Loss, Precision, Recipe, Trainer
from pisces.train.hostile import Lies, Lying
from pisces.train.processes import can_fork
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan

SHORTEST_TICK_S = 1e-3  # less is a mistake that would take for ever


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """The parts of a simulated run."""

    policies: Policies
    model: nn.Module
    data: FederatedData
    latency: latency.Latency
    stop: Stop
    seed: int = 1
    plans: Callable[[int], Plan] = field(default=lambda _version: Plan())
    recipe: Recipe = field(default_factory=Recipe)
    loss: Loss | None = None  # None: what the data's objective means
    metrics: Mapping[str, Metric] | None = None
    availability: availability.Availability = field(default_factory=availability.Always)
    failures: Failures = field(default_factory=Failures)
    lies: Lies | None = None  # of hostile clients; None: everybody is honest
    schedule: Schedule = field(default_factory=lambda: Schedule(every_versions=1))
    tick_s: float = 0.0
    deadline_s: float | None = None
    credits: int = 5
    staleness_window: int = 5
    limits: Limits = field(default_factory=Limits)
    device: str = "auto"
    threads: int | None = 1  # of torch; None: as they are
    backend: cfg.Backend = "auto"  # batched on a GPU, else a pool
    workers: int | None = None  # processes of a pool; None: one per core
    precision: Precision = "float32"  # of batched training

    def __post_init__(self) -> None:
        self._check_numbers()
        check_sense(self.policies)
        check_surroundings(self.policies, self.data.num_clients, self.deadline_s, self.latency)
        self._check_stop()
        self._check_learning()
        self._check_memory()
        self._check_trainer()

    @property
    def goal(self) -> Goal:
        """The loss to train with, and what is measured."""
        return goal_of(self.data.objective).with_own(self.loss, self.metrics)

    def _check_numbers(self) -> None:
        if self.seed < 0 or self.tick_s < 0 or self.credits < 1 or self.staleness_window < 1:
            raise ConfigError(
                "seed and tick_s must be at least 0, credits and staleness_window at least 1, not "
                f"{self.seed}, {self.tick_s}, {self.credits} and {self.staleness_window}"
            )
        if not (self.tick_s == 0 or SHORTEST_TICK_S <= self.tick_s < math.inf):
            raise ConfigError(
                f"tick_s: must be 0 or at least {SHORTEST_TICK_S} and finite, not {self.tick_s}"
            )
        names = {"loss", "kind", "at", "version", *self.goal.of_loss}
        taken = sorted(names.intersection(self.metrics or ()))
        if taken:
            raise ConfigError(f"a metric of one's own may not be called {taken[0]!r}: rename it")
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ConfigError(f"deadline_s: must be greater than 0, not {self.deadline_s}")
        silent = self.failures.vanish and self.failures.return_after_s is None
        if silent and self.deadline_s is None:
            raise ConfigError(
                "failures.vanish needs clients.deadline_s (or failures.return_after_s): a client "
                "that falls silent would hold its slot for ever"
            )

    def _check_trainer(self) -> None:
        device = device_of(self.device)
        known(self.backend, get_args(cfg.Backend), "train.backend")
        known(self.precision, get_args(Precision), "train.precision")
        for name, number in (("workers", self.workers), ("threads", self.threads)):
            if number is not None and not (type(number) is int and 1 <= number <= cfg.MOST_CORES):
                raise ConfigError(
                    f"train.{name}: must be from 1 to {cfg.MOST_CORES}, not {number!r}"
                )
        if self.backend == "pool" and device.type != "cpu":
            raise ConfigError(
                f"train.backend: a pool trains on the CPU, not on {device}; use batched there, or "
                "device = 'cpu'"
            )
        if self.backend in ("sequential", "batched") and (self.workers or 1) > 1:
            raise ConfigError(
                f"train.workers: only a pool has workers, but the backend is {self.backend}"
            )
        on_gpu = device.type == "cuda" and self._backend(device) == "batched"
        if self.precision != "float32" and not on_gpu:
            raise ConfigError(
                "train.precision: bf16 is for batched training on a GPU; use float32 here"
            )

    def trainer(self, device: torch.device) -> Trainer:
        """The trainer of the backend asked for, or the fastest one there is for the device."""
        honest = self._honest_trainer(device)
        return honest if self.lies is None else Lying(honest, self.lies)

    def _honest_trainer(self, device: torch.device) -> Trainer:
        parts = (self.model, self.data, self.goal.loss, self.recipe)
        match self._backend(device):
            case "batched":
                from pisces.train.batched import BatchedTrainer  # slow to import

                return BatchedTrainer(*parts, device, precision=self.precision)
            case "pool":
                from pisces.train.pool import PoolTrainer

                return PoolTrainer(*parts, workers=self.workers or num_cores())
            case _:
                return SequentialTrainer(*parts, device)

    def trained_by(self) -> str:
        """The backend in words, for people who compare times."""
        device = device_of(self.device)
        backend = self._backend(device)
        num = self.workers or num_cores()
        of = f" of {num} process{'es' if num > 1 else ''}" if backend == "pool" else ""
        return f"{backend}{of} on {in_words(device)}"

    def rounded_by(self) -> str:
        """What decides over a result's last bits: a pool's are those of sequential training."""
        device = device_of(self.device)
        batched = self._backend(device) == "batched"
        return f"{'batched' if batched else 'one by one'} on {device.type}"

    def _backend(self, device: torch.device) -> cfg.Backend:
        if self.backend != "auto":
            return self.backend
        if device.type != "cpu":
            return "batched"
        # Not by spawning: what a script defines may not survive being sent to another process.
        may_fork = can_fork() and not multiprocessing.current_process().daemon
        return "pool" if may_fork and (self.workers or num_cores()) > 1 else "sequential"

    def _check_stop(self) -> None:
        stop, measured = self.stop, self.goal.measured
        if all(limit in (None, math.inf) for limit in (stop.time_s, stop.versions, stop.updates)):
            raise ConfigError("stop: the run would never end: set time_s, versions or updates")
        asked_for = (stop.target, stop.patience, stop.metric) != (None, None, Stop().metric)
        if stop.metric not in measured and asked_for:
            raise ConfigError(
                f"stop.metric: must be one of {', '.join(measured)}, not {stop.metric!r}"
            )

    def _check_learning(self) -> None:
        metric, measured = self.policies.selector.learns_from, self.goal.measured
        if metric is not None and metric not in measured:
            raise ConfigError(
                f"metric: the selector learns from what is evaluated, so it must be one of "
                f"{', '.join(measured)}, not {metric!r}"
            )

    def _check_memory(self) -> None:
        weights = flatten(self.model)
        self.policies.aggregator.require_room(self.data.num_clients, weights)
        most_buffered(self.policies.pacer.num_buffered, weights.layout, self.limits)
