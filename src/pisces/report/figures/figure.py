"""What a figure is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Trace: TypeAlias = dict[str, Any]
Cell: TypeAlias = float | int | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A figure for plotly.js (`data`, `layout`; JSON-able, no NaN), and the numbers behind it.

    `words` say in one sentence what one sees. `columns` are what a CSV file of it holds, all of one
    length. A figure with nothing to show has no `data`, and `words` say why.
    """

    name: str
    title: str
    words: str
    data: Sequence[Trace]
    layout: Mapping[str, Any]
    columns: Mapping[str, Sequence[Cell]]
