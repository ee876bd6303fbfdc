"""Images in every format: read alike, and refused when damaged, wrong or made to mislead."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafiles
import numpy as np
import pytest
import torch
from PIL import Image

from pisces.data.catalogue import CATALOGUE
from pisces.data.datasets import Dataset
from pisces.data.finding import search
from pisces.data.raw import Images
from pisces.errors import DataError


def load(name: str, folder: Path) -> Dataset:
    place = search(CATALOGUE[name], folder)
    assert place is not None
    return place.dataset(place.read())


def raw(name: str, folder: Path) -> Images:
    place = search(CATALOGUE[name], folder)
    assert place is not None
    found = place.read()
    assert isinstance(found, Images)
    return found


# --- what is made of them -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mean", "sd"), [("mnist", 0.1307, 0.3081), ("fashion_mnist", 0.2860, 0.3530)]
)
def test_images_are_normalised(tmp_path: Path, name: str, mean: float, sd: float) -> None:
    images = np.zeros((6, 28, 28), np.uint8)
    images[0, 0, 0] = 255
    data = load(name, datafiles.mnist_npz(tmp_path, name, x_train=images))
    assert data.inputs.shape == (6, 1, 28, 28)
    assert data.test_inputs.shape == (2, 1, 28, 28)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert (data.num_classes, data.objective) == (10, "labels")
    assert data.targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test_targets.tolist() == [6, 7]
    # a white pixel is (1 - mean) / sd, a black one -mean / sd
    assert float(data.inputs[0, 0, 0, 0]) == pytest.approx((1 - mean) / sd)
    assert float(data.inputs[1, 0, 5, 5]) == pytest.approx(-mean / sd)


def test_colours_are_normalised_each(tmp_path: Path) -> None:
    data = load("cifar10", datafiles.cifar_batches(tmp_path))
    first = datafiles.colour(10)[0, :, 5, 7] / 255
    mean, sd = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
    assert data.inputs[0, :, 5, 7].numpy() == pytest.approx((first - mean) / sd, abs=1e-5)
    assert data.inputs.is_contiguous()


def test_femnist_is_normalised_by_its_own_pixels(tmp_path: Path) -> None:
    images = datafiles.leaf_images(datafiles.grey(20))
    datafiles.leaf(tmp_path / "all_data.json", {"f01": (images, [61] * 20)})
    data = load("femnist", tmp_path)
    assert data.num_classes == 62
    assert float(data.inputs.mean()) == pytest.approx(0, abs=1e-5)
    assert float(data.inputs.std()) == pytest.approx(1, abs=1e-3)


def test_writers_are_natural_clients(tmp_path: Path) -> None:
    natural = load("mnist", datafiles.mnist_npz(tmp_path)).natural
    assert natural is not None
    assert (natural.dtype, natural.tolist()) == (np.int64, [5, 5, 2, 2, 2, 9])
    other = datafiles.mnist_npz(tmp_path / "other", "fashion_mnist", writer_train=None)
    assert load("fashion_mnist", other).natural is None


# --- every format holds the same ------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(tmp_path: Path, zipped: bool) -> None:
    found = raw("mnist", datafiles.mnist_idx(tmp_path / "idx", zipped))
    assert found.digest() == raw("mnist", datafiles.mnist_npz(tmp_path / "npz")).digest()
    assert found.writers is None


def test_labels_of_qmnist_name_the_writers(tmp_path: Path) -> None:
    table = np.zeros((6, 8), np.int32)
    table[:, 2] = [300, 300, 2, 2, 2, 9]  # class, series, writer ...
    datafiles.idx(tmp_path / "qmnist-train-labels-idx2-int.gz", table, zipped=True)
    writers = raw("mnist", datafiles.mnist_idx(tmp_path)).writers
    assert writers is not None
    assert writers.tolist() == [300, 300, 2, 2, 2, 9]


def test_labels_of_qmnist_without_writers(tmp_path: Path) -> None:
    datafiles.idx(tmp_path / "qmnist-train-labels-idx2-int", np.zeros((6, 2), np.int32))
    with pytest.raises(DataError, match="no columns class, series, writer"):
        load("mnist", datafiles.mnist_idx(tmp_path))


def mnist_tables(folder: Path) -> Path:
    for part, images, labels in (
        ("train-00000-of-00001", datafiles.grey(6), range(6)),
        ("test-00000-of-00001", datafiles.grey(2, seed=1), [6, 7]),
    ):
        columns = {"image": datafiles.pictures(images), "label": list(labels)}
        datafiles.parquet(folder / "mnist" / f"{part}.parquet", columns)
    return folder


def test_parquet(tmp_path: Path) -> None:
    found = raw("mnist", mnist_tables(tmp_path / "tables"))
    assert found.digest() == raw("mnist", datafiles.mnist_npz(tmp_path / "npz")).digest()


def cifar_pickled_by_python_3(folder: Path) -> Path:
    for path in datafiles.cifar_batches(folder).iterdir():
        batch = pickle.loads(path.read_bytes(), encoding="bytes")  # ours: nothing to fear
        path.write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def cifar_binary(folder: Path) -> Path:
    folder.mkdir()
    rows = datafiles.colour(10).reshape(5, 2, 3072)
    for number, images in enumerate(rows):
        labelled = np.insert(images, 0, [2 * number, 2 * number + 1], axis=1)
        (folder / f"data_batch_{number + 1}.bin").write_bytes(labelled.tobytes())
    test = np.insert(datafiles.colour(3, seed=1).reshape(3, 3072), 0, [3, 8, 8], axis=1)
    (folder / "test_batch.bin").write_bytes(test.tobytes())
    return folder


def cifar_mosaics(folder: Path) -> Path:
    folder.mkdir()
    train, test = datafiles.colour(10), datafiles.colour(3, seed=1)
    for name, images, columns in (
        ("train_0", train[:4], 2),
        ("train_1", train[4:], 3),
        ("test", test, 3),
    ):
        tiles = images.reshape(-1, columns, 3, 32, 32).transpose(0, 3, 1, 4, 2)
        mosaic = tiles.reshape(-1, 32 * columns, 3)
        Image.fromarray(mosaic).save(folder / f"{name}.webp", lossless=True)
    np.savez(folder / "labels.npz", y_train=np.arange(10), y_test=np.array([3, 8, 8]))
    return folder


def cifar_tables(folder: Path) -> Path:
    parts = {
        "train": (datafiles.colour(10), range(10)),
        "test": (datafiles.colour(3, 1), [3, 8, 8]),
    }
    for part, (images, labels) in parts.items():
        pictures = datafiles.pictures(images.transpose(0, 2, 3, 1))
        datafiles.parquet(folder / f"{part}.parquet", {"img": pictures, "label": list(labels)})
    return folder


@pytest.mark.parametrize(
    "write", [cifar_pickled_by_python_3, cifar_binary, cifar_mosaics, cifar_tables]
)
def test_cifar_in_every_format(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    found = raw("cifar10", write(tmp_path / "other"))
    published = raw("cifar10", datafiles.cifar_batches(tmp_path / "cifar-10-batches-py"))
    assert np.array_equal(published.train, datafiles.colour(10))
    assert published.labels.tolist() == list(range(10))
    assert published.test_labels.tolist() == [3, 8, 8]
    assert found.digest() == published.digest()


# --- FEMNIST --------------------------------------------------------------------------------------


def test_leaf_says_what_is_to_test_on(tmp_path: Path) -> None:
    images = datafiles.grey(5)
    some = datafiles.leaf_images(images)
    datafiles.leaf(tmp_path / "data/train/a_train_9.json", {"f2": (some[:2], [0, 61])})
    datafiles.leaf(
        tmp_path / "data/train/b_train_9.json", {"f1": (some[2:3], [10]), "f0": ([], [])}
    )
    datafiles.leaf(tmp_path / "data/test/a_test_9.json", {"f2": (some[3:], [1, 2])})
    found = raw("femnist", tmp_path)
    assert np.array_equal(found.train[:, 0], images[:3])  # the very bytes that LEAF divided
    assert np.array_equal(found.test[:, 0], images[3:])
    assert (found.labels.tolist(), found.test_labels.tolist()) == ([0, 61, 10], [1, 2])
    assert found.writers is not None
    assert found.writers.tolist() == [1, 1, 0]  # by name


def test_without_a_test_folder_the_last_tenth_of_each_writer_is_held_out(tmp_path: Path) -> None:
    # 20 images of one writer, 9 of another, 10 of a third: the last 2, 0 and 1 are held out.
    images = datafiles.leaf_images(datafiles.grey(39))
    users = {
        "a": (images[:20], range(20)),
        "b": (images[20:29], range(20, 29)),
        "c": (images[29:], range(29, 39)),
    }
    datafiles.leaf(tmp_path / "all_data_0.json", users)
    found = raw("femnist", tmp_path)
    assert found.test_labels.tolist() == [18, 19, 38]
    assert found.labels.tolist() == [*range(18), *range(20, 38)]
    assert found.writers is not None
    assert np.bincount(found.writers).tolist() == [18, 9, 9]


def test_femnist_in_parquet_is_split_alike(tmp_path: Path) -> None:
    columns = {
        "image": datafiles.pictures(datafiles.grey(20)),
        "writer_id": ["f2"] * 10 + ["f1"] * 10,
        "hsf_id": [0] * 20,
        "character": list(range(20)),
    }
    datafiles.parquet(tmp_path / "data/train-00000-of-00001.parquet", columns)
    found = raw("femnist", tmp_path)
    assert found.test_labels.tolist() == [9, 19]
    assert found.writers is not None
    assert found.writers.tolist() == [1] * 9 + [0] * 9


# --- damaged and wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_train": None}, "no array 'x_train'"),
        ({"y_test": None}, "no array 'y_test'"),
        ({"x_train": np.zeros((6, 28, 28))}, r"train images are float64\(6, 1, 28, 28\)"),
        ({"x_test": np.zeros((2, 784), np.uint8)}, r"test images are uint8\(2, 1, 784\)"),
        ({"x_test": np.zeros((0, 28, 28), np.uint8)}, r"test images are uint8\(0, 1, 28, 28\)"),
        ({"y_train": np.zeros(5, np.uint8)}, "train labels are not one from 0 to 9 per image"),
        ({"y_train": np.array([0, 1, 2, 3, 4, 10])}, "train labels are not one"),
        ({"y_train": np.array([0, 1, 2, 3, 4, 0.5])}, "train labels are not one"),
        ({"writer_train": np.zeros(5, np.int16)}, "5 writers of 6 images"),
        ({"writer_train": np.zeros(6)}, "writer_train is float64"),
        ({"writer_train": np.full(6, 1 << 63, np.uint64)}, "writer_train is beyond 63 bits"),
        ({"y_train": np.array([{}] * 6)}, "claims to be object"),  # it would have to be unpickled
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        load("mnist", datafiles.mnist_npz(tmp_path, **changes))


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    whole = (datafiles.mnist_npz(tmp_path) / "mnist.npz").read_bytes()
    np.save(tmp_path / "bare.npy", np.zeros(3))
    bare = (tmp_path / "bare.npy").read_bytes()
    for content in (b"", b"not an archive", whole[: len(whole) // 2], bare):
        (tmp_path / "mnist.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"mnist.npz is damaged or not the dataset"):
            load("mnist", tmp_path)


def test_an_archive_with_a_broken_member_is_refused(tmp_path: Path) -> None:
    path = datafiles.mnist_npz(tmp_path) / "mnist.npz"
    arrays = dict(np.load(path))
    np.savez_compressed(path, **arrays)
    content = bytearray(path.read_bytes())
    content[60:70] = b"\xff" * 10  # inside the compressed images
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged or not the dataset"):
        load("mnist", tmp_path)


def claiming(shape: tuple[int, ...]) -> bytes:
    """An array of six bytes whose header claims another shape."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(6)


