"""Simulating from Python: your own model, data, loss, metrics and policies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn
from torch.utils.data import Dataset

from pisces import build, running, tables, tracking
from pisces.clients.checks import Limits
from pisces.data.federated import FederatedData, Pair
from pisces.errors import ConfigError
from pisces.evaluate import Metric, Schedule
from pisces.execute.availability import Always, Availability
from pisces.execute.base import Executor
from pisces.execute.failures import Failures
from pisces.execute.latency import Latency, PerClient, zipf
from pisces.explain import explain
from pisces.journaling import check_can_be_kept
from pisces.keeping import particulars
from pisces.models.flat import load_flat, state_dict_of
from pisces.parts import Simulation
from pisces.policy import Policies
from pisces.record.checkpoint import Checkpoints
from pisces.record.journal import Journaling
from pisces.record.lines import Line, Memory, Recorder
from pisces.record.reader import Run
from pisces.record.summary import curve, metrics_of
from pisces.record.trackers.base import Tracker
from pisces.seeds import generator
from pisces.stop import Stop
from pisces.train.base import Loss, Precision, Recipe
from pisces.types import Plan

EVALUATED = "evaluated"
Seconds = float | Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a run came to: the trained model, its summary, and its record."""

    model: nn.Module
    summary: Mapping[str, Any]
    folder: Path | None
    memory: Memory

    @property
    def lines(self) -> Sequence[Line]:
        """Every line of the record; see `pisces.record.lines`."""
        return self.memory.lines if self.folder is None else list(Run.open(self.folder).events())

    def curve(self, metric: str = "accuracy") -> list[tuple[float, float]]:
        """The (seconds, value) pairs of a metric."""
        told = self.memory.lines if self.folder is None else Run.open(self.folder).events(EVALUATED)
        evaluated = [(e["at"], metrics_of(e)) for e in told if e["kind"] == EVALUATED]
        return curve(evaluated, metric)

    def __repr__(self) -> str:
        """One line: what it was, how it ended, and how good it got."""
        s = self.summary
        metric = s.get("metric")
        best = (s.get("best") or {}).get(metric)
        told = [str(s.get("protocol") or "a run"), str(s.get("reason") or "not over")]
        told.append(f"{s.get('versions', 0)} versions")
        told += [] if best is None else [f"best {metric} {best:.4g}"]
        told += [] if self.folder is None else [str(self.folder)]
        return " ".join(f"<Result: {', '.join(told)}>".split())

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from pisces.report.card import card  # matplotlib is slow to import

        return card(self.summary, self.curve)


def simulate(
    protocol: str | Policies,
    *,
    model: nn.Module,
    clients: Sequence[Pair | Dataset[Pair]] | FederatedData,
    stop: Stop,
    test: Pair | None = None,
    concurrency: int | None = None,
    settings: Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    plan: Plan | Callable[[int], Plan] = Plan(),  # noqa: B008 (frozen)
    recipe: Recipe = Recipe(),  # noqa: B008 (frozen)
    latency: Latency | Seconds | None = None,
    availability: Availability | None = None,
    failures: Failures | None = None,
    evaluate: Schedule | None = None,
    seed: int = 1,
    tick_s: float = 0.0,
    deadline_s: float | None = None,
    limits: Limits | None = None,
    decisions: bool = True,
    device: str = "auto",
    threads: int | None = 1,
    backend: tables.Backend = "auto",
    workers: int | None = None,
    precision: Precision = "float32",
    ray: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    checkpoints: Checkpoints = Checkpoints(),  # noqa: B008 (frozen)
    resume: bool = False,
    trackers: tracking.Trackers = (),
    progress: bool = False,
    share: float = 1.0,
) -> Result:
    """Run one protocol in virtual time over clients with data of your own.

    `protocol` is a name (with `settings`, see `pisces config`) or a triple of your own policies.
    `clients` are one `(inputs, targets)` pair or torch `Dataset` per client. `plan` is the local
    work, or a function from the version a task starts from to it: that is where a learning-rate
    schedule goes.
    `loss` and `metrics` are those of the data's objective (labels: cross-entropy and accuracy; next
    word: perplexity besides) unless you bring your own: functions of all outputs and targets.
    `limits` say beyond what a client's loss or count is absurd and its update refused, and how many
    bytes of updates may wait to be aggregated. Without `decisions` the record does not say why
    clients were picked and versions made.
    At most `concurrency` clients run at once (20, or all if there are fewer).
    `latency` is seconds per client, or a model of them; by default a Zipf spread of 15 to 180 s.
    `backend` says how clients are trained ("sequential", "pool" of `workers` processes, "batched",
    "ray" on the `workers` of a cluster, with `ray` as in the table [train.ray]); by default all at
    once on a GPU, else in one process per core. Pools and sequential workers give the same bits as
    sequential training, batches the same up to rounding.
    Models of latency, availability and failures draw from the seed they were made with. With `out`
    the run is also written to that folder, under `name` if the policies are your own; it is saved
    there as `checkpoints` say, and with `resume` it goes on from where it was saved last (given the
    same everything, but for `stop`), or begins. The run works on copies of `model` and of your
    policies: a second run begins as the first did. `trackers` hear of it besides, by name
    ("tensorboard", "mlflow", "wandb", "csv") or as objects, also of your own.
    With `progress` it is shown while it goes on: on a terminal as by `pisces run`, in a notebook
    below its cell, else by a line now and then. The log in `out` has the lines of a `share` of the
    clients, for runs of very many.
    """
    _check_types(model, plan)
    data = _data(clients, test)
    if concurrency is None:
        concurrency = min(20, data.num_clients)
    if not 1 <= concurrency <= data.num_clients:
        raise ConfigError(
            f"concurrency: must be from 1 to the number of clients, {data.num_clients}, not "
            f"{concurrency}"
        )
    simulation = Simulation(
        policies=copy.deepcopy(build.named_policies(protocol, concurrency, settings or {})),
        model=copy.deepcopy(model),
        data=data,
        latency=_latency(latency, data.num_clients, seed),
        stop=stop,
        seed=seed,
        plans=plan if callable(plan) else lambda _version: plan,
        recipe=recipe,
        loss=loss,
        metrics=metrics,
        availability=availability or Always(),
        failures=failures or Failures(seed=seed),
        schedule=evaluate or Schedule(every_versions=1),
        tick_s=tick_s,
        deadline_s=deadline_s,
        limits=limits or Limits(),
        decisions=decisions,
        device=device,
        threads=threads,
        backend=backend,
        workers=workers,
        precision=precision,
        ray=_cluster(ray, backend),
    )
    settings = dict(settings or {})
    called = protocol if isinstance(protocol, str) else name or "my policies"
    return run(
        simulation,
        protocol=called,
        out=out,
        config_text=running.made_here(
            simulation, called, tables=build.tables_of(protocol, concurrency, settings)
        ),
        checkpoints=None if out is None else checkpoints,
        made={"concurrency": concurrency, "settings": repr(settings)},
        resume=resume,
        trackers=tracking.made(trackers, out=out),
        progress=progress,
        share=share,
    )


