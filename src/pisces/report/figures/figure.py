"""What a figure is, and what all of them need."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Trace: TypeAlias = dict[str, Any]
Cell: TypeAlias = float | int | str | None
Ints: TypeAlias = NDArray[np.int64]

MOST_POINTS = 1600  # of one line
MOST_DOTS = 400  # each is an element of the page, to be drawn and kept
HEIGHT = 360  # pixels; a page may have it otherwise
BLUE, ORANGE, GREEN, PINK, SKY, AMBER, GREY = (  # as in `pisces.report.styles`
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#888888"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A figure for plotly.js (`data`, `layout`; JSON-able, no NaN), and the numbers behind it.

    `words` say in one sentence what one sees. `columns` are what a CSV file of it holds, all of one
    length. A figure with nothing to show has no `data`, and `words` say why. Names out of logs are
    escaped where plotly would take them for markup, and stand as they are in `words` and `columns`.
    """

    name: str
    title: str
    words: str
    data: Sequence[Trace]
    layout: Mapping[str, Any]
    columns: Mapping[str, Sequence[Cell]]


class Columns(Mapping[str, Sequence[Cell]]):
    """Columns as numpy has them, made plain when somebody wants them: a page never does.

    Of whole numbers, those below zero are not known.
    """

    def __init__(self, **columns: NDArray[Any]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Sequence[Cell]:
        column = self._columns[name]
        if column.dtype.kind == "i":
            return [None if value < 0 else value for value in column.tolist()]
        return numbers(column)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def nothing(name: str, title: str, words: str) -> Figure:
    """A figure with nothing to show, saying why."""
    return Figure(name, title, words, [], {}, {})


def layout_of(name: str, x: str, y: str, **more: Any) -> dict[str, Any]:
    """The usual layout: two named axes, and what is set here stays when numbers move on.

    Colours of paper and text are the page's own.
    """
    return {
        "xaxis": axis(x),
        "yaxis": axis(y),
        "margin": {"l": 60, "r": 20, "t": 20, "b": 50},
        "height": HEIGHT,
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "uirevision": name,
        **more,
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis of that title."""
    return {"title": {"text": label(title)}, "automargin": True, **more}


def across(value: float, words: str, *, dash: str = "dash") -> dict[str, Any]:
    """A level line over the whole width, and its name at the right: parts of a layout."""
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value}
    text = {"xref": "paper", "x": 1, "y": value, "xanchor": "right", "yanchor": "bottom"}
    return {
        "shapes": [{**line, "line": {"color": GREY, "width": 1.5, "dash": dash}}],
        "annotations": [{**text, "text": label(words), "showarrow": False}],
    }


def label(text: object) -> str:
    """Text for plotly to show as it is: it would take some of it for markup."""
    return html.escape(str(text), quote=False)


def told(metric: str) -> str:
    """What a metric is called where people read it."""
    return metric.replace("_", " ")


def numbers(values: ArrayLike) -> list[Any]:
    """Plain numbers, None where there is none."""
    array = np.asarray(values)
    if array.dtype.kind != "f":
        return list(array.tolist())
    return [value if math.isfinite(value) else None for value in array.tolist()]


def thinned(values: ArrayLike, most: int = MOST_POINTS) -> Ints:
    """Which of these to draw where they are too many: of every stretch its ends and extremes."""
    array = np.asarray(values, np.float64)
    if len(array) <= most:
        return np.arange(len(array))
    edges = np.linspace(0, len(array), max(1, most // 4) + 1).astype(np.int64)
    low, high = np.where(np.isnan(array), np.inf, array), np.where(np.isnan(array), -np.inf, array)
    kept = [edges[:-1], edges[1:] - 1]
    pairs = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    kept.append(np.array([a + int(low[a:b].argmin()) for a, b in pairs]))
    kept.append(np.array([a + int(high[a:b].argmax()) for a, b in pairs]))
    return np.unique(np.concatenate(kept))


def middle(values: ArrayLike) -> float:
    """The median: of halves, since the sum of two numbers that a log may hold can be infinite."""
    return 2.0 * float(np.median(np.asarray(values, np.float64) / 2.0))


def seconds(value: float) -> str:
    """A duration in few letters: 7.5 s, 440 s, 2.8 h."""
    if value >= 1e4:
        return f"{value / 3600:,.1f} h"
    return f"{value:,.0f} s" if value >= 10 else f"{value:.2g} s"


def counted(num: int, one: str, many: str | None = None) -> str:
    """`1 update`, `12,000 updates`."""
    return f"{num:,} {one if num == 1 else many or one + 's'}"
