"""What a figure is, and what all of them need."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pisces.quantities import told
from pisces.report.arrays import Floats, Ints
from pisces.report.goal import Goal
from pisces.report.styles import GREY

Trace: TypeAlias = dict[str, Any]

MOST_POINTS = 1600  # of one line
MOST_DOTS = 600  # each is an element of the page, to be drawn and kept
FEWER_DOTS = 400  # drawn at most where there are more than that
HEIGHT = 360  # pixels; a page may have it otherwise


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A figure for plotly.js: `data` and `layout`, JSON-able, without NaN.

    `words` say in one sentence what one sees; they begin large, unless with a name. A figure with
    nothing to show has no `data`, and `words` say why. Names out of logs are escaped where plotly
    would take them for markup, and stand as they are in `words`.
    """

    title: str
    words: str
    data: Sequence[Trace]
    layout: Mapping[str, Any]


def nothing(title: str, words: str) -> Figure:
    """A figure with nothing to show, saying why."""
    return Figure(title, words, [], {})


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


def over_time(name: str, goal: Goal) -> dict[str, Any]:
    """The layout of a metric against time, with the target."""
    target = goal.target
    level = {} if target is None else across(target, f"target {target:g}")
    layout = layout_of(name, "time (s)", told(goal.metric), **level)
    layout["xaxis"]["rangemode"] = "tozero"
    return layout


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis of that title."""
    return {"title": {"text": label(title)}, "automargin": True, **more}


def across(value: float, words: str) -> dict[str, Any]:
    """A level line over the whole width, and its name at the left: parts of a layout.

    There a curve that is to reach the line is still far from it.
    """
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value}
    text = {"xref": "paper", "x": 0, "y": value, "xanchor": "left", "yanchor": "bottom"}
    return {
        "shapes": [{**line, "line": {"color": GREY, "width": 1.5, "dash": "dash"}}],
        "annotations": [{**text, "text": label(words), "showarrow": False}],
    }


def label(text: object) -> str:
    """Text for plotly to show as it is: it would take some of it for markup."""
    return html.escape(str(text), quote=False)


def in_lines(name: str) -> str:
    """The same of a protocol with settings of its own, a line each."""
    return label(name).replace(", ", ",<br>")


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


def dots(values: Floats) -> Ints:
    """Which of these to draw as dots: fewer are drawn only where that spares many."""
    return thinned(values, len(values) if len(values) <= MOST_DOTS else FEWER_DOTS)


def middle(values: ArrayLike) -> float:
    """The median: of halves, since the sum of two numbers that a log may hold can be infinite."""
    return 2.0 * float(np.median(np.asarray(values, np.float64) / 2.0))
