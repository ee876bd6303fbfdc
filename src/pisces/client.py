"""Take part in a federation with training code of your own, in any framework.

    from pisces import client

    def train(weights, work):
        ...  # arrays by name; `work` says for how many epochs, at which learning rate
        return client.Update(weights, losses=losses)

    client.join("fl.example.org:8440", train, num_examples=600, identity="alice.pem")

It imports neither torch nor anything else heavy: numpy, gRPC and protobuf.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisces.errors import ConfigError, DataError
from pisces.execute.network.client.entrance import Entrance
from pisces.execute.network.client.joining import Outcome, take_part
from pisces.execute.network.client.progress import Progress, Watcher
from pisces.execute.network.client.work import CalledOff, Job, Trained, Work
from pisces.execute.network.messages import Welcome
from pisces.execute.network.packing import Flat
from pisces.types import Layout, Report

__all__ = ["CalledOff", "Outcome", "Progress", "Update", "Work", "join"]

Arrays: TypeAlias = Mapping[str, ArrayLike]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What came of a task: the weights, and how training went.

    `losses` are the losses of the samples of the first local epoch, each before the step it was
    part of; from them follow `loss`, their mean, and `loss_rms`, their root mean square, which
    guided selection goes by. Who has no such losses gives those two, or nothing. `loss_left` is the
    mean over the last epoch, from two epochs on.
    """

    weights: Arrays
    num_examples: int | None = None  # trained on; None: as many as were said when joining
    losses: ArrayLike | None = None
    loss: float | None = None
    loss_rms: float | None = None
    loss_left: float | None = None
    num_steps: int = 0


Train: TypeAlias = Callable[[dict[str, NDArray[Any]], Work], Update]


def join(
    address: str,
    train: Train,
    *,
    num_examples: int,
    identity: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    name: str | None = None,
    number: int | None = None,
    keep: str | os.PathLike[str] | None = None,
    on: Watcher | None = None,
) -> Outcome:
    """Train for the server at `address` ("host:port") until its run is over.

    `train` gets the weights as arrays by name, its own to change, and the `Work` asked for. It may
    look at `work.wanted_now` to hand in early what it has, and call `work.check()` in its loop to
    end where nobody waits for it any more. An exception of it fails that task only.

    `identity` is the file that `pisces certs client NAME` made. Without one, `insecure=True` and a
    `name` do, on this machine only. `number` is the client number wished for. A result is kept on
    disk (in the folder `keep`) until the server has it, also over restarts of either side; a lost
    connection is tried again for ever. `on` is told of progress, from another thread.

    Ctrl-C says goodbye first. A server that refuses this client for good is a `RefusedError`.
    """
    _check_numbers(num_examples, number)
    entrance = Entrance.of(address, identity, insecure=insecure, name=name, number=number)
    with entrance.holding(None if keep is None else Path(keep)) as holding:
        trainee = Own(train, num_examples)
        return take_part(entrance.dial, entrance.hello(num_examples, number), trainee, holding, on)


def _check_numbers(num_examples: int, number: int | None) -> None:
    if not (isinstance(num_examples, int) and 1 <= num_examples < 1 << 63):
        raise ConfigError(f"num_examples: must be a whole number from 1 on, not {num_examples!r}")
    if number is not None and not (isinstance(number, int) and 0 <= number < 1 << 63):
        raise ConfigError(f"number: must be a whole number from 0 on, not {number!r}")


class Own:
    """Training code of the user's own, with weights as arrays by name."""

    def __init__(self, train: Train, num_examples: int) -> None:
        self._train, self._num_examples = train, num_examples

    def prepare(self, welcome: Welcome) -> None:
        """Nothing: it knows what it trains."""

    def train(self, job: Job) -> Trained:
        """Do a task, and check what comes of it."""
        update = self._train(arrays_of(job.began, job.layout), job.work)
        job.work.check()  # what nobody waits for need not be right
        if not isinstance(update, Update):
            raise DataError(f"train must return an Update, not a {type(update).__name__}")
        flat = flat_of(update.weights, job.layout, job.began.dtype)
        return Trained(flat, report_of(update, self._num_examples))


def arrays_of(flat: Flat, layout: Layout) -> dict[str, NDArray[Any]]:
    """The named arrays of a flat vector, in memory of their own."""
    own = flat.copy()
    return {s.name: own[s.start : s.stop].reshape(s.shape) for s in layout.slices}


def flat_of(arrays: Arrays, layout: Layout, dtype: np.dtype[Any]) -> Flat:
    """Named arrays in one vector; whatever is wrong with one of them is an error that names it."""
    _check_names(arrays, layout)
    flat = np.empty(layout.size, dtype)
    for s in layout.slices:
        flat[s.start : s.stop] = _checked(s.name, arrays[s.name], s.shape, dtype).reshape(-1)
    return flat


def _check_names(arrays: Arrays, layout: Layout) -> None:
    if not isinstance(arrays, Mapping):
        raise DataError(f"weights must be arrays by name, not a {type(arrays).__name__}")
    names = {s.name for s in layout.slices}
    missing, unknown = sorted(names - set(arrays)), sorted(map(str, set(arrays) - names))
    if missing or unknown:
        wrong = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is not of the model"
        raise DataError(f"weights: {wrong}; give back the names that train was given")


def _checked(
    name: str, value: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise DataError(f"weights: {name!r} is no array: {error}") from error
    if array.shape != shape:
        raise DataError(f"weights: {name!r} has the shape {array.shape}, not {shape}")
    if array.dtype.kind != "f":
        raise DataError(f"weights: {name!r} is of {array.dtype}, not of floats")
    with np.errstate(over="ignore"):
        array = array.astype(dtype, copy=False)
    if not np.isfinite(array).all():
        raise DataError(f"weights: {name!r} has numbers that are not finite; did training diverge?")
    return array


def report_of(update: Update, num_examples: int) -> Report:
    """What the server is told of a training."""
    loss, rms = update.loss, update.loss_rms
    if update.losses is not None:
        losses = np.asarray(update.losses, np.float64).reshape(-1)
        if len(losses):
            loss, rms = float(losses.mean()), math.sqrt(float(np.square(losses).mean()))
    told = {"loss": loss, "loss_rms": rms, "loss_left": update.loss_left}
    for name, value in told.items():
        if value is not None and not math.isfinite(value):
            raise DataError(f"{name}: must be a finite number, not {value}")
    num = num_examples if update.num_examples is None else update.num_examples
    if not 1 <= num <= num_examples:
        raise DataError(f"num_examples: must be from 1 to {num_examples}, those joined with: {num}")
    if not 0 <= update.num_steps < 1 << 63:
        raise DataError(f"num_steps: must be a count, not {update.num_steps}")
    floats = {name: None if value is None else float(value) for name, value in told.items()}
    return Report(int(num), num_steps=int(update.num_steps), **floats)
