"""CIFAR-10 as published: Python batches, read without obeying the pickle, or binary ones."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pisces.data.raw import Bytes, Found, Images, Ints, Tell, damaged, reading

SHAPE = (3, 32, 32)
_SIZE = 3 * 32 * 32
_MOST_BYTES = 1 << 26  # of a batch, which has 31 million
Batch = tuple[Bytes, Ints]


def python_batches(found: Found, tell: Tell) -> Images:
    """`data_batch_1` ... `data_batch_5` and `test_batch`."""
    return _images(found, tell, _python)


def binary_batches(found: Found, tell: Tell) -> Images:
    """`data_batch_1.bin` ... `data_batch_5.bin` and `test_batch.bin`."""
    return _images(found, tell, _binary)


def _images(found: Found, tell: Tell, read: Callable[[Path], Batch]) -> Images:
    paths = [paths[0] for paths in found]
    batches = []
    for number, path in enumerate(paths):
        tell(number, len(paths))
        batches.append(read(path))
    train = [np.concatenate(part) for part in zip(*batches[:-1], strict=True)]
    return Images(train[0], train[1], *batches[-1])


def _content(path: Path) -> bytes:
    with reading(path):
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large for a batch of CIFAR-10")
        return path.read_bytes()


def _binary(path: Path) -> Batch:
    """Per image its label and 3072 pixels, nothing else."""
    content = _content(path)
    if len(content) % (1 + _SIZE):
        raise damaged(path, f"{len(content)} bytes are not a multiple of {1 + _SIZE}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _SIZE)
    return rows[:, 1:].reshape(-1, *SHAPE), rows[:, 0].astype(np.int64)


def _python(path: Path) -> Batch:
    """A dict with `data` (n x 3072 bytes) and `labels`."""
    content = _content(path)
    with reading(path):
        batch = _Unpickler(content).load()
        by_name = {_text(key): value for key, value in batch.items()}
        pixels: _Array = by_name["data"]
        return pixels.bytes().reshape(-1, *SHAPE), _labels(by_name["labels"])


def _labels(found: object) -> Ints:
    """Only a flat list: lists in lists, each there many times, could fill the memory."""
    if type(found) is not list or not all(type(label) is int for label in found):
        raise ValueError("its labels are not a list of whole numbers")
    return np.array(found, np.int64)


def _text(key: str | bytes) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else key


# --- what a batch may contain, and nothing else ---------------------------------------------------


class _Array:
    """Stands for a numpy array: remembers what the pickle says of it, makes nothing of it yet."""

    def __init__(self, *_: object) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def bytes(self) -> Bytes:
        """The rows of bytes it has to be."""
        _version, shape, kind, by_columns, content = self._state
        if kind.name not in ("u1", "|u1") or by_columns or shape[1:] != (_SIZE,):
            raise ValueError("its data is not rows of 3072 bytes")
        return np.frombuffer(content, np.uint8).reshape(shape)


class _Type:
    """Stands for a numpy type."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = _text(name)

    def __setstate__(self, state: object) -> None:
        """Byte order and the like: single bytes have none."""


class _Encode:
    """Stands for `_codecs.encode`, by which Python 3 writes bytes into an old pickle."""

    def __init__(self) -> None:
        self._left = _MOST_BYTES

    def __call__(self, text: str, encoding: str) -> bytes:
        """The bytes themselves; the same text, encoded again and again, could fill the memory."""
        if encoding != "latin1":
            raise ValueError(f"bytes encoded as {encoding!r}")
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("it makes more bytes than a batch has")
        return text.encode(encoding)

    def __setstate__(self, state: object) -> None:
        """There is none."""


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
}


class _Unpickler(pickle._Unpickler):  # in Python: the one in C can be made to fill the memory
    """Admits dicts, lists, numbers, texts and arrays; nothing it is told by name is ever called."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._encode = _Encode()

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        """The stand-in for a name that batches contain."""
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch does")
        return _ALLOWED[module, name]
