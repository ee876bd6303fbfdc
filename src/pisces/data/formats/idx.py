"""IDX, the format of MNIST: a header of magic and sizes, then numbers; plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from pisces.data.raw import MOST_BYTES, Bytes, Found, Images, Ints, Tell, damaged, reading

_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def images(found: Found, tell: Tell) -> Images:
    """Images and labels to train on, then to test on; QMNIST's training labels name the writers."""
    parts = []
    for number, paths in enumerate(found):
        tell(number, len(found))
        parts.append(read(paths[0]))
    train, labels, test, test_labels = parts[:4]
    return Images(
        train=cast(Bytes, train[:, None]),
        labels=labels.astype(np.int64),
        test=cast(Bytes, test[:, None]),
        test_labels=test_labels.astype(np.int64),
        writers=_writers(found[4][0], parts[4]) if len(parts) > 4 else None,
    )


def _writers(path: Path, table: NDArray[np.generic]) -> Ints:
    if table.ndim != 2 or table.shape[1] < 3:
        raise damaged(path, "it has no columns class, series, writer ...")
    return table[:, 2].astype(np.int64)


def read(path: Path) -> NDArray[np.generic]:
    """The array in an IDX file."""
    with reading(path):
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            return _array(path, cast(BinaryIO, file))


def _array(path: Path, file: BinaryIO) -> NDArray[np.generic]:
    zeros, kind, num_dims = struct.unpack(">HBB", file.read(4))
    if zeros or kind not in _TYPES or not 1 <= num_dims <= 3:
        raise damaged(path, "it does not begin as an IDX file of bytes or whole numbers does")
    shape = struct.unpack(f">{num_dims}I", file.read(4 * num_dims))
    size = math.prod(shape) * _TYPES[kind].itemsize
    if size > MOST_BYTES:
        raise damaged(path, f"its header claims {size} bytes")
    content = _read_up_to(size + 1, file)
    if len(content) != size:
        there = "more" if len(content) > size else str(len(content))
        raise damaged(path, f"its header claims {size} bytes, and there are {there}")
    array: NDArray[np.generic] = np.frombuffer(content, _TYPES[kind])
    return array.reshape(shape)


def _read_up_to(size: int, file: BinaryIO) -> bytearray:
    """So many bytes or all there are; a false claim takes no memory."""
    content = bytearray()
    while len(content) < size and (chunk := file.read(min(1 << 20, size - len(content)))):
        content += chunk
    return content
