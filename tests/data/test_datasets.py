"""Datasets: shapes, splits, and files that are missing or damaged."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pisces.data.datasets import Dataset, digits, fashion_mnist, mnist, synthetic
from pisces.errors import ConfigError, DataError
from pisces.seeds import generator

Loader = Callable[[Path], Dataset]


def arrays(**changes: Any) -> dict[str, Any]:
    """Six training and two test images in MNIST's format."""
    images = np.zeros((8, 28, 28), np.uint8)
    images[0, 0, 0] = 255
    labels = np.arange(8, dtype=np.uint8)
    tiny = {
        "x_train": images[:6],
        "y_train": labels[:6],
        "x_test": images[6:],
        "y_test": labels[6:],
        "writer_train": np.array([5, 5, 2, 2, 2, 9], np.int16),
    } | changes
    return {key: array for key, array in tiny.items() if array is not None}


def saved(folder: Path, name: str, **changes: Any) -> Path:
    (folder / name).mkdir()
    np.savez(folder / name / f"{name}.npz", **arrays(**changes))
    return folder


def damaged(folder: Path, content: bytes) -> Path:
    (folder / "mnist").mkdir()
    (folder / "mnist" / "mnist.npz").write_bytes(content)
    return folder


# --- digits ---------------------------------------------------------------------------------------


def test_digits() -> None:
    data = digits()
    assert data.inputs.shape == (1438, 1, 8, 8)
    assert data.test_inputs.shape == (359, 1, 8, 8)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert (data.num_classes, data.natural) == (10, None)
    assert float(data.inputs.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(data.inputs.std()) == pytest.approx(1.0, abs=1e-3)


def test_digits_test_set_is_a_fifth_of_every_class() -> None:
    data = digits()
    test, train = torch.bincount(data.test_targets), torch.bincount(data.targets)
    assert torch.equal(test, torch.round((test + train) / 5).long())


def test_digits_seed_shuffles_the_training_samples_only() -> None:
    one, other = digits(1), digits(2)
    assert torch.equal(one.test_inputs, other.test_inputs)
    assert torch.equal(one.test_targets, other.test_targets)
    assert not torch.equal(one.targets, other.targets)
    assert torch.equal(digits(1).inputs, one.inputs)
    assert sorted(map(bytes, one.inputs.numpy())) == sorted(map(bytes, other.inputs.numpy()))


# --- MNIST and Fashion-MNIST ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "name", "mean", "sd"),
    [(mnist, "mnist", 0.1307, 0.3081), (fashion_mnist, "fashion_mnist", 0.2860, 0.3530)],
)
def test_a_tiny_archive(tmp_path: Path, load: Loader, name: str, mean: float, sd: float) -> None:
    data = load(saved(tmp_path, name))
    assert data.inputs.shape == (6, 1, 28, 28)
    assert data.test_inputs.shape == (2, 1, 28, 28)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert data.targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test_targets.tolist() == [6, 7]
    assert data.num_classes == 10
    # a white pixel is (1 - mean) / sd, a black one -mean / sd
    assert float(data.inputs[0, 0, 0, 0]) == pytest.approx((1 - mean) / sd)
    assert float(data.test_inputs[1, 0, 5, 5]) == pytest.approx(-mean / sd)


def test_writers_are_natural_clients_where_the_file_names_them(tmp_path: Path) -> None:
    natural = mnist(saved(tmp_path, "mnist")).natural
    assert natural is not None
    assert natural.dtype == np.int64
    assert natural.tolist() == [5, 5, 2, 2, 2, 9]
    assert fashion_mnist(saved(tmp_path, "fashion_mnist", writer_train=None)).natural is None


