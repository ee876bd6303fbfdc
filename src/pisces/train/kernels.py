"""Convolution and pooling of many clients at once on a GPU, written in Triton.

Libraries have kernels for one model over many samples, or for many groups of channels; a
federation has many small models over few samples each. These do a whole group of clients in one
launch, straight from the images (no patches are written to memory), and add up in a fixed order.

Tensors are stacked: images (clients, samples, channels, height, width), kernels (clients, outputs,
channels, height, width), in float32 or bfloat16; sums are in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

Pair = tuple[int, int]

_TILE = 256  # positions of an image that a program works on, two for each of its threads
_WARP = 32  # positions at a time where gradients are added up: then no thread waits for another
_SUMS = 16  # outputs a thread adds up gradients for, each with a line of a kernel
_LINES = 128  # work is split until a client has this many programs, to keep the whole GPU busy


def can_take(images: torch.Tensor) -> bool:
    """Are these images of a kind, and in a place, that the kernels can work on?"""
    reachable = images.is_cuda or triton.knobs.runtime.interpret
    return reachable and images.dtype in (torch.float32, torch.bfloat16)


def convolve(
    images: torch.Tensor, kernels: torch.Tensor, bias: torch.Tensor | None, stride: Pair, pad: Pair
) -> torch.Tensor:
    """`conv2d` of every client's images with its own kernels."""
    clients, num, channels, height, width = images.shape
    outputs, size = kernels.shape[1], _size(kernels)
    rows, columns = (
        _out(height, size[0], stride[0], pad[0]),
        _out(width, size[1], stride[1], pad[1]),
    )
    convolved = images.new_empty(clients, num, outputs, rows, columns)
    across = _across(outputs)
    grid = (triton.cdiv(num * rows * columns, _TILE), clients, triton.cdiv(outputs, across))
    _convolve[grid](
        images.contiguous(), _rowwise(kernels), _rowwise(bias) if bias is not None else images,
        convolved, _rowwise(kernels).stride(0), bias.stride(0) if bias is not None else 0,
        num, channels, height, width, outputs, rows, columns,
        *size, *stride, *pad, bias is not None, _TILE, across,
    )  # fmt: skip
    return convolved


def image_gradient(
    gradient: torch.Tensor, kernels: torch.Tensor, sizes: Pair, stride: Pair, pad: Pair
) -> torch.Tensor:
    """What each pixel contributed, given what each output is worth."""
    clients, num, outputs, rows, columns = gradient.shape
    channels, size = kernels.shape[2], _size(kernels)
    result = gradient.new_empty(clients, num, channels, *sizes)
    across = _across(channels)
    grid = (triton.cdiv(num * sizes[0] * sizes[1], _TILE), clients, triton.cdiv(channels, across))
    _image_gradient[grid](
        gradient.contiguous(), _rowwise(kernels), result, _rowwise(kernels).stride(0),
        num, channels, *sizes, outputs, rows, columns,
        *size, *stride, *pad, _TILE, across,
    )  # fmt: skip
    return result


