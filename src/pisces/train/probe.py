"""Which way of training many clients at once suits a model? Found out by trying it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pisces.models.flat import flatten, layout_of
from pisces.train.base import Loss, Precision
from pisces.train.gradients import Alone, Gradients, Pass, Stacked
from pisces.train.group import Samples

log = logging.getLogger("pisces")

# A step this large (forward operations) keeps a GPU busy by itself; stacking would only add copies.
LARGE_STEP_FLOP = 1e10


class CannotBatchError(Exception):
    """Clients of this model must be trained one after the other; says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """How to train a model's clients at once."""

    make: Callable[[], Gradients]
    stacks: bool  # many clients in a step, batches filled up; else one, with exactly its samples
    bytes_per_client: int | None = None  # that a step takes from the device


def choose(
    model: nn.Module, loss: Loss, samples: Samples, room: int, precision: Precision = "float32"
) -> Way:
    """Stacked where the model can be and gains by it, else alone; `room` is a step's samples."""
    device = samples[0].device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # others draw from it
        return _choose(model, loss, samples, room, precision)


def _choose(model: nn.Module, loss: Loss, samples: Samples, room: int, precision: Precision) -> Way:
    _check_loss_and_draws(copy.deepcopy(model), loss, samples)
    layout = layout_of(model)
    if _flop(copy.deepcopy(model), samples, room) < LARGE_STEP_FLOP:
        problem = _problem_with_stacking(model, loss, samples)
        if problem is None:
            make = partial(Stacked, model, loss, layout, precision)
            return Way(make, stacks=True, bytes_per_client=_bytes(make(), model, samples, room))
        log.info("clients are trained beside each other instead of stacked: %s", problem)
    return Way(partial(Alone, model, loss, layout, precision), stacks=False)


def check_single_sample(model: nn.Module, samples: Samples) -> None:
    """Raise what the model raises, trained on a batch of one; stacked, its layers would not."""
    with torch.no_grad():
        copy.deepcopy(model).train()(_few(samples, 1)[0])


def _bytes(gradients: Gradients, model: nn.Module, samples: Samples, room: int) -> int | None:
    """What a step takes per client, its rows and the optimiser's included."""
    device = samples[0].device
    if device.type != "cuda":
        return None
    rows = flatten(model).flat.repeat(2, 1)
    inputs, targets = (part[None].expand(2, *part.shape) for part in _few(samples, room))
    there = torch.ones(2, room, dtype=torch.bool, device=device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    gradients(rows, inputs.contiguous(), targets.contiguous(), there)
    step = torch.cuda.max_memory_allocated(device) - before
    return step // 2 + 8 * rows[0].nbytes


def _few(samples: Samples, num: int) -> Samples:
    rows = torch.arange(num, device=samples[0].device) % len(samples[0])
    return samples[0][rows], samples[1][rows]


def _check_loss_and_draws(model: nn.Module, loss: Loss, samples: Samples) -> None:
    inputs, targets = _few(samples, 4)
    before = _random_state(inputs.device)
    with torch.no_grad():
        losses = loss(model.train()(inputs), targets)
    if not torch.equal(before, _random_state(inputs.device)):
        raise CannotBatchError("it draws random numbers while it trains (dropout?)")
    if losses.ndim == 0:
        raise CannotBatchError("its loss gives one value per batch; reduction='none' is better")


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _flop(model: nn.Module, samples: Samples, num: int) -> float:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(_few(samples, 2)[0])
    return float(counter.get_total_flops()) / 2 * num


def _problem_with_stacking(model: nn.Module, loss: Loss, samples: Samples) -> str | None:
    """Compare two clients stacked, their batches filled up, with each alone, in float64."""
    try:
        return _compare(copy.deepcopy(model).double(), loss, samples)
    except Exception as error:  # whatever a model does that cannot be vectorised
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _compare(model: nn.Module, loss: Loss, samples: Samples) -> str | None:
    inputs, targets = _few(samples, 4)
    if inputs.is_floating_point():
        inputs = inputs.double()
    weights = flatten(model)
    rows = torch.stack([weights.flat, weights.flat * 0.9])
    there = torch.tensor([[True] * 3 + [False], [True] * 2 + [False] * 2], device=inputs.device)
    inputs, targets = (part.expand(2, *part.shape) for part in (inputs, targets))
    together = Stacked(model, loss, weights.layout)(rows, inputs, targets, there)
    for k, num in enumerate((3, 2)):
        one, batch = slice(k, k + 1), (slice(k, k + 1), slice(num))
        alone = Alone(model, loss, weights.layout)(
            rows[one], inputs[batch], targets[batch], there[batch]
        )
        if not _agree(together, alone, k, num):
            return "a sample's result depends on others in its batch"
    return None


def _agree(together: Pass, alone: Pass, k: int, num: int) -> bool:
    pairs = (
        (together.gradients[k], alone.gradients[0]),
        (together.losses[k, :num], alone.losses[0]),
        (together.buffers[k], alone.buffers[0]),
    )
    return all(torch.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in pairs)
