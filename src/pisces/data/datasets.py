"""Datasets, read from scikit-learn or from a folder of `.npz` files."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.errors import ConfigError, DataError
from pisces.seeds import generator

# whatever numpy raises for a file that is not the archive it should be (TypeError: a bare `.npy`)
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


Objective = Literal["labels", "next_word"]


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


def mnist(folder: str | PathLike[str]) -> Dataset:
    """MNIST out of `<folder>/mnist/mnist.npz`, with its writers where the file names them."""
    return _images(folder, "mnist", mean=0.1307, sd=0.3081)


def fashion_mnist(folder: str | PathLike[str]) -> Dataset:
    """Fashion-MNIST out of `<folder>/fashion_mnist/fashion_mnist.npz`."""
    return _images(folder, "fashion_mnist", mean=0.2860, sd=0.3530)


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


def _images(folder: str | PathLike[str], name: str, *, mean: float, sd: float) -> Dataset:
    path = Path(folder) / name / f"{name}.npz"
    arrays = _read(path)
    inputs, targets = _checked(path, arrays, "train")
    test_inputs, test_targets = _checked(path, arrays, "test")
    writers = arrays.get("writer_train")
    if writers is not None and writers.shape != targets.shape:
        raise _damaged(path, f"writer_train has shape {writers.shape}, y_train {targets.shape}")
    return Dataset(
        inputs=_normalised(inputs, mean, sd),
        targets=torch.from_numpy(targets.astype(np.int64)),
        test_inputs=_normalised(test_inputs, mean, sd),
        test_targets=torch.from_numpy(test_targets.astype(np.int64)),
        num_classes=10,
        natural=None if writers is None else writers.astype(np.int64),
    )


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    if not path.is_file():
        raise DataError(
            f"{path} is not there; the environment variable PISCES_DATA or the setting data.folder "
            f"must name the folder that holds {path.parent.name}/{path.name}"
        )
    wanted = {"x_train", "y_train", "x_test", "y_test", "writer_train"}
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files if key in wanted}
    except _UNREADABLE as error:
        raise _damaged(path, str(error)) from error


def _checked(
    path: Path, arrays: dict[str, NDArray[np.generic]], part: str
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    try:
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    except KeyError as error:
        raise _damaged(path, f"it has no array {error}") from error
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28) or len(images) == 0:
        raise _damaged(path, f"x_{part} is {images.dtype}{images.shape}, not uint8(n, 28, 28)")
    if labels.shape != (len(images),) or not np.isin(labels, range(10)).all():
        raise _damaged(path, f"y_{part} is not one label from 0 to 9 per image")
    return images, labels


def _normalised(images: NDArray[np.generic], mean: float, sd: float) -> torch.Tensor:
    # in place: the whole of MNIST is 190 MB as floats
    return torch.from_numpy(images).float().div_(255).sub_(mean).div_(sd).unsqueeze(1)


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is damaged or not the dataset ({reason}); put a good copy there, or point "
        "PISCES_DATA or data.folder elsewhere"
    )