def _cluster(given: Mapping[str, Any] | None, backend: tables.Backend) -> tables.Ray:
    if given is None:
        return tables.Ray()
    if backend != "ray" or not isinstance(given, Mapping):
        raise ConfigError(
            f"ray: says how a cluster trains, such as {{'address': 'auto'}} with backend = 'ray', "
            f"not {given!r} with backend = {backend!r}"
        )
    try:
        return tables.Ray.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(explain(error, "ray", list(tables.Ray.model_fields))) from None


def run(
    simulation: Simulation,
    *,
    protocol: str,
    out: str | Path | None = None,
    config_text: str | None = None,
    listener: Recorder | None = None,
    checkpoints: Checkpoints | None = None,
    made: Mapping[str, Any] | None = None,
    resume: bool = False,
    recall: Callable[[Line], None] = lambda _line: None,
    executor: Executor | None = None,
    journaling: Journaling | None = None,
    trackers: Sequence[Tracker] = (),
    progress: bool = False,
    share: float = 1.0,
) -> Result:
    """Run a simulation to its end.

    Ctrl-C ends it early: what there is so far is saved, then `KeyboardInterrupt` is raised. So does
    SIGTERM where there are `checkpoints`, and a terminal that is closed (SIGHUP); they raise
    `Terminated`. With `resume` the run in the folder `out` goes on from its last checkpoint;
    `recall` is told what was recorded before. `made` are the settings a checkpoint must have been
    made with. Another `executor` takes the place of virtual time, and is closed at the end; one in
    real time keeps a journal in the folder, so that a killed run goes on from its last moment, not
    from its last checkpoint.
    """
    if simulation.threads is not None:
        torch.set_num_threads(simulation.threads)
    if executor is not None and out is not None:
        check_can_be_kept(executor)  # before there is a folder
    by = {} if executor is None else {"executor": type(executor).__name__}
    model = simulation.model
    ran = running.run(
        simulation.federation(),
        lambda _folder: executor or build.virtual(simulation),
        protocol=protocol,
        by_whom=by.get("executor") or simulation.trained_by(),
        about=config_text,
        made=particulars(simulation, {**(made or {}), **by}),
        out=out,
        tensors=lambda weights: state_dict_of(weights, model),
        listener=listener,
        checkpoints=checkpoints,
        resume=resume,
        recall=recall,
        journaling=journaling,
        trackers=trackers,
        progress=progress,
        share=share,
    )
    load_flat(model, ran.weights)
    return Result(model.cpu().eval(), ran.summary, ran.folder, ran.memory)


def _check_types(model: object, plan: object) -> None:
    """The mistakes that would otherwise surface as riddles, much later."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: must be an nn.Module (an object, not its class), not {model!r}")
    if not isinstance(plan, Plan) and not callable(plan):
        raise ConfigError(f"plan: must be a pisces.Plan, or a function to one, not {plan!r}")


def _data(
    clients: Sequence[Pair | Dataset[Pair]] | FederatedData, test: Pair | None
) -> FederatedData:
    if isinstance(clients, FederatedData):
        return clients
    if test is None:
        raise ConfigError("test: give (inputs, targets) that no client trains on")
    return FederatedData.from_clients(clients, test)


def _latency(given: Latency | Seconds | None, num_clients: int, seed: int) -> Latency:
    if given is None:
        return PerClient(zipf(num_clients, 1.2, 15.0, 180.0, generator(seed, "latency")), seed=seed)
    if not isinstance(given, (int, float, Sequence, np.ndarray)):
        return given
    seconds = np.asarray(given, np.float64)
    if seconds.ndim > 0 and len(seconds) != num_clients:
        raise ConfigError(
            f"latency: there must be one per client, not {len(seconds)} for {num_clients} clients"
        )
    return PerClient(np.broadcast_to(seconds, (num_clients,)), seed=seed)
