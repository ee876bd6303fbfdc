"""Small files in the formats that real datasets come in."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]


def grey(number: int, seed: int = 0) -> Bytes:
    """Images like MNIST's."""
    return np.random.default_rng(seed).integers(0, 256, (number, 28, 28), np.uint8)


def colour(number: int, seed: int = 0) -> Bytes:
    """Images like CIFAR-10's, channels first."""
    return np.random.default_rng(seed).integers(0, 256, (number, 3, 32, 32), np.uint8)


def idx(path: Path, array: NDArray[Any], zipped: bool = False) -> Path:
    kind = {"uint8": 0x08, "int32": 0x0C}[array.dtype.name]
    header = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if zipped else content)
    return path


def mnist_idx(folder: Path, zipped: bool = False) -> Path:
    """Six training and two test images under the published names."""
    end = ".gz" if zipped else ""
    idx(folder / f"train-images-idx3-ubyte{end}", grey(6), zipped)
    idx(folder / f"train-labels-idx1-ubyte{end}", np.arange(6, dtype=np.uint8), zipped)
    idx(folder / f"t10k-images-idx3-ubyte{end}", grey(2, seed=1), zipped)
    idx(folder / f"t10k-labels-idx1-ubyte{end}", np.array([6, 7], np.uint8), zipped)
    return folder


def mnist_npz(folder: Path, name: str = "mnist", **changes: Any) -> Path:
    """The same images in a ready file, with writers; a change to None leaves an array out."""
    arrays = {
        "x_train": grey(6),
        "y_train": np.arange(6, dtype=np.uint8),
        "x_test": grey(2, seed=1),
        "y_test": np.array([6, 7], np.uint8),
        "writer_train": np.array([5, 5, 2, 2, 2, 9], np.int16),
    } | changes
    folder.mkdir(parents=True, exist_ok=True)
    there = {key: array for key, array in arrays.items() if array is not None}
    np.savez(folder / f"{name}.npz", **there)
    return folder


def cifar_batch(pixels: Bytes, labels: Sequence[int]) -> bytes:
    """A batch as the published ones are: pickled by Python 2, protocol 2, opcode by opcode."""
    data = pixels.tobytes()
    return b"".join(
        (
            b"\x80\x02}q\x01(",
            *(b"U\x0bbatch_labelq\x02", b"U\x15training batch 1 of 5q\x03"),
            *(b"U\x06labelsq\x04]q\x05(", *(b"K" + bytes([label]) for label in labels), b"e"),
            *(b"U\x04dataq\x06", b"cnumpy.core.multiarray\n_reconstruct\nq\x07"),
            *(b"cnumpy\nndarray\nq\x08", b"K\x00\x85q\x09U\x01bq\x0a\x87q\x0bRq\x0c"),
            *(b"(K\x01", b"J" + struct.pack("<i", len(labels)), b"M\x00\x0c\x86q\x0d"),
            *(b"cnumpy\ndtype\nq\x0e", b"U\x02u1q\x0fK\x00K\x01\x87q\x10Rq\x11"),
            b"(K\x03U\x01|q\x12NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x13b",
            *(b"\x89", b"T" + struct.pack("<i", len(data)), data, b"q\x14tq\x15b"),
            *(b"U\x09filenamesq\x16]q\x17(", b"U\x05a.pngq\x18", b"e"),
            b"u.",
        )
    )


def cifar_batches(folder: Path) -> Path:
    """Ten training and three test images in six batches."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(5):
        images = colour(10)[2 * number : 2 * number + 2]
        content = cifar_batch(images, [2 * number, 2 * number + 1])
        (folder / f"data_batch_{number + 1}").write_bytes(content)
    (folder / "test_batch").write_bytes(cifar_batch(colour(3, seed=1), [3, 8, 8]))
    return folder


def png(image: Bytes) -> bytes:
    """A picture of (height, width) or (height, width, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def leaf(path: Path, users: Mapping[str, tuple[Sequence[Any], Sequence[Any]]]) -> Path:
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": list(x), "y": list(y)} for user, (x, y) in users.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def leaf_images(images: Bytes) -> list[list[float]]:
    """Images as LEAF writes them: bytes divided by 255."""
    return [(image.ravel() / 255).tolist() for image in images]


def sliding(text: str, width: int = 80) -> tuple[list[str], list[str]]:
    """LEAF's samples of a text: every stretch of `width` characters, and the one that follows."""
    starts = range(len(text) - width)
    return [text[i : i + width] for i in starts], [text[i + width] for i in starts]


def parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def pictures(images: Sequence[Bytes]) -> list[dict[str, Any]]:
    """A column of pictures as Hugging Face keeps them."""
    return [{"bytes": png(image), "path": None} for image in images]
