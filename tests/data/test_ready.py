"""Getting datasets: from files, archives and the hub; whole or not at all; checksums."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import datafiles
import numpy as np
import pytest

from pisces.data import ready
from pisces.data.catalogue import CATALOGUE
from pisces.data.finding import found, load, search
from pisces.data.formats import npz
from pisces.data.raw import Documents
from pisces.data.text import Cut
from pisces.errors import DataError, MissingDataError, MissingPackageError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shakespeare(folder: Path) -> Path:
    users = {role: datafiles.sliding(f"{role} says " * 12) for role in ("BOY", "HAMLET", "ZOE")}
    return datafiles.leaf(folder / "all_data.json", users).parent


# --- from files -----------------------------------------------------------------------------------


def test_files_become_one_ready_file_with_its_checksum(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    origin = datafiles.cifar_batches(tmp_path / "cifar-10-batches-py")
    published = ready.get("cifar10", tmp_path / "data", origin, lambda *done: told.append(done))
    assert published is False
    target = tmp_path / "data" / "cifar10" / "cifar10.npz"
    assert names(target.parent) == ["cifar10.npz", "sha256.json"]
    assert told == [(number, 6) for number in range(6)]
    assert load("cifar10", str(tmp_path / "data")).inputs.shape == (10, 3, 32, 32)
    place, again = (search(CATALOGUE["cifar10"], p) for p in (origin, target.parent))
    assert place is not None
    assert again is not None
    assert again.source is CATALOGUE["cifar10"].ready
    assert place.read().digest() == again.read().digest()  # type: ignore[union-attr]
    assert ready.compare(target.parent)


def test_text_is_kept_with_what_its_files_say(tmp_path: Path) -> None:
    train = {"BOY": datafiles.sliding("be" * 50), "HAMLET": datafiles.sliding("or" * 60)}
    datafiles.leaf(tmp_path / "train" / "a.json", train)
    datafiles.leaf(tmp_path / "test" / "a.json", {"BOY": datafiles.sliding("not" * 30)})
    ready.get("shakespeare", tmp_path / "data", tmp_path)
    texts = npz.text([[tmp_path / "data" / "shakespeare" / "shakespeare_tokens.npz"]], print)
    assert isinstance(texts, Documents)
    assert texts.in_test is not None
    assert texts.in_test.tolist() == [False, True, False]
    data = load("shakespeare", str(tmp_path / "data"), Cut(sequence_length=20))
    assert (len(data.inputs), len(data.test_inputs)) == (101 // 21 + 121 // 21, 91 // 21)
    assert data.num_classes == 3 + len(set("beornt"))


def test_femnist_keeps_its_writers(tmp_path: Path) -> None:
    images = datafiles.leaf_images(datafiles.grey(20))
    datafiles.leaf(
        tmp_path / "all_data.json", {"f1": (images[:10], range(10)), "f2": (images[10:], range(10))}
    )
    ready.get("femnist", tmp_path / "data", tmp_path)
    natural = load("femnist", str(tmp_path / "data")).natural
    assert natural is not None
    assert natural.tolist() == [0] * 9 + [1] * 9


def test_numbers_of_clients_are_kept_however_large(tmp_path: Path) -> None:
    large = np.array([3, 1 << 32, 1 << 40])
    writers = np.repeat(large, 2)
    ready.get("mnist", tmp_path, datafiles.mnist_npz(tmp_path / "npz", writer_train=writers))
    natural = load("mnist", str(tmp_path)).natural
    assert natural is not None
    assert natural.tolist() == writers.tolist()
    texts = Documents(np.array([2, 2, 2]), np.arange(4), large, np.array(["a", "b", "c"]))
    with (tmp_path / "text.npz").open("wb") as file:
        npz.write(texts, file)
    assert npz.text([[tmp_path / "text.npz"]], print).authors.tolist() == large.tolist()


def test_a_single_file(tmp_path: Path) -> None:
    path = shakespeare(tmp_path) / "all_data.json"
    ready.get("shakespeare", tmp_path / "data", path)
    assert ready.ready_file("shakespeare", tmp_path / "data").is_file()
    posts = {"author": ["a", "b"], "text": ["one two", "three four"]}
    path = datafiles.parquet(tmp_path / "posts.parquet", posts)
    ready.get("stackoverflow", tmp_path / "data", path)
    assert ready.ready_file("stackoverflow", tmp_path / "data").is_file()


def test_an_archive_as_it_is_published(tmp_path: Path) -> None:
    datafiles.cifar_batches(tmp_path / "cifar-10-batches-py")
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    ready.get("cifar10", tmp_path / "data", archive)
    assert len(load("cifar10", str(tmp_path / "data")).inputs) == 10


def test_an_archive_writes_nowhere_else(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("../../all_data.json", "/all_data.json", "../all_data_2.json"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("a/all_data_3.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    before = names(tmp_path.parent)
    with pytest.raises(DataError, match="has no user_data"):
        ready.get("shakespeare", tmp_path / "data", archive)
    assert names(tmp_path) == ["evil.tar"]
    assert names(tmp_path.parent) == before


def test_a_cut_archive(tmp_path: Path) -> None:
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(datafiles.cifar_batches(tmp_path / "batches"), "batches")
    archive.write_bytes(archive.read_bytes()[:20_000])
    with pytest.raises(DataError, match=r"cifar.tar.gz cannot be unpacked.*download it again"):
        ready.get("cifar10", tmp_path / "data", archive)


@pytest.mark.parametrize("origin", ["empty", "text.txt"])
def test_files_that_are_not_there(tmp_path: Path, origin: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(
        MissingDataError, match=rf"{origin}: mnist is not there.*mnist.npz.*four IDX"
    ):
        ready.get("mnist", tmp_path / "data", tmp_path / origin)


@pytest.mark.parametrize("as_tar", [False, True])
def test_a_part_that_is_not_there(tmp_path: Path, as_tar: bool) -> None:
    datafiles.leaf(tmp_path / "leaf" / "train" / "a.json", {"a": ([[0.5] * 784] * 10, [1] * 10)})
    origin = tmp_path / "leaf"
    if as_tar:
        origin = tmp_path / "leaf.tar"
        with tarfile.open(origin, "w") as tar:
            tar.add(tmp_path / "leaf", "data")
    words = r"femnist is not whole: there is train/\*.json, but no test/\*.json beside it"
    with pytest.raises(MissingDataError, match=f"--from {origin}: {words}"):
        ready.get("femnist", tmp_path / "data", origin)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"--from .*nowhere: no such file or folder$"):
        ready.get("mnist", tmp_path / "data", tmp_path / "nowhere")


def test_what_is_not_the_dataset_is_not_written(tmp_path: Path) -> None:
    datafiles.idx(
        datafiles.mnist_idx(tmp_path) / "train-labels-idx1-ubyte", np.full(6, 10, np.uint8)
    )
    with pytest.raises(DataError, match=r"train labels.*; put a good copy there") as caught:
        ready.get("mnist", tmp_path / "data", tmp_path)
    assert "PISCES_DATA" not in str(caught.value)  # it names where runs look, not `--from`
    assert not (tmp_path / "data").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataError, match=r"cannot write .*choose another --folder"):
        ready.get("mnist", tmp_path / "data", datafiles.mnist_idx(tmp_path / "idx"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "No space left")])
def test_a_break_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    def breaking(raw: object, file: io.BufferedWriter) -> None:
        file.write(b"half a file")
        raise error

    monkeypatch.setattr(npz, "write", breaking)
    with pytest.raises((KeyboardInterrupt, MemoryError, DataError)):
        ready.get("mnist", tmp_path / "data", datafiles.mnist_idx(tmp_path / "idx"))
    assert names(tmp_path / "data" / "mnist") == []


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name in (".mnist.npz-ab12.part", ".sha256.json-cd34.part", ".mine.part", "mnist.part"):
        (folder / name).write_bytes(b"half a file")
    ready.get("mnist", tmp_path / "data", datafiles.mnist_idx(tmp_path / "idx"))
    assert names(folder) == [".mine.part", "mnist.npz", "mnist.part", "sha256.json"]


def test_two_do_not_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = npz.write

    def writing(raw: Any, file: BinaryIO) -> None:
        handle = os.open(tmp_path / "data" / "mnist", os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # so nobody takes what is being written for left over
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        write(raw, file)

    monkeypatch.setattr(npz, "write", writing)
    ready.get("mnist", tmp_path / "data", datafiles.mnist_idx(tmp_path / "idx"))
    assert ready.compare(tmp_path / "data" / "mnist")


def test_what_is_replaced_has_no_checksum_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = got(tmp_path)
    before = path.read_bytes()
    replace = Path.replace

    def killed(part: Path, target: Path) -> Path:
        replace(part, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)  # after the data, before its checksum
    with pytest.raises(KeyboardInterrupt):
        ready.get("mnist", tmp_path / "data", datafiles.mnist_idx(tmp_path / "idx"))
    assert path.read_bytes() != before
    assert not ready.check(found("mnist", [tmp_path / "data"])).has_checksums


# --- checks ---------------------------------------------------------------------------------------


def got(tmp_path: Path) -> Path:
    ready.get("mnist", tmp_path / "data", datafiles.mnist_npz(tmp_path / "npz"))
    return ready.ready_file("mnist", tmp_path / "data")


def test_what_a_check_says(tmp_path: Path) -> None:
    place = search(CATALOGUE["mnist"], got(tmp_path).parent)
    assert place is not None
    assert ready.check(place) == ready.Checked(
        num_train=6,
        num_test=2,
        num_classes=10,
        num_clients=3,
        has_checksums=True,
        digest=place.read().digest(),
        published=False,
        objective="labels",
    )


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = got(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mnist.npz has changed since it was written"):
        ready.compare(path.parent)


@pytest.mark.parametrize("content", ["", "[]", '{"gone.npz": "12"}', '{"": "12"}'])
def test_checksums_that_cannot_be_used(tmp_path: Path, content: str) -> None:
    path = got(tmp_path)
    (path.parent / "sha256.json").write_text(content)
    with pytest.raises(DataError, match=r"sha256.json cannot be used"):
        ready.compare(path.parent)


def test_checksums_name_files_beside_them_only(tmp_path: Path) -> None:
    path = got(tmp_path)
    (tmp_path / "secret").write_text("x")
    (path.parent / "sha256.json").write_text(json.dumps({"../../secret": "12"}))
    with pytest.raises(DataError, match="No such file"):
        ready.compare(path.parent)


def test_a_folder_without_checksums(tmp_path: Path) -> None:
    assert not ready.compare(datafiles.mnist_npz(tmp_path))


def test_checksums_of_other_files_only_are_none(tmp_path: Path) -> None:
    path = got(tmp_path)
    (path.parent / "note.txt").write_text("x")
    place = found("mnist", [tmp_path / "data"])
    for of in ({}, {"note.txt": hashlib.sha256(b"x").hexdigest()}):
        (path.parent / "sha256.json").write_text(json.dumps(of))
        assert not ready.check(place).has_checksums


# --- the hub --------------------------------------------------------------------------------------


class Part:
    """A part of a dataset as the package `datasets` gives it."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._table = pq.read_table(path)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def with_format(self, kind: str) -> Part:
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        for start in range(0, len(self), batch_size):
            yield self._table.slice(start, batch_size)


