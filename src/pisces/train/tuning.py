"""What lets a process train fast on the CPU, and be a good worker; no result depends on it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
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


# --- max pooling ----------------------------------------------------------------------------------


@contextmanager
def faster_pooling(model: nn.Module) -> Iterator[None]:
    """Let a model that convolves on the CPU pool many planes at a time; not a bit differs."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    on_cpu = any(convolution.weight.device.type == "cpu" for convolution in convolutions)
    with _PlanarPooling() if on_cpu else nullcontext():
        yield


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
    return enough and x.is_contiguous()


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


# --- processes ------------------------------------------------------------------------------------


def can_fork() -> bool:
    """May a forked process train? Yes on Linux, with one thread, unless autograd has threads here.

    Elsewhere system libraries mind. Autograd starts threads, which a fork would lack, at its first
    backward pass where there is a GPU, even if it is not used.
    """
    if sys.platform != "linux":
        return False
    return not any(name.startswith("pt_autograd") for name in _thread_names())


def _thread_names() -> Iterator[str]:
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it ended meanwhile
            yield name.read_text()


@contextmanager
def born_deaf() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, however early: they inherit what is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle_worker() -> None:
    """Leave behind what was inherited: signals are the parent's to handle, streams are its own.

    A stream of the parent's may be locked for ever, by a thread that was not forked along.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with suppress(OSError):  # there may be none
        sys.stdout = os.fdopen(1, "w", 1, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, closefd=False)
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
