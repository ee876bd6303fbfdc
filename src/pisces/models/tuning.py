"""What lets models compute fast, above all on the CPU; not a bit of a result depends on it."""

from __future__ import annotations

import copy
import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_LARGEST_MMAP_THRESHOLD = 32 << 20  # bytes: glibc refuses more
_NEVER_TRIM = 1 << 30
_FEWEST_PLANES = 16  # floats in the widest vector register


def keep_memory() -> None:
    """Let glibc keep what is freed, instead of fetching fresh pages for every activation."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_TRIM_THRESHOLD, _NEVER_TRIM)


def pool_first(model: nn.Module) -> nn.Module:
    """The model, or a copy that pools before a ReLU where it did right after it.

    Order does not matter to the largest of some values, nor to where its gradient goes; but pooling
    by windows of 2 x 2 leaves the ReLU a quarter of the work.
    """
    if next(_pools_after_relu(model), None) is None:
        return model
    model = copy.deepcopy(model)
    for chain, at in list(_pools_after_relu(model)):
        chain[at], chain[at + 1] = chain[at + 1], chain[at]
    return model


def _pools_after_relu(model: nn.Module) -> Iterator[tuple[nn.Sequential, int]]:
    """Where in a chain of layers a ReLU has a pooling behind it.

    Only chains of chains are looked at: anything else may use the links of its chains one by one.
    """
    if type(model) is not nn.Sequential:
        return
    for at, (layer, after) in enumerate(pairwise(model)):
        pools = type(after) is nn.MaxPool2d and not after.return_indices
        if type(layer) is nn.ReLU and pools and not (_is_watched(layer) or _is_watched(after)):
            yield model, at
    for layer in model:
        yield from _pools_after_relu(layer)


def _is_watched(layer: nn.Module) -> bool:
    """Has somebody hooked a function on it, which would see other values?"""
    before, after = layer._forward_pre_hooks, layer._forward_hooks
    return bool(before or after or layer._backward_pre_hooks or layer._backward_hooks)


def faster_pooling(model: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """A context in which a model that convolves on the CPU pools many planes at a time.

    Not a bit differs. Only for the forward pass: every operation in it takes a little longer.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    on_cpu = any(convolution.weight.device.type == "cpu" for convolution in convolutions)
    return _PlanarPooling if on_cpu else nullcontext


class _PlanarPooling(TorchFunctionMode):
    """Takes over every `max_pool2d`, of layers and functions, that it makes faster."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not functional.max_pool2d or not _has_planes(args[0]):
            return func(*args, **kwargs)
        inputs, kernel_size = args  # the rest is always named
        stride = kwargs["stride"] or kernel_size
        window = (kernel_size, stride, kwargs["padding"], kwargs["dilation"], kwargs["ceil_mode"])
        return _MaxPool.apply(inputs, window)[0]  # type: ignore[no-untyped-call]


def _has_planes(x: torch.Tensor) -> bool:
    enough = x.dim() == 4 and x.shape[0] * x.shape[1] >= _FEWEST_PLANES
    # Models that use `torch.func` themselves are left alone.
    return enough and x.is_contiguous() and not is_functorch_wrapped_tensor(x)


class _MaxPool(torch.autograd.Function):
    """Max pooling whose planes, of all samples and channels, lie side by side as channels.

    PyTorch pools channels that come last by vectors of them, and planes value by value.
    """

    @staticmethod
    def forward(x: torch.Tensor, window: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """The maxima, and where in its plane each was found."""
        num, channels, height, width = x.shape
        planes = x.view(1, num * channels, height, width)
        planes = planes.contiguous(memory_format=torch.channels_last)
        pooled = functional.max_pool2d(planes, *window, return_indices=True)
        maxima, places = (y.contiguous().view(num, channels, *y.shape[2:]) for y in pooled)
        return maxima, places

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the gradient needs."""
        (x, ctx.window), (_, places) = inputs, output
        ctx.save_for_backward(x, places)
        ctx.mark_non_differentiable(places)
        ctx.set_materialize_grads(False)  # zeros for the places would cost time

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: object) -> tuple[torch.Tensor, None]:
        """Each maximum's gradient goes where it was found."""
        x, places = ctx.saved_tensors
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return back(gradient, x, *ctx.window, places), None