def test_an_array_that_claims_more_than_there_is_takes_no_memory(tmp_path: Path) -> None:
    with zipfile.ZipFile(datafiles.mnist_npz(tmp_path) / "mnist.npz", "w") as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", claiming((1 << 40,)))
    refused_cheaply("mnist", tmp_path, "claims to be uint8")


def refused_cheaply(name: str, folder: Path, words: str) -> str:
    tracemalloc.start()
    with pytest.raises(DataError, match=words) as error:
        load(name, folder)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "requires a buffer"),
        (b"\x00\x00\x08", "requires a buffer"),
        (b"\x89PNG\r\n", "does not begin as an IDX file"),
        (b"\x00\x00\x0d\x03", "does not begin as an IDX file"),  # floats
        (
            struct.pack(">HBB3I", 0, 8, 3, 6, 28, 28) + bytes(9),
            "claims 4704 bytes, and there are 9",
        ),
        (struct.pack(">HBB1I", 0, 8, 1, 6) + bytes(9), "claims 6 bytes, and there are more"),
        (struct.pack(">HBB3I", 0, 8, 3, 1 << 20, 1 << 10, 1 << 10), "claims 1099511627776 bytes"),
        (struct.pack(">HBB3I", 0, 8, 3, 1, 1 << 15, 1 << 16), "2147483648 bytes, and there are 0"),
        (gzip.compress(bytes(4000), mtime=0)[:-20], "damaged"),
        (b"\x1f\x8b nothing", "damaged"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    datafiles.mnist_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    refused_cheaply("mnist", tmp_path, words)


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    path = datafiles.mnist_idx(tmp_path, zipped=True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match="damaged"):
        load("mnist", tmp_path)


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


HOSTILE = {
    "a command": lambda sign: pickle.dumps(Call(__import__("os").system, f"touch {sign}"), 2),
    "a file": lambda sign: pickle.dumps({b"data": Call(Path(sign).touch)}, 4),
    "an import": lambda sign: f"c__builtin__\nexec\n(S'open({str(sign)!r}, \"w\")'\ntR.".encode(),
    "by position": lambda sign: b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",
    "an instance": lambda sign: b"(S'x'\nios\nsystem\n.",
    "an extension": lambda sign: b"\x82\x01.",
    "another's object": lambda sign: b"Pid\n.",
    "attributes of ours": lambda sign: b"cnumpy\nndarray\n}(S'bytes'\nI1\nsb.",
    "numpy's loader": lambda sign: b"cnumpy\nload\n(S'x'\ntR.",
    "another code": lambda sign: b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.",
    "a size": lambda sign: b"\x80\x04\x8e" + struct.pack("<Q", 1 << 50) + b"x.",
    "a place": lambda sign: b"\x80\x02Nr\xff\xff\xff\x7f.",
    "a number": lambda sign: b"I1\n.",
    "no array": lambda sign: pickle.dumps({b"data": [1, 2], b"labels": [1]}, 2),
    "floats": lambda sign: pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [1]}, 2),
    "half": lambda sign: datafiles.cifar_batch(datafiles.colour(2), [0, 1])[:2000],
    "deep": lambda sign: b"(" * 5000 + b"t" * 5000 + b".",
    "nothing": lambda sign: b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_pickles_that_are_no_batches_are_refused_unheard(tmp_path: Path, name: str) -> None:
    datafiles.cifar_batches(tmp_path)
    sign = tmp_path / "sign"
    (tmp_path / "data_batch_3").write_bytes(HOSTILE[name](sign))
    refused_cheaply("cifar10", tmp_path, "data_batch_3 is damaged or not the dataset")
    assert not sign.exists()