@pytest.mark.parametrize(("load", "name"), [(mnist, "mnist"), (fashion_mnist, "fashion_mnist")])
def test_a_missing_file_says_where_it_was_sought(tmp_path: Path, load: Loader, name: str) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / name / f"{name}.npz") in message
    assert "PISCES_DATA" in message
    assert "data.folder" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_train": None}, "no array 'x_train'"),
        ({"y_test": None}, "no array 'y_test'"),
        ({"x_train": np.zeros((6, 28, 28))}, r"x_train is float64\(6, 28, 28\)"),
        ({"x_test": np.zeros((2, 784), np.uint8)}, r"x_test is uint8\(2, 784\)"),
        ({"x_test": np.zeros((0, 28, 28), np.uint8)}, r"x_test is uint8\(0, 28, 28\)"),
        ({"y_train": np.zeros(5, np.uint8)}, "y_train is not one label"),
        ({"y_train": np.array([0, 1, 2, 3, 4, 10])}, "y_train is not one label"),
        ({"y_train": np.array([0, 1, 2, 3, 4, 0.5])}, "y_train is not one label"),
        ({"writer_train": np.zeros(5, np.int16)}, "writer_train has shape"),
        ({"y_train": np.array([{}] * 6)}, "damaged"),  # an object array would have to be unpickled
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        mnist(saved(tmp_path, "mnist", **changes))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = (saved(tmp_path, "mnist") / "mnist" / "mnist.npz").read_bytes()
    np.save(tmp_path / "bare.npy", np.zeros(3))
    contents = {
        "empty": b"",
        "text": b"not an archive",
        "cut": whole[: len(whole) // 2],
        "bare": (tmp_path / "bare.npy").read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        with pytest.raises(DataError, match="damaged or not the dataset"):
            mnist(damaged(tmp_path / name, content))


def test_an_archive_with_a_broken_member_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    path = tmp_path / "mnist" / "mnist.npz"
    np.savez_compressed(path, **arrays())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("x_train.npy").header_offset
    content = bytearray(path.read_bytes())
    content[start + 60 : start + 70] = b"\xff" * 10  # inside the compressed images
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged or not the dataset"):
        mnist(tmp_path)


@pytest.mark.parametrize(
    ("load", "name", "writers"), [(mnist, "mnist", 539), (fashion_mnist, "fashion_mnist", None)]
)
def test_the_real_files(load: Loader, name: str, writers: int | None) -> None:
    folder = Path(os.environ.get("PISCES_DATA", "nowhere"))
    if not (folder / name / f"{name}.npz").is_file():
        pytest.skip(f"PISCES_DATA names no folder with {name}")
    data = load(folder)
    assert data.inputs.shape == (60_000, 1, 28, 28)
    assert data.test_inputs.shape == (10_000, 1, 28, 28)
    assert float(data.inputs.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(data.inputs.std()) == pytest.approx(1.0, abs=1e-3)
    assert set(data.targets.tolist()) == set(range(10))
    assert (None if data.natural is None else len(np.unique(data.natural))) == writers


# --- synthetic ------------------------------------------------------------------------------------


def test_synthetic_classes_are_balanced_and_can_be_told_apart() -> None:
    data = synthetic(300, 10, 3, generator(0))
    assert data.inputs.shape == (300, 10)
    assert data.test_inputs.shape == (75, 10)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert torch.bincount(data.targets).tolist() == [100, 100, 100]
    centres = torch.stack([data.inputs[data.targets == k].mean(0) for k in range(3)])
    nearest = torch.cdist(data.test_inputs, centres).argmin(1)
    assert float((nearest == data.test_targets).float().mean()) > 0.95


def test_synthetic_draws_from_its_generator() -> None:
    one, same, other = (synthetic(20, 3, 2, generator(s)) for s in (0, 0, 1))
    assert torch.equal(one.inputs, same.inputs)
    assert not torch.equal(one.inputs, other.inputs)


def test_a_small_synthetic_problem_still_tests_every_class() -> None:
    assert set(synthetic(5, 2, 5, generator(0)).test_targets.tolist()) == set(range(5))


@pytest.mark.parametrize("sizes", [(1, 3, 2), (10, 0, 2), (10, 3, 1)])
def test_impossible_synthetic_problems_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match=f"{sizes[2]} classes, {sizes[1]} features"):
        synthetic(*sizes, generator(0))
