"""Tables of samples: what Hugging Face keeps, whether in Parquet files or from the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from pisces.data import words
from pisces.data.formats import pictures
from pisces.data.raw import (
    Bytes,
    Documents,
    Images,
    Ints,
    Tell,
    damaged,
    held_out,
    numbered,
    reading,
)


@dataclass(frozen=True, slots=True)
class Columns:
    """What a table's columns are called: the sample, its label, whose it is."""

    sample: str
    label: str | None = None
    client: str | None = None

    @property
    def names(self) -> list[str]:
        """Those there are."""
        return [name for name in (self.sample, self.label, self.client) if name is not None]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in batches of Arrow's; `path` says where they are from."""

    path: Path
    num_rows: int
    batches: Iterable[Any]


@dataclass(frozen=True, slots=True)
class ImageTable:
    """Tables of pictures and labels: to train on, and to test on where there is a second."""

    columns: Columns
    shape: tuple[int, int, int]

    def read(self, tables: Sequence[Table], tell: Tell) -> Images:
        """All their images."""
        pictures.require()
        train, labels, writers = self._images(tables[0], tell)
        if len(tables) > 1:
            test, test_labels, _ = self._images(tables[1], tell)
            return Images(train, labels, test, test_labels, writers)
        if writers is None:
            raise damaged(tables[0].path, "it has no part to test on")
        return held_out(tables[0].path, train, labels, writers)

    def _images(self, table: Table, tell: Tell) -> tuple[Bytes, Ints, Ints | None]:
        images, labels, writers = [], [], []
        for picture, label, writer in _rows(table, self.columns, tell):
            with reading(table.path):
                content = picture["bytes"] if isinstance(picture, dict) else picture
                images.append(pictures.decode(content, self.shape))
            labels.append(label)
            writers.append(str(writer))
        if not images or not all(type(label) is int for label in labels):
            raise damaged(table.path, "it has no images with whole numbers as labels")
        named = self.columns.client is not None
        return np.stack(images), np.array(labels), numbered(writers) if named else None


@dataclass(frozen=True, slots=True)
class TextTable:
    """Tables of documents: text, or a list of words, and its author."""

    columns: Columns

    def read(self, tables: Sequence[Table], tell: Tell) -> Documents:
        """All their documents; a second table is to test on."""
        corpus = words.Corpus()
        for number, table in enumerate(tables):
            for text, _, author in _rows(table, self.columns, tell):
                if not isinstance(text, str | list):
                    raise damaged(table.path, f"{self.columns.sample} is not text everywhere")
                found = words.split(text) if isinstance(text, str) else map(str, text)
                corpus.add(str(author), found, in_test=number > 0)
        return corpus.documents(tell)


@dataclass(frozen=True, slots=True)
class CharacterTable:
    """Tables of LEAF's stretches of characters, each with the character that follows."""

    columns: Columns

    def read(self, tables: Sequence[Table], tell: Tell) -> Documents:
        """The texts they are of."""
        corpus = words.Corpus()
        for number, table in enumerate(tables):
            rows = _rows(table, self.columns, tell)
            for role, samples in groupby(rows, lambda row: str(row[2])):
                for text in words.joined(_stretches(table.path, samples)):
                    corpus.add(role, text, in_test=number > 0)
        return corpus.documents(tell)


def _stretches(path: Path, rows: Iterable[tuple[Any, Any, Any]]) -> Iterator[tuple[str, str]]:
    for stretch, following, _ in rows:
        if not isinstance(stretch, str) or not isinstance(following, str):
            raise damaged(path, "its samples are not text everywhere")
        yield stretch, following


TableReader = ImageTable | TextTable | CharacterTable


def _rows(table: Table, columns: Columns, tell: Tell) -> Iterator[tuple[Any, Any, Any]]:
    """Sample, label and client of each row; what has no column is None."""
    done = 0
    for batch in table.batches:
        tell(done, table.num_rows)
        missing = [name for name in columns.names if name not in batch.schema.names]
        if missing:
            there = ", ".join(batch.schema.names)
            raise damaged(table.path, f"it has no column {missing[0]}, only {there}")
        nothing = [None] * batch.num_rows
        yield from zip(
            *(
                nothing if name is None else batch.column(name).to_pylist()
                for name in (columns.sample, columns.label, columns.client)
            ),
            strict=True,
        )
        done += batch.num_rows
