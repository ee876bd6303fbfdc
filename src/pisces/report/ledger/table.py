"""Rows that are added one at a time, in columns that grow by doubling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np

Fill: TypeAlias = int | float | bool | np.int32
Cells: TypeAlias = Any  # a memoryview: writing a number through it costs half of what numpy takes
LEAST_ROOM = 64


class Table:
    """Columns by name, each an attribute to write single cells through.

    `FILLS` says what a column is called, what a new row holds there, and so what it is made of.
    What numpy makes of a column is of the rows there are now, without a copy.
    """

    FILLS: ClassVar[Mapping[str, Fill]]

    def __init__(self) -> None:
        self._num = self._room = 0
        self._arrays = {name: np.empty(0, np.asarray(f).dtype) for name, f in self.FILLS.items()}
        self._grow()

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name][: self._num]

    def add(self, num: int = 1) -> int:
        """One more row, or some; the place of the first."""
        row = self._num
        while row + num > self._room:
            self._grow()
        self._num = row + num
        return row

    @property
    def num_bytes(self) -> int:
        """What the columns take in memory."""
        return sum(array.nbytes for array in self._arrays.values())

    def _grow(self) -> None:
        self._room = max(LEAST_ROOM, 2 * self._room)
        for name, fill in self.FILLS.items():
            old = self._arrays[name]
            new = np.full(self._room, fill, old.dtype)
            new[: len(old)] = old
            self._arrays[name] = new
            setattr(self, name, memoryview(new))  # type: ignore[arg-type]
