"""Files that are damaged or made to mislead: one line that names them, whatever a reader raises."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import datafiles
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pisces.data import ready
from pisces.data.finding import found
from pisces.data.formats import dump
from pisces.data.raw import reading
from pisces.errors import ConfigError, DataError


def refused(name: str, folder: Path, words: str = "is damaged or not the dataset") -> str:
    """What is said of the dataset in `folder/name`, be it loaded or got: one line each time."""
    with pytest.raises(DataError, match=words) as checked:
        ready.check(found(name, [folder]))
    with pytest.raises(DataError, match=words):
        ready.get(name, folder / "got", folder / name)
    message = str(checked.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 1000
    return message


# --- the guard ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("two\n lines"), "(two lines)"),
        (KeyError("data"), "(KeyError: 'data')"),
        (MemoryError(), "(it asks for more memory than there is)"),
        (RecursionError(), "(RecursionError)"),
        (ValueError("x" * 5000), "(" + "x" * 200 + ")"),
    ],
)
def test_whatever_a_reader_raises_is_one_line(error: Exception, reason: str) -> None:
    with pytest.raises(DataError) as caught, reading(Path("a.npz")):
        raise error
    assert f"a.npz is damaged or not the dataset {reason}; " in str(caught.value)


@pytest.mark.parametrize("error", [DataError("d"), ConfigError("c"), KeyboardInterrupt()])
def test_what_says_more_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, reading(Path("a.npz")):
        raise error
    assert caught.value is error


# --- arrays ---------------------------------------------------------------------------------------


def npy(header: str, content: bytes = bytes(6)) -> bytes:
    """An array under any header."""
    line = header.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line + content


def header(shape: str, descr: str = "'|u1'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def archive(path: Path, **members: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '|u1', 'fortran_order': False, 'shape': (6"),  # cut
        npy("{'descr': '|u1', \x00\x01 'shape': (6,)}"),
        npy("{'descr': '|u1', 'fortran_order': False, 'shape': (" + "-" * 9000 + "6,), }"),
        npy(header("(True,)"), bytes(1)),
        npy(header("(6.0,)")),
        npy(header("()"), bytes(1)),
        npy(header("(6,)", "[('a', '|u1')]")),
    ],
)
def test_headers_of_arrays(tmp_path: Path, content: bytes) -> None:
    for part in ("x_train", "y_train"):
        datafiles.mnist_npz(tmp_path / "mnist")
        arrays = dict(np.load(tmp_path / "mnist" / "mnist.npz"))
        members = {name: _saved(array) for name, array in arrays.items()}
        archive(tmp_path / "mnist" / "mnist.npz", **members | {part: content})
        assert "mnist.npz" in refused("mnist", tmp_path)


def _saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    "vocab",
    [
        npy(header("()", "'<U1'"), "a".encode("utf-32-le")),
        npy(header("(6,)", "'|V1'")),
        npy(header("(100000000000,)", "'<U0'"), b""),  # 373 GiB, it says, of nothing
        npy(header("(6,)")),  # numbers
        npy(header("(1,)", "'<U1'"), b"\xff\xff\xff\xff"),  # no letter
    ],
)
def test_vocabularies(tmp_path: Path, vocab: bytes) -> None:
    arrays = {"tokens": [3, 2, 3, 2], "doc_offset": [0, 2, 4], "doc_client": [0, 1]}
    members = {name: _saved(np.array(array)) for name, array in arrays.items()}
    path = tmp_path / "stackexchange" / "stackexchange_tokens.npz"
    archive(path, **members, vocab=vocab)
    assert path.name in refused("stackexchange", tmp_path)


def test_labels_of_mosaics_are_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    folder.mkdir()
    for name in ("train_0", "test"):
        Image.new("RGB", (32, 32)).save(folder / f"{name}.webp", lossless=True)
    for labels in (["3"], ["a cat"], [3.7]):
        np.savez(folder / "labels.npz", y_train=np.array(labels), y_test=np.array([3]))
        assert "labels.npz" in refused("cifar10", tmp_path, "y_train is .* not a row of whole")


# --- other formats --------------------------------------------------------------------------------


def test_sizes_that_no_array_can_have(tmp_path: Path) -> None:
    most = (1 << 32) - 1
    path = datafiles.mnist_idx(tmp_path / "mnist") / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">HBB3I", 0, 8, 3, 0, most, most))
    assert path.name in refused("mnist", tmp_path)


def test_a_pixel_beyond_all_numbers(tmp_path: Path) -> None:
    path = tmp_path / "femnist" / "all_data.json"
    datafiles.leaf(path, {"a": ([[10**400] * 784] * 10, [1] * 10)})
    refused("femnist", tmp_path, "images of 'a' are not 784 numbers")


def test_a_picture_that_claims_to_be_vast(tmp_path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    size = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0)
    vast = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IEND", b"")
    for part in ("train", "test"):
        columns = {"image": [{"bytes": vast}], "label": [1]}
        datafiles.parquet(tmp_path / "mnist" / f"{part}.parquet", columns)
    assert "train.parquet" in refused("mnist", tmp_path)


def test_text_that_is_none(tmp_path: Path) -> None:
    text = pa.array([b"\xff\xfe", b"a"]).cast(pa.string(), safe=False)
    folder = tmp_path / "stackexchange"
    folder.mkdir()
    pq.write_table(pa.table({"author": ["a", "b"], "text": text}), folder / "a.parquet")
    assert "a.parquet" in refused("stackexchange", tmp_path)


def test_a_column_twice(tmp_path: Path) -> None:
    folder = tmp_path / "stackexchange"
    folder.mkdir()
    columns = [pa.array(["a", "b"])] * 3
    table = pa.Table.from_arrays(columns, names=["author", "text", "text"])
    pq.write_table(table, folder / "a.parquet")
    assert "a.parquet" in refused("stackexchange", tmp_path)


def test_checksums_without_end(tmp_path: Path) -> None:
    folder = datafiles.mnist_npz(tmp_path)
    (folder / ready.CHECKSUMS).write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"sha256.json cannot be used"):
        ready.compare(folder)


@pytest.mark.parametrize(
    "text", ["<pre " * 26_000, "<code></pre>" * 10_000, "<pre><code></pre>" * 7000, "<" * 130_000]
)
def test_a_post_made_to_take_long(text: str) -> None:
    started_at = time.process_time()
    dump.plain(text)
    assert time.process_time() - started_at < 1  # some milliseconds; 34 s where each looks for all


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a <pre x>b <pre>c</pre>d</pre> e", "a d e"),  # up to the first end of its kind
        ("a <code>b <pre>c</code> d</pre> e", "a d e"),
        ("a <pre>b <code>c</code> d", "a b d"),  # without an end only the mark itself
        ("a <prefix>b</prefix> <code>c</code>", "a b"),
        ("</pre>a<blockquote>b</blockquote>c", "a c"),
    ],
)
def test_what_is_left_out_of_posts(text: str, kept: str) -> None:
    assert dump.plain(text).split() == kept.split()


# --- pickles --------------------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    """Lists of the same two lists each: 2^depth numbers in a few bytes."""
    labels: list[Any] = [1, 1]
    for _ in range(depth):
        labels = [labels, labels]
    return labels


@pytest.mark.parametrize(
    "labels", [nested(30), [1.7, 1.0], [True, False], ["1", "2"], (1, 2), [1 << 70, 1], [None] * 2]
)
def test_labels_of_batches_are_a_list_of_whole_numbers(tmp_path: Path, labels: Any) -> None:
    path = datafiles.cifar_batches(tmp_path / "cifar10") / "data_batch_2"
    batch = {"data": datafiles.colour(2).reshape(2, 3072), "labels": labels}
    path.write_bytes(pickle.dumps(batch, 2))
    assert path.name in refused("cifar10", tmp_path)


def test_bytes_of_batches_are_no_more_than_a_batch_has(tmp_path: Path) -> None:
    path = datafiles.cifar_batches(tmp_path / "cifar10") / "data_batch_2"
    text = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"q\x01"  # remembered as 1
    again = b"h\x00h\x01X\x06\x00\x00\x00latin1\x86R"  # those bytes once more
    path.write_bytes(b"\x80\x02c_codecs\nencode\nq\x00" + text + b"(" + again * 200 + b"t.")
    tracemalloc.start()
    with pytest.raises(DataError, match="more bytes than a batch has"):
        found("cifar10", [tmp_path]).read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * (1 << 26)  # a batch, and the file


# --- archives -------------------------------------------------------------------------------------


def packed(folder: Path, kind: str) -> Path:
    """The batches of CIFAR-10 in an archive."""
    path = folder / (f"cifar.tar.{kind}" if kind else "cifar.tar")
    with tarfile.open(path, f"w:{kind}") as tar:  # type: ignore[call-overload]
        tar.add(datafiles.cifar_batches(folder / "batches"), "batches")
    return path


def not_unpacked(folder: Path, archive: Path) -> None:
    with pytest.raises(DataError, match=rf"{archive.name} cannot be unpacked.*download it again"):
        ready.get("cifar10", folder / "data", archive)
    assert not (folder / "data").exists()


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_a_flipped_bit_anywhere_in_an_archive_is_found(tmp_path: Path, kind: str) -> None:
    archive = packed(tmp_path, kind)
    whole = archive.read_bytes()
    ready.get("cifar10", tmp_path / "whole", archive)
    # the first bytes, some within, and the last: gzip's checksum is in those
    for place in (0, 20, *range(100, len(whole), len(whole) // 7), len(whole) - 6):
        content = bytearray(whole)
        content[place] ^= 4
        archive.write_bytes(content)
        not_unpacked(tmp_path, archive)


def test_what_is_wrong_in_an_archive_is_named_by_its_place_in_it(tmp_path: Path) -> None:
    archive = tmp_path / "all.tar"
    batches = datafiles.cifar_batches(tmp_path / "batches")
    (batches / "data_batch_1").write_bytes(b"cut")
    with tarfile.open(archive, "w") as tar:
        tar.add(batches, "batches")
    with pytest.raises(DataError, match=f"^{archive}/batches/data_batch_1 is damaged"):
        ready.get("cifar10", tmp_path / "data", archive)
    with tarfile.open(archive, "w") as tar:
        for copy in ("a", "b"):
            tar.add(datafiles.mnist_idx(tmp_path / copy), copy)
    with pytest.raises(DataError, match=f"in {archive}/a and in {archive}/b: name one"):
        ready.get("mnist", tmp_path / "data", archive)


def test_an_archive_that_ends_early_is_not_taken_for_one_that_lacks_files(tmp_path: Path) -> None:
    archive = packed(tmp_path, "")
    whole = archive.read_bytes()
    with tarfile.open(archive) as tar:
        (*_, last) = tar
    garbled = bytearray(whole)
    garbled[last.offset : last.offset + 9] = b"\xff" * 9
    for content in (whole[: last.offset], whole[: last.offset + 100], garbled, whole[:100], b""):
        archive.write_bytes(content)
        not_unpacked(tmp_path, archive)
