"""Serving a run over the network: where, to whom, and what is told to clients and to watchers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from pisces import build, tracking
from pisces import config as cfg
from pisces.clients.checks import Limits
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError
from pisces.execute.base import Executor
from pisces.execute.emulated import Emulated
from pisces.execute.latency import Latency
from pisces.execute.network.address import parsed
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.server.metrics import Metrics, served
from pisces.execute.network.server.stats import Stats
from pisces.execute.network.server.terms import Terms
from pisces.execute.network.trust.core_log import heard
from pisces.models.flat import layout_of, state_dict_of
from pisces.parts import Simulation
from pisces.record.checkpoint import Checkpoints
from pisces.record.lines import Line, Recorder, Tee
from pisces.resuming import Job, made_of
from pisces.running import Ran, run
from pisces.tables import Network
from pisces.types import Layout

log = logging.getLogger("pisces")

CERTS = "certs"
BY_WHOM = "clients over the network"
MADE = {"executor": "NetworkExecutor"}
FOR_CLIENTS = ("optimizer", "momentum", "weight_decay", "clip_norm")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is, and who may come in: those with certificates, or anybody on the machine.

    `metrics` is a port, or HOST:PORT; `hears_core` that file descriptor 2 is listened to for whom
    gRPC's core keeps out, which is for processes that do nothing else.
    """

    listen: str
    certs: str | Path | None = None  # none: ./certs
    insecure: bool = False
    metrics: str | None = None
    hears_core: bool = False

    def __post_init__(self) -> None:
        host, _ = parsed(self.listen) or ("", 0)
        if not host:
            raise ConfigError(
                f"--listen: must be HOST:PORT, such as 0.0.0.0:8440, not {self.listen!r}"
            )
        if self.insecure and self.certs is not None:
            raise ConfigError(
                f"certificates ({self.certs}) and insecure exclude each other: leave out one"
            )


@dataclass(slots=True, eq=False)
class Host:
    """A server to be, and once `opens` was called, its executor."""

    place: Place
    layout: Layout
    limits: Limits = field(default_factory=Limits)
    terms: Terms = field(default_factory=Terms)
    settings: str = ""  # JSON, told to clients
    latency: Latency | None = None  # to emulate
    metrics_at: str | None = None  # where they are served, once they are
    _executor: NetworkExecutor | None = None

    def opens(self, folder: Path | None) -> Executor:
        """Listen; names and numbers of clients are kept in the run's folder."""
        self._executor = build.network(
            self.place.listen,
            self.layout,
            folder,
            certs=None if self.place.insecure else self.place.certs or CERTS,
            terms=self.terms,
            limits=self.limits,
            settings=self.settings,
        )
        return self._executor if self.latency is None else Emulated(self._executor, self.latency)

    @property
    def address(self) -> str:
        """Where it listens, with the port it was given if it asked for any."""
        return self.place.listen if self._executor is None else self._executor.address

    @property
    def stats(self) -> Stats:
        """Of its connections."""
        return Stats() if self._executor is None else self._executor.stats

    def refuse(self, reason: str) -> None:
        """Count somebody whom gRPC's core kept out."""
        if self._executor is not None:
            self._executor.refuse(reason)

    @contextmanager
    def watched(self) -> Iterator[Metrics]:
        """Tell watchers of it, meanwhile, if asked for."""
        metrics = Metrics()
        metrics.stats = lambda: self.stats
        with ExitStack() as stack:
            if self.place.hears_core:
                stack.enter_context(heard(self.refuse))
            if self.place.metrics is not None:
                self.metrics_at = stack.enter_context(served(metrics, self.place.metrics))
                log.info("metrics at %s", self.metrics_at)
            yield metrics


# --- from a config --------------------------------------------------------------------------------


def serve(
    job: Job,
    place: Place,
    *,
    emulate: bool = False,
    listener: Recorder | None = None,
    recall: Callable[[Line], None] = lambda _line: None,
    ready: Callable[[Host], None] = lambda _host: None,
) -> Ran:
    """Serve the run of a config; the data is only tested on here, but for latencies to emulate."""
    config = job.config
    _warn_of_what_is_simulated(config)
    torch.set_num_threads(config.train.threads)
    simulation = build.simulation(config, is_timed=emulate)
    host = _host(config, place, simulation, emulate=emulate)
    federation = replace(simulation.federation(), limits=host.limits)
    with host.watched() as metrics:
        return run(
            federation,
            host.opens,
            protocol=job.name,
            by_whom=BY_WHOM,
            made={**made_of(config), **MADE, "emulated": emulate},
            out=job.folder,
            about=cfg.to_toml(config),
            tensors=lambda weights: state_dict_of(weights, simulation.model),
            listener=Tee(metrics, *([] if listener is None else [listener])),
            checkpoints=Checkpoints(**config.checkpoint.model_dump()),
            trackers=tracking.of(config.record, job.folder),
            resume=job.is_begun,
            recall=_each(metrics.add, recall),
            ready=lambda: ready(host),
            share=config.record.share,
        )


def _each(*listeners: Callable[[Line], None]) -> Callable[[Line], None]:
    def tell(line: Line) -> None:
        for listener in listeners:
            listener(line)

    return tell


def _host(config: cfg.Config, place: Place, simulation: Simulation, *, emulate: bool) -> Host:
    return Host(
        place,
        layout_of(simulation.model),
        replace(simulation.limits, max_clients=config.clients.count),
        terms_of(config.network),
        settings_of(config, simulation.data),
        simulation.latency if emulate else None,
    )


def _warn_of_what_is_simulated(config: cfg.Config) -> None:
    for name in ("availability", "failures", "hostile"):
        if getattr(config, name) != cfg.Config.model_fields[name].default:
            log.warning("[%s] is about simulated clients: real ones do what they do", name)


def terms_of(network: Network) -> Terms:
    """What a config asks of clients."""
    told: dict[str, Any] = network.model_dump()
    return Terms(zstd=told.pop("compress"), **told)


def settings_of(config: cfg.Config, data: FederatedData) -> str:
    """What clients need to know, besides a task's plan, to make the model and train it."""
    train = config.train.model_dump(include=set(FOR_CLIENTS))
    told: Mapping[str, Any] = {
        "model": config.model.model_dump(exclude={"weights"}),
        "train": {key: train[key] for key in FOR_CLIENTS},
        "input_shape": list(data.inputs.shape[1:]),
        "num_classes": data.num_classes,
        "objective": data.objective,
    }
    return json.dumps(told)
