"""Documents of word numbers made into a dataset: windows of words, each with the word that follows.

An author's documents are put end to end and cut into windows of `sequence_length + 1` words; what
is left over is dropped. A sample's inputs are its window without the last word, its targets the
window without the first. There is no padding: the mean over samples is the mean over words.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.data.datasets import Dataset
from pisces.data.raw import SPECIAL, UNK, Documents, Images, Ints, Raw, damaged
from pisces.errors import ConfigError, DataError

EVERY = 10  # one author of so many is held out for the test set
Windows = tuple[torch.Tensor, Ints]


@dataclass(frozen=True, slots=True)
class Cut:
    """How text becomes samples: words per sample, and words known (the most frequent)."""

    sequence_length: int = 32
    vocabulary: int = 10_000


@dataclass(frozen=True, slots=True)
class Text:
    """Documents to predict the next word of."""

    def check(self, raw: Raw, path: Path) -> Documents:
        """The documents, if they are what they should be; an error names `path`."""
        if isinstance(raw, Images):
            raise damaged(path, "it holds images, not text")
        _check_parts(raw, path)
        if not 0 <= raw.words.min(initial=0) <= raw.words.max(initial=0) < len(raw.vocabulary):
            raise damaged(path, "it has words that are not in its vocabulary")
        return raw

    def dataset(self, found: Raw, path: Path, cut: Cut) -> Dataset:
        """The dataset these documents make."""
        raw = self.check(found, path)
        known = _num_known(raw, cut)
        words = np.where(raw.words < known, raw.words, UNK).astype(np.int64)
        in_test = raw.in_test if raw.in_test is not None else np.isin(raw.authors, _held_out(raw))
        train, authors = _windows(raw, words, ~in_test, cut.sequence_length)
        test, _ = _windows(raw, words, in_test, cut.sequence_length)
        _check_number(train, test, path, cut)
        return Dataset(
            inputs=train[:, :-1].contiguous(),
            targets=train[:, 1:].contiguous(),
            test_inputs=test[:, :-1].contiguous(),
            test_targets=test[:, 1:].contiguous(),
            num_classes=known,
            natural=authors,
            objective="next_word",
        )


def _num_known(raw: Documents, cut: Cut) -> int:
    """The size of the vocabulary."""
    if cut.vocabulary <= len(SPECIAL):
        raise ConfigError(
            f"data.vocabulary must be above {len(SPECIAL)} (that many stand for padding, unknown "
            f"words and ends), not {cut.vocabulary}"
        )
    return min(cut.vocabulary, len(raw.vocabulary))


def _held_out(raw: Documents) -> Ints:
    """Every tenth author (of fewer, the last): the same in every run, however text is cut."""
    authors = np.unique(raw.authors)
    return authors[min(EVERY, len(authors)) - 1 :: EVERY]


def _windows(raw: Documents, words: Ints, chosen: NDArray[np.bool_], length: int) -> Windows:
    """The windows of some documents, and whose each is."""
    lengths = np.diff(raw.offsets)
    stream = words[np.repeat(chosen, lengths)]
    authors, owner = np.unique(raw.authors[chosen], return_inverse=True)
    num_words = np.bincount(owner, lengths[chosen], len(authors)).astype(np.int64)
    num_windows = num_words // (length + 1)
    number = np.arange(num_windows.sum()) - np.repeat(
        np.cumsum(num_windows) - num_windows, num_windows
    )
    starts = np.repeat(np.cumsum(num_words) - num_words, num_windows) + number * (length + 1)
    windows = stream[starts[:, None] + np.arange(length + 1)]
    return torch.from_numpy(windows), np.repeat(authors, num_windows)


def _check_parts(raw: Documents, path: Path) -> None:
    whole = len(raw.offsets) > 1 and raw.offsets[0] == 0 and raw.offsets[-1] == len(raw.words)
    if not whole or (np.diff(raw.offsets) < 0).any():
        raise damaged(path, "its documents do not make up its words")
    if raw.authors.shape != (len(raw.offsets) - 1,) or (np.diff(raw.authors) < 0).any():
        raise damaged(path, "its documents are not one after another by author")
    if raw.in_test is not None and raw.in_test.shape != raw.authors.shape:
        raise damaged(path, "it does not say of every document whether it is for testing")


def _check_number(train: torch.Tensor, test: torch.Tensor, path: Path, cut: Cut) -> None:
    if len(train) and len(test):
        return
    raise DataError(
        f"{path}: samples of data.sequence_length = {cut.sequence_length} words leave {len(train)} "
        f"to train on and {len(test)} to test on; choose a shorter data.sequence_length"
    )
