"""The only place that wires objects: settings in, a coordinator ready to run out.

    Config --simulation()--> Simulation --wire()--> Coordinator

A `Simulation` holds the parts as objects, so the Python API can bring its own.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from pydantic import ValidationError, create_model
from torch import nn

from pisces import config as cfg
from pisces import protocols
from pisces.clients.manager import ClientManager
from pisces.coordinator import Coordinator
from pisces.data import corrupt, datasets, partition
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, DataError
from pisces.evaluate import Background, Evaluator, Inline, Metric, Schedule, TestSet, accuracy
from pisces.execute import availability, latency
from pisces.execute.base import Executor
from pisces.execute.failures import Failures
from pisces.execute.virtual import VirtualExecutor
from pisces.models.cnn import small_cnn
from pisces.models.flat import flatten
from pisces.models.lenet5 import lenet5
from pisces.models.mlp import mlp
from pisces.policy import Policies
from pisces.record.lines import Recorder
from pisces.seeds import derive, generator
from pisces.stop import Stop
from pisces.train.base import Loss, Recipe
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan

PROTOCOLS: Mapping[str, Callable[..., Policies]] = {
    "pisces": protocols.pisces,
    "fedbuff": protocols.fedbuff,
    "oort": protocols.oort,
    "fedavg": protocols.fedavg,
    "pisces-without-selection": protocols.pisces_without_selection,
    "pisces-without-staleness": protocols.pisces_without_staleness,
    "pisces-without-adaptive-pace": protocols.pisces_without_adaptive_pace,
    "pisces-without-guard": protocols.pisces_without_guard,
}
DATASETS: Mapping[str, Callable[[cfg.Config], datasets.Dataset]] = {
    "digits": lambda c: datasets.digits(c.seed),
    "mnist": lambda c: datasets.mnist(_data_folder(c)),
    "fashion_mnist": lambda c: datasets.fashion_mnist(_data_folder(c)),
}
MODELS: Mapping[str, Callable[[cfg.Config, Sequence[int], int], nn.Module]] = {
    "mlp": lambda c, shape, classes: mlp(shape, classes, hidden=c.model.hidden),
    "small_cnn": lambda _, shape, classes: small_cnn(shape, classes),
    "lenet5": lambda _, shape, classes: lenet5(shape, classes),
}


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy per sample."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


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
    loss: Loss = cross_entropy
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": accuracy})
    availability: availability.Availability = field(default_factory=availability.Always)
    failures: Failures = field(default_factory=Failures)
    schedule: Schedule = field(default_factory=lambda: Schedule(every_versions=1))
    tick_s: float = 0.0
    deadline_s: float | None = None
    credits: int = 5
    staleness_window: int = 5
    device: str = "auto"

    def __post_init__(self) -> None:
        self._check_pace()
        self._check_stop()
        _device(self.device)

    def _check_pace(self) -> None:
        pacer, num_clients = self.policies.pacer, self.data.num_clients
        if pacer.needs_deadline and self.deadline_s is None:
            raise ConfigError(
                "a strict pace needs clients.deadline_s: one silent client would stop it for ever"
            )
        if pacer.min_clients > num_clients:
            raise ConfigError(
                f"the pace waits for {pacer.min_clients} updates at once, but there are only "
                f"{num_clients} clients; lower buffer_size (or over-select less)"
            )

    def _check_stop(self) -> None:
        stop, measured = self.stop, [*self.metrics, "loss"]
        if all(limit in (None, math.inf) for limit in (stop.time_s, stop.versions, stop.updates)):
            raise ConfigError("stop: the run would never end: set time_s, versions or updates")
        if stop.metric not in measured and (stop.target, stop.patience) != (None, None):
            raise ConfigError(
                f"stop.metric: must be one of {', '.join(measured)}, not {stop.metric!r}"
            )


def wire(simulation: Simulation, recorder: Recorder) -> Coordinator:
    """A coordinator over a virtual executor."""
    s = simulation
    device = _device(s.device)
    trainer = SequentialTrainer(s.model, s.data, s.loss, s.recipe, device)
    weights = flatten(s.model)
    executor = VirtualExecutor(
        trainer,
        s.data.num_examples,
        s.latency,
        layout=weights.layout,
        availability=s.availability,
        failures=s.failures,
    )
    test_set = TestSet(  # on a model of its own, so that testing never disturbs training
        copy.deepcopy(s.model),
        s.data.test_inputs.to(device),
        s.data.test_targets.to(device),
        s.loss,
        s.metrics,
    )
    return Coordinator(
        policies=s.policies,
        executor=executor,
        manager=ClientManager(
            weights.layout,
            judge=s.policies.judge,
            credits=s.credits,
            staleness_window=s.staleness_window,
        ),
        evaluator=_evaluator(executor, test_set),
        recorder=recorder,
        weights=weights,
        plans=s.plans,
        stop=s.stop,
        schedule=s.schedule,
        seed=s.seed,
        tick_s=s.tick_s,
        deadline_s=s.deadline_s,
    )


def _evaluator(executor: Executor, test_set: TestSet) -> Evaluator:
    return Background(test_set) if executor.capabilities.real_time else Inline(test_set)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"train.device: {name!r} cannot be used here: {reason}") from error


# --- from a config --------------------------------------------------------------------------------


def simulation(config: cfg.Config) -> Simulation:
    """Everything a config describes, as objects."""
    policies = policies_of(config)
    base_s = _base_latency(config)
    data = federated_data(config, base_s)
    model = initial_model(config, data)
    train, seed = config.train, config.seed
    return Simulation(
        policies=policies,
        model=model,
        data=data,
        latency=_latency(config, base_s, data, model),
        stop=Stop(**config.stop.model_dump()),
        seed=seed,
        plans=plans_of(train),
        recipe=Recipe(train.optimizer, train.momentum, train.weight_decay, train.clip_norm),
        availability=_availability(config),
        failures=Failures(**config.failures.model_dump(), seed=seed),
        schedule=Schedule(**config.evaluate.model_dump()),
        tick_s=config.tick_s,
        deadline_s=config.clients.deadline_s,
        credits=config.clients.credits,
        staleness_window=config.clients.staleness_window,
        device=train.device,
    )


def policies_of(config: cfg.Config) -> Policies:
    """The config's protocol with its settings."""
    settings = resolved(config).protocols[config.protocol]
    return named_policies(config.protocol, config.clients.concurrency, settings)


