"""Datasets in every form they come in, damaged: told in a line, and without filling the memory."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import datafiles
import numpy as np
import pytest
from fuzzing import MANY, damaged_bytes, few, little_memory, obeyed, pisces
from hypothesis import given
from hypothesis import strategies as st

NUM = 25


def leaf(folder: Path) -> None:
    images = datafiles.leaf_images(datafiles.grey(10))
    datafiles.leaf(folder / "all_data_0.json", {"a": (images, list(range(10)))})


def parquet(folder: Path) -> None:
    for part, num in (("train", 6), ("test", 2)):
        columns = {"image": datafiles.pictures(datafiles.grey(num)), "label": list(range(num))}
        datafiles.parquet(folder / f"{part}.parquet", columns)


# form -> the dataset, and what makes it in a folder
FORMS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "idx": ("mnist", datafiles.mnist_idx),
    "idx.gz": ("mnist", lambda folder: datafiles.mnist_idx(folder, zipped=True)),
    "npz": ("mnist", datafiles.mnist_npz),
    "parquet": ("mnist", parquet),
    "pickles": ("cifar10", datafiles.cifar_batches),
    "leaf": ("femnist", leaf),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each form; all of them are read once, so that nothing is loaded later."""
    folder = tmp_path_factory.mktemp("forms")
    for form, (name, make) in FORMS.items():
        make(folder / form / name)
        assert pisces("data", "check", name, "--folder", folder / form).code == 0, form
    return folder


def fuzz(made: Path, form: str, data: st.DataObject) -> None:
    name, _ = FORMS[form]
    folder = made.parent / f"{made.name}-copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made / form, folder)
    path = data.draw(st.sampled_from(sorted(p for p in folder.rglob("*") if p.is_file())))
    path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    with little_memory():
        if data.draw(st.booleans()):
            obeyed(folder, "data", "check", name, "--folder", folder)
        else:
            origin, out = folder / name, folder / "got"
            said = obeyed(
                folder,
                *("data", "get", name, "--from", origin, "--folder", out, "-q"),
                writes=[out],
            )
            assert said.code == 0 or not list(out.rglob("*.npz"))


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@few(NUM)
def test_damaged_datasets(made: Path, form: str, data: st.DataObject) -> None:
    fuzz(made, form, data)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@few(NUM * MANY)
def test_many_damaged_datasets(made: Path, form: str, data: st.DataObject) -> None:
    fuzz(made, form, data)


def test_a_gzip_bomb_takes_no_more_than_its_header_allows(made: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(made / "idx.gz", tmp_path / "bomb")
    path = folder / "mnist" / "train-images-idx3-ubyte.gz"
    header = gzip.decompress(path.read_bytes())[:16]
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(512):  # half a GiB of zeros in 2 MB
            file.write(bytes(1 << 20))
    with little_memory(64 << 20):
        said = obeyed(folder, "data", "check", "mnist", "--folder", folder)
    assert said.code == 1
    assert "and there are more" in said.err + said.out


IN_LITTLE = """
import sys
from fuzzing import little_memory, pisces
check = ("data", "check", "mnist", "--folder")
assert pisces(*check, sys.argv[1]).code == 0  # which imports all that it takes
with little_memory(64 << 20):
    said = pisces(*check, sys.argv[2])
print(said.code, said.err, said.out)
"""


def test_an_archive_that_does_not_fit_in_memory(tmp_path: Path) -> None:
    # In a process of its own: one that had more before, and kept it, has room for it.
    for name in ("good", "vast"):
        datafiles.mnist_npz(tmp_path / name / "mnist")
    path = tmp_path / "vast" / "mnist" / "mnist.npz"
    arrays = dict(np.load(path)) | {"x_train": np.zeros((500_000, 28, 28), np.uint8)}
    np.savez_compressed(path, **arrays)  # 400 kB
    command = [sys.executable, "-c", IN_LITTLE, tmp_path / "good", tmp_path / "vast"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("1 "), done.stderr
    assert "it asks for more memory than there is" in done.stdout