def kernel_gradient(
    gradient: torch.Tensor, images: torch.Tensor, size: Pair, stride: Pair, pad: Pair
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each kernel and each bias contributed."""
    clients, num, outputs, rows, columns = gradient.shape
    channels, height, width = images.shape[2:]
    lines, deep = channels * size[0], triton.next_power_of_2(size[1] + 1)
    across = min(_SUMS, _across(outputs))
    turns = triton.cdiv(num * rows * columns, _WARP)
    splits = min(turns, triton.cdiv(_LINES, lines))
    partial = torch.empty(
        splits, clients, outputs, lines, deep, dtype=torch.float32, device=images.device
    )
    grid = (splits * lines, clients, triton.cdiv(outputs, across))
    _kernel_gradient[grid](
        gradient.contiguous(), images.contiguous(), partial,
        num, channels, height, width, outputs, rows, columns,
        splits, triton.cdiv(turns, splits) * _WARP,
        *size, *stride, *pad, _WARP, across, deep,
        num_warps=1,
    )  # fmt: skip
    whole = partial.sum(dim=0).to(images.dtype)
    return whole[..., : size[1]].unflatten(2, (channels, size[0])), whole[..., 0, size[1]]


def pool(images: torch.Tensor, size: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest pixel of each `size` window, side by side, and which one it was."""
    *planes, height, width = images.shape
    rows, columns = height // size[0], width // size[1]
    largest = images.new_empty(*planes, rows, columns)
    which = torch.empty_like(largest, dtype=torch.uint8)
    block = 512
    grid = (triton.cdiv(largest.numel(), block),)
    _pool[grid](
        images.contiguous(), largest, which, largest.numel(),
        height, width, rows, columns, *size, block,
    )  # fmt: skip
    return largest, which


def pool_gradient(
    gradient: torch.Tensor, which: torch.Tensor, sizes: Pair, size: Pair
) -> torch.Tensor:
    """The gradient goes to the pixel that was the largest."""
    *planes, rows, columns = gradient.shape
    result = gradient.new_empty(*planes, *sizes)
    block = 512
    grid = (triton.cdiv(result.numel(), block),)
    _pool_gradient[grid](
        gradient.contiguous(), which, result, result.numel(), *sizes, rows, columns, *size, block
    )
    return result


def _size(kernels: torch.Tensor) -> Pair:
    return kernels.shape[3], kernels.shape[4]


def _out(size: int, kernel: int, stride: int, pad: int) -> int:
    return (size + 2 * pad - kernel) // stride + 1


def _across(channels: int) -> int:
    """Channels a program works on: a thread adds up one number for each."""
    return min(16, int(triton.next_power_of_2(channels)))


def _rowwise(stacked: torch.Tensor) -> torch.Tensor:
    """Each client's part in one piece; the parts may lie apart, as they do in flat weights."""
    return stacked if stacked[0].is_contiguous() else stacked.contiguous()


@triton.jit
def _convolve(
    images, kernels, bias, convolved, kernels_apart, bias_apart,
    num: tl.constexpr, channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    outputs: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr, down: tl.constexpr, right: tl.constexpr,
    pad_down: tl.constexpr, pad_right: tl.constexpr, has_bias: tl.constexpr,
    TILE: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    out = tl.program_id(2) * ACROSS + tl.arange(0, ACROSS)
    area: tl.constexpr = rows * columns
    products: tl.constexpr = channels * high * wide
    sample, place = at // area, at % area
    top, left = (place // columns) * down - pad_down, (place % columns) * right - pad_right
    there, wanted = at < num * area, out < outputs
    images += client * num * channels * height * width + sample * channels * height * width
    kernels += client * kernels_apart + out * products
    total = tl.zeros((ACROSS, TILE), tl.float32)
    for channel in range(channels):
        for i in tl.static_range(high):
            for j in tl.static_range(wide):
                y, x = top + i, left + j
                inside = there & (y >= 0) & (y < height) & (x >= 0) & (x < width)
                pixel = tl.load(images + (channel * height + y) * width + x, mask=inside, other=0.0)
                weight = tl.load(kernels + (channel * high + i) * wide + j, mask=wanted, other=0.0)
                total += weight.to(tl.float32)[:, None] * pixel.to(tl.float32)[None, :]
    if has_bias:
        total += tl.load(bias + client * bias_apart + out, mask=wanted, other=0.0).to(tl.float32)[
            :, None
        ]
    convolved += client * num * outputs * area
    to = (sample * outputs * area + place)[None, :] + (out * area)[:, None]
    tl.store(
        convolved + to, total.to(convolved.dtype.element_ty), mask=wanted[:, None] & there[None, :]
    )


@triton.jit
def _image_gradient(
    gradient, kernels, result, kernels_apart,
    num: tl.constexpr, channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    outputs: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr, down: tl.constexpr, right: tl.constexpr,
    pad_down: tl.constexpr, pad_right: tl.constexpr,
    TILE: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    channel = tl.program_id(2) * ACROSS + tl.arange(0, ACROSS)
    area: tl.constexpr = height * width
    sample, place = at // area, at % area
    bottom, most_right = place // width + pad_down, place % width + pad_right
    there, wanted = at < num * area, channel < channels
    gradient += client * num * outputs * rows * columns + sample * outputs * rows * columns
    kernels += client * kernels_apart + channel * high * wide
    total = tl.zeros((ACROSS, TILE), tl.float32)
    for out in range(outputs):
        for i in tl.static_range(high):
            for j in tl.static_range(wide):
                row, column = bottom - i, most_right - j
                inside = there & (row >= 0) & (column >= 0)
                inside = inside & (row % down == 0) & (column % right == 0)
                row, column = row // down, column // right
                inside = inside & (row < rows) & (column < columns)
                worth = tl.load(
                    gradient + (out * rows + row) * columns + column, mask=inside, other=0.0
                )
                weight = tl.load(
                    kernels + (out * channels * high + i) * wide + j, mask=wanted, other=0.0
                )
                total += weight.to(tl.float32)[:, None] * worth.to(tl.float32)[None, :]
    result += client * num * channels * area
    to = (sample * channels * area + place)[None, :] + (channel * area)[:, None]
    tl.store(result + to, total.to(result.dtype.element_ty), mask=wanted[:, None] & there[None, :])


@triton.jit
def _kernel_gradient(
    gradient, images, partial,
    num: tl.constexpr, channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    outputs: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    splits: tl.constexpr, share: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr, down: tl.constexpr, right: tl.constexpr,
    pad_down: tl.constexpr, pad_right: tl.constexpr,
    TILE: tl.constexpr, ACROSS: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    split, line = tl.program_id(0) % splits, tl.program_id(0) // splits
    channel, i = line // high, line % high
    # A line of the kernel and, as a pixel that is always 1, the bias. In scattered order: of two
    # that follow each other Triton 3.6 takes one to lie inside the image because the other does.
    j = (tl.arange(0, DEEP) * 3) % DEEP
    out = tl.program_id(2) * ACROSS + tl.arange(0, ACROSS)
    area: tl.constexpr = rows * columns
    images += (client * num * channels + channel) * height * width
    gradient += client * num * outputs * area
    total = tl.zeros((ACROSS, DEEP, TILE), tl.float32)
    for turn in range(0, share, TILE):
        at = split * share + turn + tl.arange(0, TILE)
        sample, place = at // area, at % area
        there = at < num * area
        y = (place // columns) * down + i - pad_down
        x = ((place % columns) * right)[None, :] + (j - pad_right)[:, None]
        inside = (there & (y >= 0) & (y < height))[None, :] & (j < wide)[:, None]
        inside = inside & (x >= 0) & (x < width)
        start = sample * channels * height * width + y * width
        pixel = tl.load(images + start[None, :] + x, mask=inside, other=0.0).to(tl.float32)
        pixel = tl.where((j == wide)[:, None], 1.0, pixel)
        start = sample * outputs * area + place
        known = (out < outputs)[:, None] & there[None, :]
        worth = tl.load(gradient + (out * area)[:, None] + start[None, :], mask=known, other=0.0)
        total += worth.to(tl.float32)[:, None, :] * pixel[None, :, :]
    row = ((split * tl.num_programs(1) + client) * outputs + out) * channels * high + line
    to = row[:, None] * DEEP + j[None, :]
    tl.store(partial + to, tl.sum(total, axis=2), mask=(out < outputs)[:, None])


@triton.jit
def _pool(
    images, largest, which, num,
    height: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane, row, column = at // (rows * columns), (at // columns) % rows, at % columns
    corner = plane * height * width + row * high * width + column * wide
    best = tl.load(images + corner, mask=at < num, other=0.0)
    place = tl.zeros((BLOCK,), tl.uint8)
    for i in tl.static_range(high):
        for j in tl.static_range(wide):
            pixel = tl.load(images + corner + i * width + j, mask=at < num, other=0.0)
            better = (pixel > best) | (pixel != pixel)  # the first of equals; not-a-number wins
            best = tl.where(better, pixel, best)
            place = tl.where(better, i * wide + j, place).to(tl.uint8)
    tl.store(largest + at, best, mask=at < num)
    tl.store(which + at, place, mask=at < num)


@triton.jit
def _pool_gradient(
    gradient, which, result, num,
    height: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane, y, x = at // (height * width), (at // width) % height, at % width
    row, column = y // high, x // wide
    there = (at < num) & (row < rows) & (column < columns)
    place = (plane * rows + row) * columns + column
    chosen = tl.load(which + place, mask=there, other=0)
    worth = tl.load(gradient + place, mask=there, other=0.0)
    here = there & (chosen == (y % high) * wide + x % wide)
    tl.store(result + at, tl.where(here, worth, 0.0).to(result.dtype.element_ty), mask=at < num)
