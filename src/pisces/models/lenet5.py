"""LeNet-5 (LeCun et al., Proc. IEEE 1998), in the form the Pisces paper trains.

Differs from the paper: ReLU and max pooling in place of tanh-like units and trained averaging, full
connections between the convolutions, and a linear output layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from pisces.models.cnn import image_shape

_LEAST = 12  # pixels a side: 12 are pooled to 6, convolved to 2, pooled to 1


def lenet5(input_shape: Sequence[int], num_classes: int) -> nn.Sequential:
    """61 706 parameters for 28 x 28 grey images of 10 classes."""
    channels, height, width = image_shape("lenet5", input_shape, _LEAST, "mlp or small_cnn")
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * _side(height) * _side(width), 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, num_classes),
    )


def _side(pixels: int) -> int:
    """What is left of a side: pooled, convolved without padding, pooled."""
    return (pixels // 2 - 4) // 2
