"""Where datasets are looked for, what is said when they are not there, and the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import datafiles
import numpy as np
import pytest
import torch

from pisces.data.catalogue import CATALOGUE
from pisces.data.finding import cache, folders, found, load, search
from pisces.errors import DataError, MissingDataError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world where `PISCES_DATA` is `tmp_path/named` and the cache is `tmp_path/pisces`."""
    monkeypatch.setenv("PISCES_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_places(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folders("here") == [Path("here")]
    assert folders() == [places / "named", places / "pisces"]
    monkeypatch.delenv("PISCES_DATA")
    assert folders() == [places / "pisces"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(places))
    assert cache() == places / ".cache" / "pisces"


def test_the_first_place_that_has_it(places: Path) -> None:
    datafiles.mnist_npz(places / "pisces" / "mnist")
    assert found("mnist", folders()).folder == places / "pisces" / "mnist"
    datafiles.mnist_idx(places / "named" / "mnist")
    assert found("mnist", folders()).folder == places / "named" / "mnist"
    assert load("mnist").natural is None  # IDX files name no writers
    assert load("mnist", str(places / "pisces")).natural is not None


def test_a_folder_that_is_named_is_the_only_place(places: Path) -> None:
    datafiles.mnist_npz(places / "named" / "mnist")
    with pytest.raises(DataError):
        load("mnist", str(places / "other"))


def test_a_ready_file_comes_before_others(tmp_path: Path) -> None:
    datafiles.mnist_npz(datafiles.mnist_idx(tmp_path))
    place = search(CATALOGUE["mnist"], tmp_path)
    assert place is not None
    assert place.source is CATALOGUE["mnist"].ready
    assert place.num_bytes == (tmp_path / "mnist.npz").stat().st_size


def test_files_two_folders_below_are_found_and_all_must_be_in_one(tmp_path: Path) -> None:
    datafiles.mnist_idx(tmp_path / "MNIST" / "raw")  # as torchvision keeps them
    place = search(CATALOGUE["mnist"], tmp_path)
    assert place is not None
    assert place.folder == tmp_path / "MNIST" / "raw"
    (tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").rename(
        tmp_path / "t10k-labels-idx1-ubyte"
    )
    assert search(CATALOGUE["mnist"], tmp_path) is None


def test_files_in_two_folders_are_not_guessed_between(tmp_path: Path) -> None:
    for name in ("FashionMNIST", "MNIST"):
        datafiles.mnist_idx(tmp_path / name / "raw")
    with pytest.raises(
        DataError, match=r"in .*FashionMNIST/raw and in .*/MNIST/raw: name one"
    ) as e:
        search(CATALOGUE["mnist"], tmp_path)
    assert not isinstance(e.value, MissingDataError)  # it is there, and more than once
    assert search(CATALOGUE["mnist"], tmp_path / "MNIST") is not None


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_missing_dataset_says_how_to_get_it_and_where_it_looked(places: Path, name: str) -> None:
    with pytest.raises(MissingDataError) as caught:
        load(name)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert f"pisces data get {name}" in message
    assert str(places / "named" / name) in message
    assert str(places / "pisces" / name) in message
    assert "data.folder" in message
    assert CATALOGUE[name].ready.files[0] in message


def test_half_a_dataset_says_what_is_missing(places: Path) -> None:
    folder = datafiles.mnist_idx(places / "named" / "mnist" / "raw")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(MissingDataError) as caught:
        load("mnist")
    message = str(caught.value)
    assert message.startswith("mnist is not whole: there is train-images*idx3-ubyte*, ")
    assert "but no t10k-labels*idx1-ubyte* beside it. Get it: pisces data get mnist" in message


def real(name: str) -> str:
    """The folder that `PISCES_DATA` names, if it has the dataset."""
    folder = Path(os.environ.get("PISCES_DATA", "nowhere"))
    if search(CATALOGUE[name], folder / name) is None:
        pytest.skip(f"PISCES_DATA names no folder with {name}")
    return str(folder)


@pytest.mark.parametrize(
    ("name", "shape", "num_test"),
    [
        ("mnist", (60_000, 1, 28, 28), 10_000),
        ("fashion_mnist", (60_000, 1, 28, 28), 10_000),
        ("cifar10", (50_000, 3, 32, 32), 10_000),
    ],
)
def test_the_real_images(name: str, shape: tuple[int, ...], num_test: int) -> None:
    data = load(name, real(name))
    assert data.inputs.shape == shape
    assert len(data.test_inputs) == num_test
    assert float(data.inputs.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(data.inputs.std()) == pytest.approx(1.0, abs=1e-3)
    assert torch.bincount(data.targets).shape == (10,)


def test_the_real_writers() -> None:
    natural = load("mnist", real("mnist")).natural
    if natural is not None:  # IDX files alone name none
        assert len(np.unique(natural)) == 539


def test_the_real_posts() -> None:
    data = load("stackexchange", real("stackexchange"))
    assert (data.num_classes, data.objective) == (10_000, "next_word")
    assert data.inputs.shape[1] == data.targets.shape[1] == 32
    assert torch.equal(data.inputs[:, 1:], data.targets[:, :-1])
    assert int(data.inputs.max()) < 10_000
    assert float((data.targets != 1).float().mean()) > 0.9  # 10 000 words are most there are
    assert data.natural is not None
    assert len(np.unique(data.natural)) > 1000
    assert len(data.test_inputs) > 0.05 * len(data.inputs)
