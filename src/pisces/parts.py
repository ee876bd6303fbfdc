"""The parts of a simulated run as objects, checked before anything starts."""

from __future__ import annotations

import copy
import math
import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import nn

from pisces import tables
from pisces.clients.checks import Limits
from pisces.cluster.base import Share
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError
from pisces.evaluate import Measure, Metric, Schedule
from pisces.execute import availability, latency
from pisces.execute.failures import Failures
from pisces.explain import known
from pisces.federation import Federation, Yardstick
from pisces.machine import device_of, in_words, num_cores
from pisces.models.flat import flatten
from pisces.objective import Goal, goal_of
from pisces.policy import Policies
from pisces.sense import check_latency
from pisces.stop import Stop
from pisces.train.base import Loss, Precision, Recipe, Trainer
from pisces.train.hostile import Lies, Lying
from pisces.train.processes import can_fork
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Weights


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
    decisions: bool = True  # write down why clients are picked and versions made
    device: str = "auto"
    threads: int | None = 1  # of torch; None: as they are
    backend: tables.Backend = "auto"  # batched on a GPU, else a pool
    workers: int | None = None  # of a pool or a cluster; None: one per core
    precision: Precision = "float32"  # of batched training
    ray: tables.Ray = tables.Ray()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        self._check_metrics()
        self._federation(flatten(self.model))  # for its checks
        self._check_silence()
        check_latency(self.policies, self.latency)
        self._check_trainer()

    def federation(self) -> Federation:
        """What of it is the server's; moves the model to its device."""
        return self._federation(flatten(self.model.to(device_of(self.device))))

    def _federation(self, weights: Weights) -> Federation:
        return Federation(
            policies=self.policies,
            weights=weights,
            stop=self.stop,
            yardstick=Yardstick(tuple(self.goal.measured), self._measure),
            num_clients=self.data.num_clients,
            seed=self.seed,
            plans=self.plans,
            schedule=self.schedule,
            tick_s=self.tick_s,
            deadline_s=self.deadline_s,
            credits=self.credits,
            staleness_window=self.staleness_window,
            limits=self.limits,
            decisions=self.decisions,
        )

    def _measure(self) -> Measure:
        """On a model of its own, so that testing never disturbs training."""
        device, data = device_of(self.device), self.data
        inputs, targets = data.test_inputs.to(device), data.test_targets.to(device)
        test_set = self.goal.test_set(copy.deepcopy(self.model), inputs, targets)
        return lambda _version, weights: test_set(weights)

    @property
    def goal(self) -> Goal:
        """The loss to train with, and what is measured."""
        return goal_of(self.data.objective).with_own(self.loss, self.metrics)

    def _check_metrics(self) -> None:
        names = {"loss", "kind", "at", "version", *self.goal.of_loss}
        taken = sorted(names.intersection(self.metrics or ()))
        if taken:
            raise ConfigError(f"a metric of one's own may not be called {taken[0]!r}: rename it")

    def _check_silence(self) -> None:
        silent = self.failures.vanish and self.failures.return_after_s is None
        if silent and self.deadline_s is None:
            raise ConfigError(
                "failures.vanish needs clients.deadline_s (or failures.return_after_s): a client "
                "that falls silent would hold its slot for ever"
            )

    def _check_trainer(self) -> None:
        device = device_of(self.device)
        known(self.backend, get_args(tables.Backend), "train.backend")
        known(self.precision, get_args(Precision), "train.precision")
        for name, number in (("workers", self.workers), ("threads", self.threads)):
            if number is not None and not (
                type(number) is int and 1 <= number <= tables.MOST_CORES
            ):
                raise ConfigError(
                    f"train.{name}: must be from 1 to {tables.MOST_CORES}, not {number!r}"
                )
        if self.backend == "pool" and device.type != "cpu":
            raise ConfigError(
                f"train.backend: a pool trains on the CPU, not on {device}; use batched there, or "
                "device = 'cpu'"
            )
        if self.backend in ("sequential", "batched") and (self.workers or 1) > 1:
            raise ConfigError(
                "train.workers: only a pool or a cluster has workers, but the backend is "
                f"{self.backend}"
            )
        self._share()  # for its checks
        on_gpu = self._rounding() == ("batched", "cuda")
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
            case "ray":
                return self._on_a_cluster(*parts)
            case _:
                return SequentialTrainer(*parts, device)

    def _on_a_cluster(
        self, model: nn.Module, data: FederatedData, loss: Loss, recipe: Recipe
    ) -> Trainer:
        from pisces.cluster.ray import RayCluster  # it needs a package of its own
        from pisces.train.hands import Craft
        from pisces.train.ray import RayTrainer

        its = self.ray
        craft = Craft(its.batched, its.device, self.precision)
        share = self._share()
        num_cpus = None if self.workers is None else math.ceil(self.workers * share.cpus)
        cluster = RayCluster(its.address, num_cpus=num_cpus)
        try:
            parts = (cluster, model, data, loss, recipe)
            return RayTrainer(*parts, craft=craft, share=share, workers=self.workers)
        except BaseException:
            cluster.close()
            raise

    def _share(self) -> Share:
        return Share(self.ray.cpus_per_worker, self.ray.gpus_per_worker)

    def trained_by(self) -> str:
        """The backend in words, for people who compare times."""
        device = device_of(self.device)
        backend = self._backend(device)
        if backend == "ray":
            return f"ray ({' on '.join(self._rounding())})"
        num = self.workers or num_cores()
        of = f" of {num} process{'es' if num > 1 else ''}" if backend == "pool" else ""
        return f"{backend}{of} on {in_words(device)}"

    def rounded_by(self) -> str:
        """What decides over a result's last bits: a pool's are those of sequential training."""
        return " on ".join(self._rounding())

    def _rounding(self) -> tuple[str, str]:
        device = device_of(self.device)
        backend = self._backend(device)
        if backend == "ray":
            batched, where = self.ray.batched, self.ray.device
        else:
            batched, where = backend == "batched", device.type
        return "batched" if batched else "one by one", where

    def _backend(self, device: torch.device) -> tables.Backend:
        if self.backend != "auto":
            return self.backend
        if device.type != "cpu":
            return "batched"
        # Not by spawning: what a script defines may not survive being sent to another process.
        may_fork = can_fork() and not multiprocessing.current_process().daemon
        return "pool" if may_fork and (self.workers or num_cores()) > 1 else "sequential"
