"""What a dataset is, and those that need no files: digits, and clouds of points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.types import Objective


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples to train on and a held-out test set.

    Images are float32 (n, channels, height, width) with one label each. Text is int64 (n, length)
    with targets of the same shape, which are the inputs moved on by one word; `num_classes` is then
    the size of the vocabulary. `natural` says which natural client (writer, author) each training
    sample belongs to.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    test_inputs: torch.Tensor
    test_targets: torch.Tensor
    num_classes: int
    natural: NDArray[np.int64] | None = None
    objective: Objective = "labels"


def digits(seed: int = 0) -> Dataset:
    """Scikit-learn's 1 797 handwritten digits of 8 x 8 pixels, standardised.

    The test set is every fifth sample of each class, the same in every run; `seed` only shuffles
    the training samples, which come ordered by writer.
    """
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    pixels, labels = load_digits(return_X_y=True)
    in_test = _every_fifth(labels)
    mean, sd = pixels[~in_test].mean(), pixels[~in_test].std()
    images = torch.from_numpy((pixels - mean) / sd).float().view(-1, 1, 8, 8)
    targets = torch.from_numpy(labels.astype(np.int64))
    train = generator(seed, "digits").permutation(np.flatnonzero(~in_test))
    return Dataset(images[train], targets[train], images[in_test], targets[in_test], 10)


def synthetic(
    num_samples: int, num_features: int, num_classes: int, rng: np.random.Generator
) -> Dataset:
    """One gaussian cloud per class, with a quarter as many test samples besides."""
    if num_samples < num_classes or num_classes < 2 or num_features < 1:
        raise ConfigError(
            "a synthetic problem needs 2 classes, a feature and a sample per class at least, "
            f"not {num_classes} classes, {num_features} features and {num_samples} samples"
        )
    centres = 2 * rng.standard_normal((num_classes, num_features))
    num_all = num_samples + max(num_samples // 4, num_classes)
    labels = np.arange(num_all) % num_classes
    noise = rng.standard_normal((num_all, num_features))
    inputs = torch.from_numpy((centres[labels] + noise).astype(np.float32))
    targets = torch.from_numpy(labels)
    train, test = slice(None, num_samples), slice(num_samples, None)
    return Dataset(inputs[train], targets[train], inputs[test], targets[test], num_classes)


def _every_fifth(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[2::5]] = True  # from the third: n / 5, rounded
    return chosen
