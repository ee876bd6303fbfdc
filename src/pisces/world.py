"""The world of a config: data, model, latencies and sessions, all drawn from its seed.

Every protocol compared under one seed meets the same world.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn

from pisces import config as cfg
from pisces import latencies, tables
from pisces.data import corrupt, datasets, finding, partition
from pisces.data.catalogue import CATALOGUE
from pisces.data.federated import FederatedData, Pair
from pisces.data.text import Cut
from pisces.errors import ConfigError, DataError, MissingDataError
from pisces.execute import availability, latency
from pisces.explain import known
from pisces.models.catalogue import MODELS
from pisces.models.flat import flatten
from pisces.seeds import derive, generator
from pisces.train.hostile import Lies


def _read(name: str, config: cfg.Config) -> datasets.Dataset:
    d = config.data
    return finding.load(name, d.folder, Cut(d.sequence_length, d.vocabulary))


DATASETS: Mapping[str, Callable[[cfg.Config], datasets.Dataset]] = {
    "digits": lambda c: datasets.digits(c.seed),
    **{name: partial(_read, name) for name in CATALOGUE},
}


def federated_data(config: cfg.Config, base_s: NDArray[np.float64] | None = None) -> FederatedData:
    """The dataset, divided among the clients and spoilt where asked."""
    d = config.data
    dataset = DATASETS[known(d.dataset, DATASETS, "data.dataset")](config)
    if dataset.objective != "next_word":
        _check_left_alone(d, "data", ("sequence_length", "vocabulary"), f"{d.dataset} is no text")
    rows = _rows(config, dataset, base_s if base_s is not None else base_latency(config))
    return FederatedData(
        dataset.inputs,
        _targets(config, dataset, rows),
        rows,
        *_test_samples(dataset, d.test_samples),
        num_classes=dataset.num_classes,
        objective=dataset.objective,
        epoch_sizes=_epoch_sizes(rows) if d.redraw else None,
    )


def _targets(
    config: cfg.Config, dataset: datasets.Dataset, rows: Sequence[NDArray[np.int64]]
) -> torch.Tensor:
    """The labels, with those of corrupted and of some hostile clients spoilt."""
    labels = "random" if config.data.corrupted else config.hostile.labels
    if labels == "own" or not config.spoilt_share:
        return dataset.targets
    spoil = corrupt.flip_labels if labels == "random" else corrupt.shift_labels
    share, rng = config.data.corrupted or config.hostile.share, generator(config.seed, "corrupt")
    targets, _ = spoil(dataset.targets, rows, share, dataset.num_classes, rng)
    return targets


def _test_samples(dataset: datasets.Dataset, most: int | None) -> Pair:
    """What to test on; drawn without the run's seed: all runs are to be held to the same."""
    num = len(dataset.test_targets)
    if most is None or most >= num:
        return dataset.test_inputs, dataset.test_targets
    rows = torch.from_numpy(np.sort(generator(0, "test_samples").permutation(num)[:most]))
    return dataset.test_inputs[rows], dataset.test_targets[rows]


def _check_left_alone(table: tables.Section, name: str, keys: Iterable[str], why: str) -> None:
    """Refuse settings without effect; defaults may be spelled out, as run folders do."""
    for key in keys:
        value, default = getattr(table, key), type(table).model_fields[key].default
        if value != default:
            raise ConfigError(
                f"{name}.{key}: {value} would do nothing: {why}; leave it out, or at {default}"
            )