def named_policies(
    protocol: str | Policies, concurrency: int, settings: Mapping[str, Any]
) -> Policies:
    """The protocol of that name with these settings; policies of one's own stay as they are."""
    if isinstance(protocol, Policies):
        return protocol
    checked = settings_of(known(protocol, PROTOCOLS, "protocol"), settings)
    return PROTOCOLS[protocol](concurrency, **checked.model_dump())


def settings_of(name: str, given: Mapping[str, Any]) -> cfg.Section:
    """A protocol's settings, checked; their types and defaults come from its signature."""
    protocol = PROTOCOLS[name]
    hints = get_type_hints(protocol, include_extras=True)
    fields: dict[str, Any] = {
        key: (hints[key], parameter.default)
        for key, parameter in inspect.signature(protocol).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    model = create_model(name, __base__=cfg.Section, **fields)
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(cfg.explain(error, f"protocols.{name}", list(fields))) from None


def resolved(config: cfg.Config) -> cfg.Config:
    """The config with the settings of its protocol spelled out; the others' are only checked."""
    name = known(config.protocol, PROTOCOLS, "protocol")
    checked = {
        other: settings_of(known(other, PROTOCOLS, "protocols"), given)
        for other, given in {name: {}, **config.protocols}.items()
    }
    settings = checked[name].model_dump(exclude_none=True)
    return config.model_copy(update={"protocols": {name: settings}})


def plans_of(train: cfg.Train) -> Callable[[int], Plan]:
    """The local work of a task started from a version: the learning rate decays with versions."""

    def plan(version: int) -> Plan:
        rate = train.learning_rate * train.decay ** (version // train.decay_every)
        return Plan(train.epochs, train.batch_size, rate, train.proximal)

    return plan


def federated_data(config: cfg.Config, base_s: NDArray[np.float64] | None = None) -> FederatedData:
    """The dataset, divided among the clients and spoilt where asked."""
    d = config.data
    dataset = DATASETS[known(d.dataset, DATASETS, "data.dataset")](config)
    rows = _rows(config, dataset, base_s if base_s is not None else _base_latency(config))
    targets = dataset.targets
    if d.corrupted:
        rng = generator(config.seed, "corrupt")
        targets, _ = corrupt.flip_labels(targets, rows, d.corrupted, dataset.num_classes, rng)
    return FederatedData(dataset.inputs, targets, rows, dataset.test_inputs, dataset.test_targets)


def _rows(
    config: cfg.Config, dataset: datasets.Dataset, base_s: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], ...]:
    d, num_clients = config.data, config.clients.count
    rng = generator(config.seed, "partition")
    if d.partition == "natural":
        if dataset.natural is None:
            raise ConfigError(f"data.partition: {d.dataset} has no natural clients; use dirichlet")
        return partition.natural(dataset.natural, num_clients, rng)
    sizes = _sizes(config, len(dataset.targets), base_s)
    if d.partition == "iid":
        return partition.iid(len(dataset.targets), sizes, rng, overlap=d.overlap)
    alpha: Any = d.alpha
    if d.sizes == "coupled":
        alpha = partition.coupled_alphas(_needed(base_s), d.alpha_per_s)
    return partition.dirichlet(dataset.targets.numpy(), sizes, alpha, rng, overlap=d.overlap)


def _sizes(
    config: cfg.Config, num_rows: int, base_s: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    d, num_clients = config.data, config.clients.count
    if isinstance(d.sizes, list):
        if len(d.sizes) != num_clients:
            raise ConfigError(f"data.sizes: {len(d.sizes)} sizes for {num_clients} clients")
        return np.array(d.sizes, np.int64)
    if d.sizes == "equal":
        return partition.equal_sizes(num_rows, num_clients, d.size)
    if d.sizes == "coupled":
        return partition.coupled_sizes(_needed(base_s), d.samples_per_s)
    rng = generator(config.seed, "sizes")
    max_total = None if d.overlap else num_rows
    return partition.lognormal_sizes(
        num_clients, d.size_median, d.size_sigma, rng, max_total=max_total
    )


def _needed(base_s: NDArray[np.float64] | None) -> NDArray[np.float64]:
    if base_s is None:
        raise ConfigError(
            "data.sizes: 'coupled' derives sizes from latencies, and latency.kind 'compute' "
            "derives latencies from sizes: change one of them"
        )
    return base_s


def initial_model(config: cfg.Config, data: FederatedData) -> nn.Module:
    """The model with its initial weights: drawn from the seed, or from a file."""
    num_classes = int(max(data.targets.max(), data.test_targets.max())) + 1
    make = MODELS[known(config.model.name, MODELS, "model.name")]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "model"))
        model = make(config, tuple(data.inputs.shape[1:]), num_classes)
    if config.model.weights is not None:
        load_weights(model, config.model.weights)
    return model


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill a model from a safetensors file, or from a run folder's."""
    file = Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)
    try:
        model.load_state_dict(safetensors.torch.load_file(file))
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"model.weights: cannot read {file}: {error}") from error
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()  # the first line only says that it failed
        raise DataError(f"model.weights: {file} does not fit the model: {reason}") from error


