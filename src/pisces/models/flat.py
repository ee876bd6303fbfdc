"""A model's weights as one flat vector, and back.

Parameters come first, float buffers (BatchNorm statistics) after them; integer counters stay with
the module. Tied tensors are stored once.
"""

from __future__ import annotations

import torch
from torch import nn

from pisces.types import Layout, Role, Slice, Weights


def layout_of(model: nn.Module) -> Layout:
    """Where each of the model's tensors lies in its flat vector."""
    slices: list[Slice] = []
    aliases: list[tuple[str, str]] = []
    first_name: dict[int, str] = {}
    start = 0
    for name, tensor, role in _float_tensors(model):
        if id(tensor) in first_name:
            aliases.append((name, first_name[id(tensor)]))
            continue
        first_name[id(tensor)] = name
        stop = start + tensor.numel()
        slices.append(Slice(name, tuple(tensor.shape), str(tensor.dtype)[6:], role, start, stop))
        start = stop
    counters = [n for n, b in model.named_buffers() if not b.is_floating_point()]
    return Layout(tuple(slices), tuple(aliases), tuple(counters))


def flatten(model: nn.Module, layout: Layout | None = None) -> Weights:
    """Copy the model's weights into one flat float32 vector (float64 for a float64 model)."""
    layout = layout or layout_of(model)
    tensors = {name: tensor for name, tensor, _ in _float_tensors(model)}
    dtype = getattr(torch, layout.dtype)
    pieces = [tensors[s.name].detach().reshape(-1).to(dtype) for s in layout.slices]
    return Weights(torch.cat(pieces), layout)


def load_flat(model: nn.Module, weights: Weights) -> None:
    """Copy a flat vector into the model's tensors."""
    tensors = {name: tensor for name, tensor, _ in _float_tensors(model)}
    with torch.no_grad():
        for s in weights.layout.slices:
            tensors[s.name].copy_(weights.flat[s.start : s.stop].view(s.shape))


class Counters:
    """A model's integer buffers: no part of its weights, but its results may depend on them."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        buffers = model.named_buffers()
        self._start = {name: b.clone() for name, b in buffers if not b.is_floating_point()}

    def reset(self) -> None:
        """Set them to what they were at first."""
        for name, start in self._start.items():  # by name: the model may have put others there
            self._model.get_buffer(name).copy_(start)


def state_dict_of(weights: Weights, model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights as a plain `state_dict`; counters and other state come from `model`."""
    state: dict[str, torch.Tensor] = {
        k: v.detach().cpu().clone() for k, v in model.state_dict().items()
    }
    aliases: dict[str, list[str]] = {}
    for name, first in weights.layout.aliases:
        aliases.setdefault(first, []).append(name)
    for s in weights.layout.slices:
        value = weights.flat[s.start : s.stop].view(s.shape).to("cpu", getattr(torch, s.dtype))
        for name in (s.name, *aliases.get(s.name, ())):
            if name in state:  # a buffer registered as not persistent is not part of a state_dict
                state[name] = value.clone()
    return state


def named_tensors(weights: Weights) -> dict[str, torch.Tensor]:
    """The weights by name, as their layout says, for whom no model is at hand."""
    return {
        s.name: weights.flat[s.start : s.stop].view(s.shape).to("cpu", getattr(torch, s.dtype))
        for s in weights.layout.slices
    }


def _float_tensors(model: nn.Module) -> list[tuple[str, torch.Tensor, Role]]:
    parameters: list[tuple[str, torch.Tensor, Role]] = [
        (name, p, "parameter") for name, p in model.named_parameters(remove_duplicate=False)
    ]
    buffers: list[tuple[str, torch.Tensor, Role]] = [
        (name, b, "buffer")
        for name, b in model.named_buffers(remove_duplicate=False)
        if b.is_floating_point()
    ]
    return parameters + buffers