def test_a_batch_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (datafiles.cifar_batches(tmp_path) / "data_batch_3").open("wb") as file:
        file.truncate(1 << 30)
    message = refused_cheaply("cifar10", tmp_path, "too large for a batch")
    assert message.count("is damaged") == 1


@pytest.mark.parametrize(
    ("labels", "words"), [([1], "train labels are not one"), ([1, 10], "train labels are not one")]
)
def test_a_batch_with_wrong_labels(tmp_path: Path, labels: list[int], words: str) -> None:
    datafiles.cifar_batches(tmp_path)
    content = pickle.dumps({"data": datafiles.colour(2).reshape(2, 3072), "labels": labels}, 2)
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=words):
        load("cifar10", tmp_path)


def test_a_cut_binary_batch_is_refused(tmp_path: Path) -> None:
    cifar_binary(tmp_path / "bin")
    (tmp_path / "bin" / "test_batch.bin").write_bytes(bytes(3074))
    with pytest.raises(DataError, match="3074 bytes are not a multiple of 3073"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "Expecting property name"),
        ("[" * 100_000, "damaged"),
        ("[]", "has no user_data"),
        ('{"user_data": {"a": []}}', "'a' has not one y for each x"),
        ('{"user_data": {"a": {"x": [[1, 2]], "y": [1]}}}', "images of 'a' are not 784 numbers"),
        ('{"user_data": {"a": {"x": ["b"], "y": [1]}}}', "images of 'a' are not 784 numbers"),
        ('{"user_data": {"a": {"x": [[1]], "y": []}}}', "'a' has not one y for each x"),
        ('{"user_data": {}}', "has no images"),
    ],
)
def test_damaged_leaf_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "all_data.json").write_text(content)
    with pytest.raises(DataError, match=words):
        load("femnist", tmp_path)