def _base_latency(config: cfg.Config) -> NDArray[np.float64] | None:
    """Each client's latency; None where it depends on the data."""
    num, rng = config.clients.count, generator(config.seed, "latency")
    match config.latency:
        case cfg.Zipf(a=a, min_s=min_s, max_s=max_s):
            return latency.zipf(num, a, min_s, max_s, rng)
        case cfg.ConstantLatency(seconds=seconds):
            return latency.constant(num, seconds)
        case cfg.UniformLatency(min_s=min_s, max_s=max_s):
            return latency.uniform(num, min_s, max_s, rng)
        case cfg.LognormalLatency(median_s=median_s, sigma=sigma):
            return latency.lognormal(num, median_s, sigma, rng)
        case cfg.TraceLatency(path=path):
            return latency.from_trace(path, num)
        case cfg.ComputeLatency():
            return None


def _latency(
    config: cfg.Config, base_s: NDArray[np.float64] | None, data: FederatedData, model: nn.Module
) -> latency.Latency:
    c, num = config.latency, config.clients.count
    if not isinstance(c, cfg.ComputeLatency):
        return latency.PerClient(_needed(base_s), c.jitter, config.seed)
    rng = generator(config.seed, "latency")
    return latency.ComputeAndNetwork(
        latency.lognormal(num, c.seconds_per_sample, c.compute_sigma, rng),
        latency.lognormal(num, c.bytes_per_s, c.bandwidth_sigma, rng),
        data.num_examples,
        model_bytes=4 * flatten(model).layout.size,
        epochs=config.train.epochs,
        jitter=c.jitter,
        seed=config.seed,
    )


def _availability(config: cfg.Config) -> availability.Availability:
    a, seed = config.availability, config.seed
    kinds: Mapping[str, Callable[[], availability.Availability]] = {
        "always": availability.Always,
        "markov": lambda: availability.Markov(a.mean_online_s, a.mean_offline_s, seed),
        "diurnal": lambda: availability.Diurnal(a.period_s, a.online_share, seed),
        "trace": lambda: availability.Trace(str(a.path)),
    }
    inner = kinds[a.kind]()
    if not a.late_share:
        return inner
    return availability.Late(inner, a.late_over_s, a.late_share, seed)


def _data_folder(config: cfg.Config) -> str:
    folder = config.data.folder or os.environ.get("PISCES_DATA")
    if folder is None:
        raise DataError(
            f"{config.data.dataset} is not bundled: name the folder that has it in data.folder or "
            "in the environment variable PISCES_DATA"
        )
    return folder


def known(name: str, choices: Mapping[str, Any], key: str) -> str:
    """The name, if it is one of the choices."""
    if name in choices:
        return name
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"{key}: must be one of {', '.join(choices)}, not {name!r}{hint}")
