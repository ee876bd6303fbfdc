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
from pisces.train.gradients import Alone, CannotBatchError, Gradients, Stacked
from pisces.train.group import Samples

log = logging.getLogger("pisces")

# A step this large (forward operations) keeps a GPU busy by itself; stacking would only add copies.
LARGE_STEP_FLOP = 1e10
_LARGE_INPUT = 1e3


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
    _try_step(copy.deepcopy(model), loss, samples)
    layout = layout_of(model)
    if _flop(copy.deepcopy(model), samples, room) < LARGE_STEP_FLOP:
        try:
            _check_stacking(model, loss, samples, room)
            make = partial(Stacked, model, loss, layout, precision)
            return Way(make, stacks=True, bytes_per_client=_bytes(make(), model, samples, room))
        except Exception as error:  # whatever a model does that cannot be vectorised
            first_line = f"{type(error).__name__}: {error}".partition("\n")[0]
            log.warning(
                "train.backend = batched: clients train beside each other, not stacked, which is "
                "slower: %s",
                first_line,
            )
    return Way(partial(Alone, model, loss, layout, precision), stacks=False)


def check_single_sample(model: nn.Module, samples: Samples) -> None:
    """Raise what the model raises, trained on a batch of one; stacked, its layers would not."""
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
    """Some samples to try a model on; if they are spoilt, it is not the model's fault."""
    rows = torch.arange(num, device=samples[0].device) % len(samples[0])
    inputs, targets = samples[0][rows], samples[1][rows]
    if inputs.is_floating_point():
        inputs = inputs.nan_to_num().clamp(-_LARGE_INPUT, _LARGE_INPUT)
    return inputs, targets


def _try_step(model: nn.Module, loss: Loss, samples: Samples) -> None:
    """Can clients of this model be trained at once?"""
    inputs, targets = _few(samples, 4)
    parameters = {n: p.detach().clone() for n, p in model.named_parameters()}
    buffers, state = dict(model.named_buffers()), _random_state(inputs.device)
    losses = loss(model.train()(inputs), targets)
    if not torch.equal(state, _random_state(inputs.device)):
        raise CannotBatchError("the model draws random numbers while it trains (dropout?)")
    if not all(torch.equal(p, parameters[n]) for n, p in model.named_parameters()):
        raise CannotBatchError("the model changes its own weights")
    if not all(b is buffers.get(n) for n, b in model.named_buffers()):
        raise CannotBatchError("the model puts other tensors in place of its buffers")
    if losses.ndim == 0:
        raise CannotBatchError("the loss gives one value per batch; reduction='none' is better")
    torch.autograd.backward(losses.mean())
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is None:  # weight decay must not move it
            raise CannotBatchError(f"the loss does not depend on {name}, which requires a gradient")


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _flop(model: nn.Module, samples: Samples, num: int) -> float:
    with FlopCounterMode(display=False) as counter:
        model(_few(samples, 2)[0])
    return float(counter.get_total_flops()) / 2 * num


def _check_stacking(model: nn.Module, loss: Loss, samples: Samples, room: int) -> None:
    """Hold stacked clients to each of them alone: exactly in float64, and as they will train."""
    try:
        _compare(copy.deepcopy(model).double(), loss, samples, room, tolerance=1e-6)
    except RuntimeError:  # perhaps it wants its own kind of numbers
        _compare(model, loss, samples, room, tolerance=1e-3)
    else:
        # A GPU has other kernels for float32: they are tried, but not held to much, for a pixel
        # that wins a maximum by a rounding error moves more than rounding does.
        _compare(model, loss, samples, room, tolerance=0.1)


def _compare(
    model: nn.Module, loss: Loss, samples: Samples, room: int, *, tolerance: float
) -> None:
    """Two clients, the batches of both filled up."""
    weights = flatten(model)
    nums = max(2, room), max(2, room // 2)
    inputs, targets = (
        part.to(weights.flat.dtype) if part.is_floating_point() else part
        for part in _few(samples, max(nums) + 1)
    )
    rows = torch.stack([weights.flat, weights.flat * 0.9])
    there = torch.arange(len(inputs)) < torch.tensor(nums)[:, None]
    inputs, targets = (part.expand(2, *part.shape) for part in (inputs, targets))
    together = Stacked(model, loss, weights.layout)(rows, inputs, targets, there.to(inputs.device))
    for k, num in enumerate(nums):
        one, batch = slice(k, k + 1), (slice(k, k + 1), slice(num))
        alone = Alone(model, loss, weights.layout)(
            rows[one], inputs[batch], targets[batch], there[batch]
        )
        pairs = (
            (together.gradients[k], alone.gradients[0]),
            (together.losses[k, :num], alone.losses[0]),
            (together.buffers[k], alone.buffers[0]),
        )
        if not all(_are_near(a, b, tolerance) for a, b in pairs):
            raise ValueError("a sample's result depends on others in its batch")


def _are_near(values: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    most = float(expected.abs().nan_to_num().max()) if len(expected) else 0.0
    return torch.allclose(values, expected, rtol=0, atol=tolerance * most, equal_nan=True)
