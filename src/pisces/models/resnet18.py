"""ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016), small images.

Differs from the paper: the stem is one 3 x 3 convolution without pooling, as is usual for CIFAR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from pisces.errors import ConfigError
from pisces.models.cnn import image_shape

Norm = Literal["batch", "group"]

_LEAST = 8  # pixels a side: halved three times, one is left
_CHANNELS_PER_GROUP = 16  # Wu and He, "Group Normalization", ECCV 2018
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block


def resnet18(input_shape: Sequence[int], num_classes: int, norm: Norm = "batch") -> nn.Sequential:
    """11 173 962 parameters for 32 x 32 colour images of 10 classes."""
    channels, _, _ = image_shape("resnet18", input_shape, _LEAST, "mlp or small_cnn")
    make_norm = _norm(norm)
    blocks: list[nn.Module] = []
    width = 64
    for stage, stride in _STAGES:
        blocks += [Block(width, stage, stride, make_norm), Block(stage, stage, 1, make_norm)]
        width = stage
    return nn.Sequential(
        _conv(channels, 64, 3, 1),
        make_norm(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(
        self, channels: int, width: int, stride: int, make_norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(channels, width, 3, stride), make_norm(width)
        self.conv2, self.norm2 = _conv(width, width, 3, 1), make_norm(width)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.around = nn.Sequential(_conv(channels, width, 1, stride), make_norm(width))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The input, and what the convolutions add to it."""
        hidden = functional.relu(self.norm1(self.conv1(inputs)))
        outputs: torch.Tensor = self.norm2(self.conv2(hidden)) + self.around(inputs)
        return functional.relu(outputs)


def _conv(channels: int, width: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)


def _norm(kind: Norm) -> Callable[[int], nn.Module]:
    match kind:
        case "batch":
            return nn.BatchNorm2d
        case "group":
            return lambda width: nn.GroupNorm(width // _CHANNELS_PER_GROUP, width)
        case _:
            raise ConfigError(f"norm: must be batch or group, not {kind!r}")
