"""A small convolutional network, for images down to 4 x 4."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from pisces.errors import ConfigError

_LEAST = 4  # pixels a side: halved twice, one is left


def small_cnn(input_shape: Sequence[int], num_classes: int) -> nn.Sequential:
    """Two 3 x 3 convolutions, each followed by ReLU and pooling, and a linear layer."""
    channels, height, width = image_shape("small_cnn", input_shape, _LEAST, "mlp")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), num_classes),
    )


def image_shape(
    model: str, input_shape: Sequence[int], least: int, instead: str
) -> tuple[int, int, int]:
    """`input_shape` as (channels, height, width), at least `least` pixels a side."""
    shape = tuple(input_shape)
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < least:
        raise ConfigError(
            f"{model} takes images of (channels, height, width), at least {least} pixels a side, "
            f"not inputs of {shape}; use {instead} instead"
        )
    return shape[0], shape[1], shape[2]
