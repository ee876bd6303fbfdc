"""The CNN of LEAF's FEMNIST task (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018),
as in its code: two convolutions of 5 x 5, each pooled, and a wide layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from pisces.models.cnn import image_shape

_LEAST = 4  # pixels a side: halved twice, one is left
_WIDTH = 2048  # of the layer before the last


def femnist_cnn(input_shape: Sequence[int], num_classes: int) -> nn.Sequential:
    """6 603 710 parameters for 28 x 28 grey images of 62 classes."""
    channels, height, width = image_shape("femnist_cnn", input_shape, _LEAST, "mlp")
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), _WIDTH),
        nn.ReLU(),
        nn.Linear(_WIDTH, num_classes),
    )
