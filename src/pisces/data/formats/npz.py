"""`.npz`, the form in which datasets are kept ready: arrays, read with numpy alone."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pisces.data.raw import (
    MOST_BYTES,
    Bytes,
    Documents,
    Found,
    Images,
    Ints,
    Raw,
    Tell,
    damaged,
    reading,
)

Arrays = dict[str, NDArray[np.generic]]
_IMAGES = ("x_train", "y_train", "x_test", "y_test")
_TEXT = ("tokens", "doc_offset", "doc_client", "vocab")


def images(found: Found, _: Tell) -> Images:
    """Images (n, height, width) or (n, height, width, channels), labels, and perhaps writers."""
    path = found[0][0]
    arrays = read(path, _IMAGES, ("writer_train",))
    writers = arrays.get("writer_train")
    return Images(
        train=_channels_first(arrays["x_train"]),
        labels=cast(Ints, arrays["y_train"]),
        test=_channels_first(arrays["x_test"]),
        test_labels=cast(Ints, arrays["y_test"]),
        writers=None if writers is None else whole(path, "writer_train", writers),
    )


def text(found: Found, _: Tell) -> Documents:
    """Words, where documents begin, whose they are, and the vocabulary."""
    path = found[0][0]
    arrays = read(path, _TEXT, ("doc_test",))
    in_test = arrays.get("doc_test")
    return Documents(
        words=whole(path, "tokens", arrays["tokens"]),
        offsets=whole(path, "doc_offset", arrays["doc_offset"]),
        authors=whole(path, "doc_client", arrays["doc_client"]),
        vocabulary=_names(path, arrays["vocab"]),
        in_test=None if in_test is None else in_test.astype(bool),
    )


def write(raw: Raw, file: BinaryIO) -> None:
    """Write what `images` or `text` read."""
    arrays = _of_images(raw) if isinstance(raw, Images) else _of_text(raw)
    there: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    np.savez_compressed(file, **there)


def read(path: Path, needed: Collection[str], optional: Collection[str] = ()) -> Arrays:
    """Some arrays of an archive; an array's header must not claim more than there is."""
    with reading(path), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        missing = [name for name in needed if name not in members]
        if missing:
            raise ValueError(f"it has no array {missing[0]!r}")
        wanted = [name for name in (*needed, *optional) if name in members]
        return {name: _array(archive, members[name]) for name in wanted}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[np.generic]:
    with archive.open(member) as file:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        size = math.prod(shape) * dtype.itemsize
        there = member.file_size - file.tell()
        if size > MOST_BYTES or size != there or dtype.hasobject or not dtype.itemsize:
            raise ValueError(f"{member.filename} claims to be {dtype}{shape}")
    with archive.open(member) as file:
        array: NDArray[np.generic] = npy.read_array(file, allow_pickle=False)
        return array


def whole(path: Path, name: str, array: NDArray[np.generic]) -> Ints:
    """An array that has to be a row of whole numbers."""
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise damaged(path, f"{name} is {array.dtype}{array.shape}, not a row of whole numbers")
    if array.dtype == np.uint64 and array.max(initial=0) >> 63:
        raise damaged(path, f"{name} is beyond 63 bits")
    return array.astype(np.int64)


def _names(path: Path, array: NDArray[np.generic]) -> NDArray[np.str_]:
    if array.ndim != 1 or array.dtype.kind != "U":
        raise damaged(path, f"vocab is {array.dtype}{array.shape}, not a row of words")
    return cast(NDArray[np.str_], array)


def _channels_first(images: NDArray[np.generic]) -> Bytes:
    """As they come, of whatever type: that is checked where the dataset is made."""
    with_channels = images[:, None] if images.ndim < 4 else np.moveaxis(images, -1, 1)
    return cast(Bytes, with_channels)


def _of_images(raw: Images) -> dict[str, NDArray[np.generic] | None]:
    train, test = (np.moveaxis(part, 1, -1) for part in (raw.train, raw.test))
    if train.shape[-1] == 1:
        train, test = train[..., 0], test[..., 0]
    labels = (part.astype(np.uint8) for part in (raw.labels, raw.test_labels))
    return dict(zip(_IMAGES, (train, next(labels), test, next(labels)), strict=True)) | {
        "writer_train": raw.writers
    }


def _of_text(raw: Documents) -> dict[str, NDArray[np.generic] | None]:
    parts = (raw.words, raw.offsets, raw.authors, raw.vocabulary)
    return {**dict(zip(_TEXT, parts, strict=True)), "doc_test": raw.in_test}
