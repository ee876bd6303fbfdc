"""Take part in a federation with data of your own: the server's config says what is trained.

    from pisces import local

    local.join("fl.example.org:8440", (inputs, targets), identity="alice.pem")

The model is made here as the server's config names it, and trained as a simulation would: the same
task on the same samples gives the same bits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from pisces.data.federated import FederatedData, Pair
from pisces.errors import ConfigError, DataError
from pisces.execute.network.client.entrance import Entrance
from pisces.execute.network.client.joining import Outcome, take_part
from pisces.execute.network.client.progress import Watcher
from pisces.execute.network.client.work import Job, Trained, Work
from pisces.execute.network.messages import Welcome
from pisces.machine import device_of
from pisces.models.catalogue import MODELS
from pisces.models.flat import layout_of
from pisces.objective import goal_of
from pisces.train.base import Recipe
from pisces.train.sequential import SequentialTrainer
from pisces.types import Layout, Task, Weights


def join(
    address: str,
    data: Pair | Dataset[Pair] | FederatedData,
    *,
    identity: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    name: str | None = None,
    number: int | None = None,
    keep: str | os.PathLike[str] | None = None,
    device: str = "auto",
    threads: int | None = 1,
    on: Watcher | None = None,
) -> Outcome:
    """Train for the server at `address` on `data`, until its run is over.

    `data` is a pair `(inputs, targets)` of tensors or arrays, or a torch `Dataset` of pairs.
    `threads` are torch's (one is best for small models; None: as they are). All else is as in
    `pisces.client.join`.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    own = data if isinstance(data, FederatedData) else own_data(data)
    trainee = Local(own, device)
    entrance = Entrance.of(address, identity, insecure=insecure, name=name, number=number)
    hello = entrance.hello(int(own.num_examples[0]), number)
    with entrance.holding(None if keep is None else Path(keep)) as holding:
        return take_part(entrance.dial, hello, trainee, holding, on)


def own_data(samples: Pair | Dataset[Pair]) -> FederatedData:
    """The samples of one client; floats as models take them, labels as losses do."""
    try:
        inputs, targets = _tensors(samples)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise DataError(
            f"data: must be a pair (inputs, targets) of tensors or arrays, or a Dataset of such "
            f"pairs: {str(error).splitlines()[0]}"
        ) from error
    if len(inputs) != len(targets) or len(inputs) == 0:
        raise DataError(
            f"data: {len(inputs)} inputs and {len(targets)} targets; give at least one sample and "
            "as many targets as inputs"
        )
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    targets = targets.float() if targets.is_floating_point() else targets.long()
    return FederatedData(inputs, targets, (np.arange(len(inputs)),), inputs[:0], targets[:0])


def _tensors(samples: Pair | Dataset[Pair]) -> Pair:
    if not isinstance(samples, tuple):
        pairs = [samples[i] for i in range(len(cast(Sized, samples)))]
        inputs, targets = zip(*pairs, strict=True)
        samples = torch.stack([*map(torch.as_tensor, inputs)]), torch.as_tensor(targets)
    first, second = samples
    return torch.as_tensor(first), torch.as_tensor(second)


def shard_of(data: FederatedData, number: int) -> FederatedData:
    """One client's part of a divided dataset, as if there were nobody else."""
    if not 0 <= number < data.num_clients:
        raise ConfigError(f"shard: must be from 0 to {data.num_clients - 1}, not {number}")
    rows = torch.from_numpy(data.rows[number])
    sizes = data.epoch_sizes
    return replace(
        data,
        inputs=data.inputs[rows],
        targets=data.targets[rows],
        rows=(np.arange(len(rows)),),
        epoch_sizes=None if sizes is None else sizes[number : number + 1],
    )


class Local:
    """Trains on the samples of one client, by what the server tells of its config."""

    def __init__(self, data: FederatedData, device: str = "auto") -> None:
        self._data, self._device = data, device_of(device)
        self._trainer: SequentialTrainer | None = None
        self._work: Work | None = None

    def prepare(self, welcome: Welcome) -> None:
        """Make the model, and see that it is the server's."""
        told = _told(welcome)
        _check_samples(told, self._data)
        model = model_of(told)
        check_layout(layout_of(model), welcome.layout)
        self._trainer = SequentialTrainer(
            model,
            self._data,
            goal_of(told["objective"]).loss,
            Recipe(**told["train"]),
            self._device,
            goes_on=self._goes_on,
        )

    def _goes_on(self) -> bool:
        return self._work is None or not (self._work.called_off or self._work.wanted_now)

    def train(self, job: Job) -> Trained:
        """Do a task; one that is called off ends before its next step."""
        assert self._trainer is not None
        self._work = work = job.work
        weights = Weights(torch.from_numpy(job.began).to(self._device), job.layout)
        task = Task(work.task, 0, work.version, weights, work.plan, work.seed)
        (outcome,) = self._trainer.train([task])
        work.check()
        flat = outcome.weights.flat.cpu().numpy()
        if not np.isfinite(flat).all():
            raise DataError("the weights are not finite any more: training diverged")
        return Trained(flat, outcome.report)


def _told(welcome: Welcome) -> Mapping[str, Any]:
    """What the server tells of its config."""
    try:
        told = json.loads(welcome.settings or "{}")
        return {key: told[key] for key in KEYS}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "the server does not say which model it trains, so it is not one of `pisces serve`: "
            "join it with training code of your own (pisces.client.join, or --train)"
        ) from error


KEYS = ("model", "train", "input_shape", "num_classes", "objective")


def model_of(told: Mapping[str, Any]) -> nn.Module:
    """The model that a server names; its weights come with each task."""
    settings = told["model"]
    entry = MODELS.get(settings["name"])
    if entry is None:
        raise ConfigError(
            f"the server trains a model {settings['name']!r}, which is not known here: is its "
            "Pisces a newer one?"
        )
    own = {key: settings[key] for key in entry.keys}
    with torch.random.fork_rng(devices=[]):
        return entry.make(tuple(told["input_shape"]), told["num_classes"], **own)


def _check_samples(told: Mapping[str, Any], data: FederatedData) -> None:
    wanted, given = tuple(told["input_shape"]), tuple(data.inputs.shape[1:])
    if wanted != given:
        raise DataError(
            f"data: inputs have the shape {given}, and the server's model takes {wanted}"
        )
    num, targets = told["num_classes"], data.targets
    if num is not None and not targets.is_floating_point() and len(targets):
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= num:
            raise DataError(
                f"data: labels from {low} to {high}, and the server knows 0 to {num - 1}"
            )


def check_layout(mine: Layout, theirs: Layout) -> None:
    """Are they the same? The error names the first difference."""
    if mine == theirs:
        return
    pairs = zip(mine.slices, theirs.slices, strict=False)
    first = next(((a, b) for a, b in pairs if a != b), None)
    if first is None:
        what = f"{len(mine.slices)} tensors here, {len(theirs.slices)} there"
    else:
        what = " and ".join(f"{s.name} {list(s.shape)} of {s.dtype}" for s in first)
    raise ConfigError(
        f"the model made here is not the server's: {what}; use the same version of Pisces (and of "
        "the packages it makes models with)"
    )
