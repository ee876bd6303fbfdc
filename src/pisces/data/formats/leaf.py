"""LEAF's JSON files: `users`, `num_samples`, and per user its samples `x` and `y`.

LEAF: A Benchmark for Federated Settings (Caldas et al., 2018). Files are read one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pisces.data import words
from pisces.data.raw import (
    MOST_BYTES,
    Bytes,
    Documents,
    Found,
    Images,
    Ints,
    Tell,
    damaged,
    held_out,
    numbered,
    reading,
)

SIDE = 28  # pixels of a FEMNIST image
Samples = tuple[Path, str, Sequence[Any], Sequence[Any]]  # file, user, x, y


def femnist(found: Found, tell: Tell) -> Images:
    """Images of 784 values from 0 to 1: files to train and to test on, or only the former."""
    train, labels, writers = _images(found[0], tell)
    if len(found) == 1:
        return held_out(found[0][0], train, labels, numbered(writers))
    test, test_labels, _ = _images(found[1], tell)
    return Images(train, labels, test, test_labels, numbered(writers))


def shakespeare(found: Found, tell: Tell) -> Documents:
    """Stretches of characters and the one that follows, put together to the texts they are of."""
    corpus = words.Corpus()
    for paths, in_test in zip(found, (False, True), strict=False):
        for path, role, x, y in _users(paths, tell):
            if not all(isinstance(part, str) for part in (*x, *y)):
                raise damaged(path, f"the samples of {role!r} are not text")
            for text in words.joined(zip(x, y, strict=True)):
                corpus.add(role, text, in_test)
    return corpus.documents()


def _images(paths: Sequence[Path], tell: Tell) -> tuple[Bytes, Ints, list[str]]:
    images, labels, writers = [], [], []
    for path, writer, x, y in _users(paths, tell):
        images.append(_pixels(path, writer, x))
        labels.append(_labels(path, writer, y))
        writers += [writer] * len(y)
    if not images:
        raise damaged(paths[0], "it has no images")
    return np.concatenate(images), np.concatenate(labels), writers


def _pixels(path: Path, writer: str, x: Sequence[Any]) -> Bytes:
    try:
        values = np.array(x, np.float64).reshape(-1, 1, SIDE, SIDE)
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged(path, f"the images of {writer!r} are not 784 numbers each") from error
    if len(values) != len(x) or not ((values >= 0) & (values <= 1)).all():
        raise damaged(path, f"the images of {writer!r} are not 784 numbers from 0 to 1 each")
    return np.rint(values * 255).astype(np.uint8)  # LEAF divided bytes by 255


def _labels(path: Path, writer: str, y: Sequence[Any]) -> Ints:
    if not all(type(label) is int and abs(label) < 1 << 31 for label in y):
        raise damaged(path, f"the labels of {writer!r} are not whole numbers")
    return np.array(y, np.int64)


def _users(paths: Sequence[Path], tell: Tell) -> Iterator[Samples]:
    """Everybody with at least one sample."""
    for number, path in enumerate(paths):
        tell(number, len(paths))
        for user, samples in _user_data(path).items():
            x, y = (samples.get(part) for part in "xy") if isinstance(samples, dict) else (0, 0)
            if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
                raise damaged(path, f"{user!r} has not one y for each x")
            if x:
                yield path, user, x, y


def _user_data(path: Path) -> dict[str, Any]:
    with reading(path):
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        with path.open("rb") as file:
            content = json.load(file)
    users = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(users, dict):
        raise damaged(path, "it has no user_data, as LEAF's files do")
    return users
