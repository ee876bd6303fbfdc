"""Texts turned into word numbers."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pisces.data.raw import EOS, SPECIAL, UNK, Documents, Tell, numbered, silent

KEPT = 1 << 16  # words of a vocabulary: rarer ones are unknown, and a word fits 2 bytes
LONGEST = 40  # characters of a word; what is longer (keys, hashes) is cut into several
_WORD = re.compile(r"\w+|[^\w\s]")


def split(text: str) -> list[str]:
    """Words in small letters, and marks, each for itself."""
    return _WORD.findall(text.lower())


def joined(samples: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Texts out of LEAF's samples: a stretch of characters and the one that follows.

    LEAF moves on by one character from sample to sample, so that each is there 80 times; a sample
    that does not continue the one before begins a new text.
    """
    text: list[str] = []
    expected = None
    for stretch, following in samples:
        if stretch != expected:
            if text:
                yield "".join(text)
            text = [stretch]
        text.append(following)
        expected = stretch[1:] + following
    if text:
        yield "".join(text)


class Corpus:
    """Collects documents; words are numbered as they come, and by frequency at the end."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words = array("i")
        self._offsets = [0]
        self._authors: list[str] = []
        self._in_test: list[bool] = []

    def add(self, author: str, words: Iterable[str], in_test: bool = False) -> None:
        """One document."""
        numbers = self._numbers
        cut = (word[at : at + LONGEST] for word in words for at in range(0, len(word), LONGEST))
        self._words.extend(numbers.setdefault(word, len(numbers)) for word in cut)
        self._offsets.append(len(self._words))
        self._authors.append(author)
        self._in_test.append(in_test)

    def documents(self, tell: Tell = silent) -> Documents:
        """All of them, sorted by author, each with its end."""
        words, vocabulary = self._by_frequency()
        authors = numbered(self._authors)
        order = np.argsort(authors, kind="stable")
        in_test = np.array(self._in_test, bool)
        parts = []
        for done, document in enumerate(order):
            parts += [words[self._offsets[document] : self._offsets[document + 1]], _END]
            if done % 10_000 == 0:
                tell(done, len(order))
        lengths = np.diff(self._offsets)[order] + 1
        return Documents(
            words=np.concatenate(parts) if parts else _END[:0],
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            authors=authors[order],
            vocabulary=vocabulary,
            in_test=in_test[order] if in_test.any() else None,
        )

    def _by_frequency(self) -> tuple[NDArray[np.uint16], NDArray[np.str_]]:
        words, names = np.array(self._words, np.int32), list(self._numbers)
        counts = np.bincount(words, minlength=len(names))
        order = np.argsort(-counts, kind="stable")[: KEPT - len(SPECIAL)]  # ties: as they came
        number = np.full(len(names), UNK, np.uint16)
        number[order] = np.arange(len(order)) + len(SPECIAL)
        return number[words], np.array([*SPECIAL, *(names[word] for word in order)])


_END = np.array([EOS], np.uint16)
