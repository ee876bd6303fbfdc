"""Figures of numbers that a browser can draw, whatever is in a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pisces.quantities import counted
from pisces.report.figures.figure import Figure

LARGEST = 1e100  # sums and spans of larger ones are infinite before they are drawn
# Beyond these an axis has superscripts, unless it is told: plotly.js gives those a style of their
# own, which the policy of the live page forbids.
PLAIN = (1e-12, 1e14)
DRAWN = ("x", "y", "z", "base")  # what a trace has its numbers in


def bounded(figure: Figure) -> Figure:
    """The figure without numbers that are too large, which its words tell."""
    large = sum(not _fits(value) for trace in figure.data for value in _values(trace))
    data = [_bounded_trace(trace) for trace in figure.data] if large else figure.data
    words = figure.words
    if large:
        words += f" {counted(large, 'number')} beyond {LARGEST:g} cannot be drawn."
    return replace(figure, words=words, data=data, layout=_bounded_layout(figure))


def _values(trace: Mapping[str, Any]) -> Iterator[float]:
    for name in DRAWN:
        yield from _flat(trace.get(name))


def _flat(value: Any) -> Iterator[float]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _flat(part)
    elif isinstance(value, int | float):
        yield value


def _fits(value: float) -> bool:
    return abs(value) <= LARGEST


def _bounded_trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cut(value) if name in DRAWN else value for name, value in trace.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_cut(part) for part in value]
    return None if isinstance(value, int | float) and not _fits(value) else value


def _bounded_layout(figure: Figure) -> dict[str, Any]:
    layout = {name: _axis(figure, name, part) for name, part in figure.layout.items()}
    for name in ("shapes", "annotations"):
        if name in layout:
            layout[name] = [part for part in layout[name] if all(map(_fits, _places(part)))]
    return layout


def _places(part: Mapping[str, Any]) -> Iterator[float]:
    for name in ("x", "y", "x0", "x1", "y0", "y1"):
        yield from _flat(part.get(name))


def _axis(figure: Figure, name: str, part: Any) -> Any:
    """What is no axis, as it is; an axis with a range that can be drawn, and plain exponents."""
    if "axis" not in name:
        return part
    if not all(map(_fits, _flat(part.get("range")))):
        part = {key: value for key, value in part.items() if key != "range"}
    way, id_ = name[0], name.replace("axis", "")  # such as y, y2
    own = [trace for trace in figure.data if trace.get(f"{way}axis", way) == id_]
    along = [part.get("range"), *((trace.get(way), trace.get("base")) for trace in own)]
    largest = max((abs(value) for value in _flat(along) if _fits(value)), default=0.0)
    is_plain = largest == 0.0 or PLAIN[0] <= largest <= PLAIN[1]
    return part if is_plain else {**part, "exponentformat": "e"}