def fake_hub(monkeypatch: pytest.MonkeyPatch, **parts: Path) -> list[str]:
    """A package `datasets` that has these parts whatever one asks for; returns what one asked."""
    asked: list[str] = []

    def load_dataset(name: str) -> dict[str, Part]:
        asked.append(name)
        return {part: Part(path) for part, path in parts.items()}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_images_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = datafiles.pictures(datafiles.colour(8).transpose(0, 2, 3, 1))
    train = datafiles.parquet(tmp_path / "a", {"img": images[:6], "label": list(range(6))})
    test = datafiles.parquet(tmp_path / "b", {"img": images[6:], "label": [6, 7]})
    asked = fake_hub(monkeypatch, train=train, test=test)
    told: list[tuple[int, int]] = []
    ready.get("cifar10", tmp_path / "data", tell=lambda *done: told.append(done))
    assert asked == ["uoft-cs/cifar10"]
    assert told == [(0, 6), (0, 2)]
    data = load("cifar10", str(tmp_path / "data"))
    assert (data.targets.tolist(), data.test_targets.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7])


def test_writers_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {
        "image": datafiles.pictures(datafiles.grey(20)),
        "writer_id": ["f2"] * 10 + ["f1"] * 10,
        "hsf_id": [0] * 20,
        "character": list(range(20)),
    }
    asked = fake_hub(monkeypatch, train=datafiles.parquet(tmp_path / "a", columns))
    ready.get("femnist", tmp_path / "data")
    assert asked == ["flwrlabs/femnist"]
    natural = load("femnist", str(tmp_path / "data")).natural
    assert natural is not None
    assert natural.tolist() == [1] * 9 + [0] * 9


