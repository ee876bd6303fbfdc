"""A multilayer perceptron, for inputs of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from pisces.errors import ConfigError


def mlp(
    input_shape: Sequence[int], num_classes: int, hidden: Sequence[int] = (64,)
) -> nn.Sequential:
    """Fully connected layers with ReLU between them; without `hidden`, a linear model."""
    if min((*input_shape, *hidden, num_classes)) < 1:
        raise ConfigError(
            "every size of an mlp must be at least 1, not inputs of "
            f"{tuple(input_shape)}, hidden layers of {tuple(hidden)} and {num_classes} classes"
        )
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for next_width in hidden:
        layers += [nn.Linear(width, next_width), nn.ReLU()]
        width = next_width
    return nn.Sequential(*layers, nn.Linear(width, num_classes))
