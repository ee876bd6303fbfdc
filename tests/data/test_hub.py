"""The hub's own package, on datasets in a local folder: no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datafiles
import numpy as np
import pytest

from pisces.data.catalogue import CATALOGUE
from pisces.data.hub import Hub
from pisces.data.raw import Documents, Images, silent
from pisces.errors import DataError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package `datasets`, offline, with a cache of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)  # read when it was imported
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


def local(name: str, folder: Path) -> Hub:
    """A dataset of the catalogue, as if the hub had it under the name of a folder."""
    hub = CATALOGUE[name].hub
    assert hub is not None
    return Hub(str(folder), hub.reader, hub.splits)


def test_pictures_and_labels(tmp_path: Path, package: Any) -> None:
    images = datafiles.colour(8).transpose(0, 2, 3, 1)
    kinds = package.Features(
        {"img": package.Image(), "label": package.ClassLabel(names=list("0123456789"))}
    )
    parts = {"train": range(6), "test": range(6, 8)}
    for part, rows in parts.items():
        columns = {"img": [images[row] for row in rows], "label": list(rows)}
        saved = package.Dataset.from_dict(columns, features=kinds)
        saved.to_parquet(tmp_path / "data" / f"{part}-00000-of-00001.parquet")
    told: list[tuple[int, int]] = []
    found = local("cifar10", tmp_path / "data").fetch(lambda *done: told.append(done))
    assert isinstance(found, Images)
    assert np.array_equal(found.train, datafiles.colour(8)[:6])
    assert np.array_equal(found.test, datafiles.colour(8)[6:])
    assert (found.labels.tolist(), found.test_labels.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7])
    assert told == [(0, 6), (0, 2)]


def test_texts_in_several_batches(
    tmp_path: Path, package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisces.data.hub._BATCH", 7)
    x, y = datafiles.sliding("to be or not to be " * 9)
    columns = {"character_id": ["BOY"] * len(x), "x": x, "y": y}
    package.Dataset.from_dict(columns).to_parquet(tmp_path / "data" / "train.parquet")
    found = local("shakespeare", tmp_path / "data").fetch(silent)
    assert isinstance(found, Documents)
    assert "".join(found.vocabulary[found.words[:-1]]) == "to be or not to be " * 9


def test_a_part_that_is_not_there_and_a_name_that_nobody_has(tmp_path: Path, package: Any) -> None:
    columns = {"image": [1], "label": [1]}
    package.Dataset.from_dict(columns).to_parquet(tmp_path / "data" / "train.parquet")
    with pytest.raises(DataError, match="has no part 'test', only train"):
        local("mnist", tmp_path / "data").fetch(silent)
    hub = CATALOGUE["mnist"].hub
    assert hub is not None
    with pytest.raises(
        DataError, match=r"could not be had from the Hugging Face hub \(.*try again"
    ):
        Hub("nobody/nothing", hub.reader).fetch(silent)