def test_roles_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = datafiles.sliding("to be or not to be " * 9)
    columns = {"character_id": ["HAMLET"] * len(x), "x": x, "y": y}
    columns = {key: [*rows, *rows] for key, rows in columns.items()}
    columns["character_id"][len(x) :] = ["BOY"] * len(x)
    fake_hub(monkeypatch, train=datafiles.parquet(tmp_path / "a", columns))
    ready.get("shakespeare", tmp_path / "data")
    data = load("shakespeare", str(tmp_path / "data"), Cut(sequence_length=42))
    assert (len(data.inputs), len(data.test_inputs)) == (172 // 43, 172 // 43)


def test_a_part_that_the_hub_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub(monkeypatch, train=datafiles.parquet(tmp_path / "a", {"image": [1], "label": [1]}))
    with pytest.raises(DataError, match="ylecun/mnist has no part 'test', only train"):
        ready.get("mnist", tmp_path / "data")


def test_a_hub_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(name: str) -> None:
        raise ConnectionError(f"Couldn't reach {name}\nmore of it")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(
        DataError, match=r"\(Couldn't reach ylecun/mnist\); try again.*--from FOLDER"
    ):
        ready.get("mnist", tmp_path / "data")


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("datasets", "mnist"),
        ("pyarrow.parquet", "femnist"),
        ("PIL", "femnist"),  # pictures within Parquet
        ("PIL", "cifar10"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str
) -> None:
    datafiles.parquet(tmp_path / "a.parquet", {"image": [1]})
    for file in ("train_0.webp", "test.webp"):
        (tmp_path / file).touch()
    np.savez(tmp_path / "labels.npz", y_train=[1], y_test=[1])
    monkeypatch.setitem(sys.modules, package, None)  # what makes an import fail
    with pytest.raises(MissingPackageError, match=r"pip install 'pisces-fl\[data\]'"):
        ready.get(name, tmp_path / "data", None if name == "mnist" else tmp_path)


@pytest.mark.parametrize("name", ["stackoverflow", "stackexchange"])
def test_what_is_not_on_the_hub_says_which_files_it_wants(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        MissingDataError, match=r"Posts.xml, Comments.xml.*Parquet files with a column author"
    ):
        ready.get(name, tmp_path)
