"""Convolution and pooling that `torch.func.vmap` does for many clients in one go.

The usual way, one group of channels per client, falls into kernels made for other shapes. On a GPU
the kernels of `kernels` do it, elsewhere (or without Triton) one matrix product per sample over the
patches of its image.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn import functional

Pair = tuple[int, int]


def convolve(
    images: torch.Tensor, kernels: torch.Tensor, bias: torch.Tensor | None, stride: Pair, pad: Pair
) -> torch.Tensor:
    """`conv2d` of one client's images."""
    if _has_kernels_for(images):
        convolved: torch.Tensor = _Convolve.apply(images, kernels, bias, stride, pad)
        return convolved
    if pad != (0, 0):
        images = functional.pad(images, (pad[1], pad[1], pad[0], pad[0]))
    patches = _Patches.apply(images, (kernels.shape[2], kernels.shape[3]), stride)
    num, rows, columns = patches.shape[:3]
    # A product per sample: the gradient of the kernels is then many short sums instead of one very
    # long one, which a GPU would do in a corner.
    weights = kernels.flatten(1).T.expand(num, -1, -1)
    outputs = torch.bmm(patches.flatten(1, 2), weights)
    if bias is not None:
        outputs = outputs + bias
    return outputs.view(num, rows, columns, len(kernels)).movedim(-1, 1).contiguous()


def max_pool(images: torch.Tensor, size: Pair) -> torch.Tensor:
    """The largest pixel of each window, side by side."""
    if _has_kernels_for(images):
        largest: torch.Tensor = _MaxPool.apply(images, size)[0]
        return largest
    return functional.max_pool2d(images, size)


@cache
def _kernels() -> Any:
    """The module of kernels, or nothing."""
    try:
        from pisces.train import kernels
    except ImportError:  # no Triton here
        return None
    return kernels


def _has_kernels_for(images: torch.Tensor) -> bool:
    kernels = _kernels()
    return kernels is not None and bool(kernels.can_take(images))


def _stacked(info: Any, in_dims: Any, *tensors: Any) -> list[Any]:
    """The clients first, in every tensor; what all of them share is repeated."""
    return [
        tensor
        if not isinstance(tensor, torch.Tensor)
        else tensor.expand(info.batch_size, *tensor.shape)
        if dim is None
        else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=False)
    ]


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(images: Any, kernels: Any, bias: Any, stride: Pair, pad: Pair) -> Any:
        one = [None if t is None else t[None] for t in (images, kernels, bias)]
        return _kernels().convolve(*one, stride, pad)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        images, kernels, bias, ctx.stride, ctx.pad = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(images, kernels)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        images, kernels = ctx.saved_tensors
        how = (ctx.stride, ctx.pad)
        of_images = None
        if ctx.needs_input_grad[0]:
            of_images = _ImageGradient.apply(gradients[0], kernels, tuple(images.shape[2:]), *how)
        of_kernels, of_bias = _KernelGradient.apply(
            gradients[0], images, tuple(kernels.shape[2:]), *how
        )
        return of_images, of_kernels, of_bias if ctx.has_bias else None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _kernels().convolve(*_stacked(info, in_dims, *inputs)), 0


class _ImageGradient(torch.autograd.Function):
    @staticmethod
    def forward(gradient: Any, kernels: Any, sizes: Pair, stride: Pair, pad: Pair) -> Any:
        return _kernels().image_gradient(gradient[None], kernels[None], sizes, stride, pad)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del ctx, inputs, output  # nobody needs a second derivative

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _kernels().image_gradient(*_stacked(info, in_dims, *inputs)), 0


class _KernelGradient(torch.autograd.Function):
    @staticmethod
    def forward(gradient: Any, images: Any, size: Pair, stride: Pair, pad: Pair) -> Any:
        both = _kernels().kernel_gradient(gradient[None], images[None], size, stride, pad)
        return both[0][0], both[1][0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del ctx, inputs, output

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _kernels().kernel_gradient(*_stacked(info, in_dims, *inputs)), (0, 0)


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(images: Any, size: Pair) -> Any:
        return _kernels().pool(images, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        images, ctx.size = inputs
        ctx.sizes = tuple(images.shape[-2:])
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _PoolGradient.apply(gradients[0], *ctx.saved_tensors, ctx.sizes, ctx.size), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _kernels().pool(*_stacked(info, in_dims, *inputs)), (0, 0)


class _PoolGradient(torch.autograd.Function):
    @staticmethod
    def forward(gradient: Any, which: Any, sizes: Pair, size: Pair) -> Any:
        return _kernels().pool_gradient(gradient, which, sizes, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del ctx, inputs, output

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _kernels().pool_gradient(*_stacked(info, in_dims, *inputs)), 0


class _Patches(torch.autograd.Function):
    """(samples, channels, height, width) -> (samples, rows, columns, values in the patch)."""

    @staticmethod
    def forward(images: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Any:
        views = images.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
        return views.permute(0, 2, 3, 1, 4, 5).flatten(3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        images, ctx.kernel, ctx.stride = inputs
        ctx.sizes = tuple(images.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back = _PatchesBackward.apply(gradients[0], ctx.sizes, ctx.kernel, ctx.stride)
        return back, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, images: torch.Tensor, *rest: Any) -> Any:
        images = images.movedim(in_dims[0], 0)
        patches = _Patches.apply(images.flatten(0, 1), *rest)
        return patches.unflatten(0, images.shape[:2]), 0


class _PatchesBackward(torch.autograd.Function):
    """Adds up what each pixel was worth in the patches it was part of."""

    @staticmethod
    def forward(
        gradients: torch.Tensor,
        sizes: tuple[int, int, int],
        kernel: tuple[int, int],
        stride: tuple[int, int],
    ) -> Any:
        channels, height, width = sizes
        num, rows = gradients.shape[:2]
        views = gradients.unflatten(3, (channels, *kernel)).permute(0, 3, 1, 2, 4, 5)
        across = [num, channels, rows, width, kernel[0]]
        add_up = torch.ops.aten.unfold_backward
        views = add_up(views, across, 3, kernel[1], stride[1])
        return add_up(views, [num, channels, height, width], 2, kernel[0], stride[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del ctx, inputs, output  # nobody needs a second derivative

    @staticmethod
    def vmap(info: Any, in_dims: Any, gradients: torch.Tensor, *rest: Any) -> Any:
        gradients = gradients.movedim(in_dims[0], 0)
        added = _PatchesBackward.apply(gradients.flatten(0, 1), *rest)
        return added.unflatten(0, gradients.shape[:2]), 0