@pytest.mark.parametrize(
    ("pixel", "label", "words"),
    [
        (1.5, 1, "from 0 to 1"),
        (float("nan"), 1, "from 0 to 1"),
        (0.5, 1.5, "labels of 'a' are not whole"),
        (0.5, 62, "train labels are not one from 0 to 61"),
    ],
)
def test_impossible_leaf_samples(tmp_path: Path, pixel: float, label: float, words: str) -> None:
    datafiles.leaf(tmp_path / "all_data.json", {"a": ([[pixel] * 784] * 10, [label] * 10)})
    with pytest.raises(DataError, match=words):
        load("femnist", tmp_path)


def test_nobodys_last_tenth(tmp_path: Path) -> None:
    datafiles.leaf(tmp_path / "all_data.json", {"a": ([[0.5] * 784] * 9, [1] * 9)})
    with pytest.raises(DataError, match="no writer has 10 images"):
        load("femnist", tmp_path)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"picture": [1], "label": [1]}, "has no column image, only picture, label"),
        ({"image": ["text"], "label": [1]}, "damaged"),
        ({"image": [{"bytes": b"text"}], "label": [1]}, "cannot identify image"),
        ({"image": [None], "label": [1]}, "damaged"),
        ({"image": datafiles.pictures(datafiles.grey(1)[:, :9]), "label": [1]}, r"\(28, 9\)"),
        ({"image": datafiles.pictures(datafiles.grey(1)), "label": [None]}, "whole numbers"),
        ({"image": datafiles.pictures(datafiles.grey(1)), "label": [10]}, "from 0 to 9"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    mnist_tables(tmp_path)
    datafiles.parquet(tmp_path / "mnist" / "train-00000-of-00001.parquet", columns)
    with pytest.raises(DataError, match=words):
        load("mnist", tmp_path)


def test_a_cut_table_is_refused(tmp_path: Path) -> None:
    path = mnist_tables(tmp_path) / "mnist" / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match="damaged or not the dataset"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("size", [(33, 32), (32, 48)])
def test_a_picture_that_is_no_mosaic(tmp_path: Path, size: tuple[int, int]) -> None:
    cifar_mosaics(tmp_path / "webp")
    Image.new("RGB", size).save(tmp_path / "webp" / "test.webp")
    with pytest.raises(DataError, match="no mosaic"):
        load("cifar10", tmp_path)


def test_a_cut_mosaic_is_refused(tmp_path: Path) -> None:
    path = cifar_mosaics(tmp_path / "webp") / "train_0.webp"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="damaged or not the dataset"):
        load("cifar10", tmp_path)


def test_other_pictures_are_not_even_tried(tmp_path: Path) -> None:
    cifar_mosaics(tmp_path / "webp")
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, "TIFF")
    (tmp_path / "webp" / "test.webp").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="cannot identify"):
        load("cifar10", tmp_path)
