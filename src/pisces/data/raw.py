"""What files hold before it becomes a dataset: images of bytes, documents of word numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisces.errors import DataError, PiscesError

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Tell = Callable[[int, int], None]  # how much is done, and of how much

MOST_BYTES = 1 << 32  # of one array: more is a mistake, or malice
_LONGEST = 200  # characters of a reason: some quote the file


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Images of bytes (n, channels, height, width), labels, and the training images' writers."""

    train: Bytes
    labels: Ints
    test: Bytes
    test_labels: Ints
    writers: Ints | None = None

    def digest(self) -> str:
        """A checksum of images and labels, whatever files they came in."""
        parts = (self.train, self.labels, self.test, self.test_labels)
        whole = hashlib.sha256()
        for part in parts:
            whole.update(np.ascontiguousarray(part, np.uint8).data)
        return whole.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Texts as word numbers, end to end, sorted by author; each ends with the word `EOS`.

    `in_test` says which documents the files themselves hold out; without it some authors are.
    """

    words: NDArray[np.integer]
    offsets: Ints  # document i is words[offsets[i] : offsets[i + 1]]
    authors: Ints  # of each document
    vocabulary: NDArray[np.str_]  # by frequency, after the three below
    in_test: NDArray[np.bool_] | None = None

    def digest(self) -> str:
        """A checksum of documents, authors and vocabulary, whatever files they came in."""
        whole = hashlib.sha256("\n".join(self.vocabulary).encode())
        for part in (self.words, self.offsets, self.authors, self.in_test):
            if part is None:
                continue
            whole.update(b"\n%d\n" % len(part))  # so that no part can pass for its neighbour's
            whole.update(np.ascontiguousarray(part, "<i8").data)
        return whole.hexdigest()


SPECIAL = ("<pad>", "<unk>", "<eos>")
UNK, EOS = 1, 2  # their numbers; nothing is padded
Raw = Images | Documents
Found = Sequence[Sequence[Path]]  # the files found, per pattern


def silent(done: int, of: int) -> None:
    """Tell nobody how far it is."""


def damaged(path: Path, reason: object) -> DataError:
    """The error for a file that is there but cannot be used."""
    return DataError(
        f"{path} is damaged or not the dataset ({reason}); put a good copy there, or name another "
        "place"
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong within says that the file is damaged: one may make a reader raise all."""
    try:
        yield
    except PiscesError:
        raise  # it says more
    except Exception as error:
        raise damaged(path, reason(error)) from error


def reason(error: Exception) -> str:
    """What an error says, in a part of a line."""
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    said = " ".join(str(error).split())[:_LONGEST]
    if isinstance(error, OSError | ValueError) and said:
        return said
    return ": ".join(filter(None, (type(error).__name__, said)))


def held_out(path: Path, images: Bytes, labels: Ints, writers: Ints) -> Images:
    """Training and test images where files do not say which: the last tenth of each writer."""
    order = np.argsort(writers, kind="stable")
    _, first, counts = np.unique(writers[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, counts)
    in_test = np.zeros(len(order), bool)
    in_test[order] = rank >= np.repeat(counts - counts // 10, counts)
    if not in_test.any():
        raise damaged(path, "no writer has 10 images, so there is nobody's last tenth to test on")
    return Images(
        images[~in_test], labels[~in_test], images[in_test], labels[in_test], writers[~in_test]
    )


def numbered(names: Sequence[str]) -> Ints:
    """Clients' names as numbers, in the order of the names."""
    number = {name: place for place, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], np.int64)