def _epoch_sizes(pools: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.array([len(pool) // partition.EPOCHS_IN_POOL for pool in pools], np.int64)


def corrupted_clients(config: cfg.Config) -> NDArray[np.int64]:
    """Whose labels `federated_data` spoils, and who is hostile; found without the data."""
    return _chosen(config, config.spoilt_share)


def lies_of(config: cfg.Config) -> Lies | None:
    """What hostile clients tell and send, if there are any."""
    told = config.hostile
    if not told.share:
        return None
    return Lies(
        clients=frozenset(_chosen(config, told.share).tolist()),
        loss=told.loss,
        direction=told.direction,
        times=told.times,
        seed=config.seed,
    )


def _chosen(config: cfg.Config, share: float) -> NDArray[np.int64]:
    return corrupt.chosen(config.clients.count, share, generator(config.seed, "corrupt"))


def _rows(
    config: cfg.Config, dataset: datasets.Dataset, base_s: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], ...]:
    d, num_clients = config.data, config.clients.count
    rng = generator(config.seed, "partition")
    if d.partition == "natural":
        if dataset.natural is None:
            raise _nobody(d)
        least, most = d.min_samples, d.max_samples
        return partition.natural(dataset.natural, num_clients, rng, least, most)
    sizes = _sizes(config, len(dataset.targets), base_s)
    if d.partition == "iid":
        if d.redraw:
            return partition.iid_pools(len(dataset.targets), sizes, rng)
        return partition.iid(len(dataset.targets), sizes, rng, overlap=d.overlap)
    alpha = _alpha(config, dataset, base_s)
    if d.redraw:
        return partition.dirichlet_pools(dataset.targets.numpy(), sizes, alpha, rng)
    return partition.dirichlet(dataset.targets.numpy(), sizes, alpha, rng, overlap=d.overlap)


def _nobody(d: tables.Data) -> ConfigError | MissingDataError:
    """The error where nothing says whose a sample is: nobody can, or only this copy does not."""
    entry = CATALOGUE.get(d.dataset)
    if entry is None or entry.clients is None:
        return ConfigError(f"data.partition: {d.dataset} has no natural clients; use dirichlet")
    there = finding.found(d.dataset, finding.folders(d.folder)).folder
    return MissingDataError(
        f"data.partition: the copy of {d.dataset} in {there} names no {entry.clients}. To get "
        f"them, {entry.by_hand}: pisces data get {d.dataset} --from FOLDER --folder OTHER; then "
        "point PISCES_DATA or data.folder to OTHER"
    )


def _alpha(
    config: cfg.Config, dataset: datasets.Dataset, base_s: NDArray[np.float64] | None
) -> float | NDArray[np.float64]:
    d = config.data
    if dataset.objective != "labels":
        raise ConfigError(
            f"data.partition: dirichlet divides by labels, which {d.dataset} has none of; use "
            "natural or iid"
        )
    if d.sizes == "coupled":
        return partition.coupled_alphas(_needed(base_s), d.alpha_per_s)
    return d.alpha


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
    max_total = None if d.overlap or d.redraw else num_rows
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
    entry = MODELS[known(config.model.name, MODELS, "model.name")]
    _check_predicts(config.model.name, data)
    _check_keys(config.model)
    settings = {key: getattr(config.model, key) for key in entry.keys}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "model"))
        try:
            model = entry.make(tuple(data.inputs.shape[1:]), data.num_classes, **settings)
        except (MemoryError, OverflowError, RuntimeError, TypeError) as error:  # torch's, of sizes
            raise ConfigError(
                f"model: {config.model.name} of {settings} cannot be made: "
                f"{str(error).splitlines()[0][:200]}; make it smaller"
            ) from error
    if config.model.weights is not None:
        load_weights(model, config.model.weights)
    return model


def _check_predicts(model: str, data: FederatedData) -> None:
    """Does the model predict what the dataset asks for?"""
    predicts, asked = MODELS[model].predicts, data.objective
    if predicts != asked:
        plain = {"labels": "labels", "next_word": "words"}
        fitting = [name for name, entry in MODELS.items() if entry.predicts == asked]
        raise ConfigError(
            f"model.name: {model} predicts {plain[predicts]}, but the dataset asks for "
            f"{plain[asked]}; use {' or '.join(fitting)}"
        )


def _check_keys(model: tables.Model) -> None:
    """Does the model have all that is set of it?"""
    own = MODELS[model.name].keys
    for name, entry in MODELS.items():
        foreign = [key for key in entry.keys if key not in own]
        why = f"{model.name} has no such setting, {name} has"
        _check_left_alone(model, "model", foreign, why)


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


def base_latency(config: cfg.Config) -> NDArray[np.float64] | None:
    """Each client's latency; None where it depends on the data."""
    num, rng = config.clients.count, generator(config.seed, "latency")
    match config.latency:
        case latencies.Zipf(a=a, min_s=min_s, max_s=max_s):
            return latency.zipf(num, a, min_s, max_s, rng)
        case latencies.ConstantLatency(seconds=seconds):
            return latency.constant(num, seconds)
        case latencies.UniformLatency(min_s=min_s, max_s=max_s):
            return latency.uniform(num, min_s, max_s, rng)
        case latencies.LognormalLatency(median_s=median_s, sigma=sigma):
            return latency.lognormal(num, median_s, sigma, rng)
        case latencies.TraceLatency(path=path):
            return latency.from_trace(path, num)
        case latencies.ComputeLatency():
            return None


def latency_of(
    config: cfg.Config, base_s: NDArray[np.float64] | None, data: FederatedData, model: nn.Module
) -> latency.Latency:
    """How long tasks take."""
    c, num = config.latency, config.clients.count
    if not isinstance(c, latencies.ComputeLatency):
        return latency.PerClient(_needed(base_s), c.jitter, config.seed)
    rng = generator(config.seed, "latency")
    return latency.ComputeAndNetwork(
        c.seconds_per_sample * rng.lognormal(0.0, c.compute_sigma, num),
        c.bytes_per_s * rng.lognormal(0.0, c.bandwidth_sigma, num),
        data.num_examples,
        model_bytes=4 * flatten(model).layout.size,
        epochs=config.train.epochs,
        jitter=c.jitter,
        seed=config.seed,
    )


def availability_of(config: cfg.Config) -> availability.Availability:
    """When clients are there."""
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
