"""Who worked when: a row per client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from pisces.errors import ConfigError
from pisces.report.arrays import Ints
from pisces.report.figures import shades
from pisces.report.figures.busy import busy_map
from pisces.report.figures.figure import Figure, Trace, label, layout_of, nothing, numbers
from pisces.report.figures.span import COLOURS, STALE, Span, in_words, span_of
from pisces.report.ledger import Ledger
from pisces.report.ledger.tables import AGGREGATED, OUTCOMES, Outcome

Colouring: TypeAlias = Literal["staleness", "outcome"]
NAME, TITLE = "timeline", "who worked when"
MOST_BARS = 1500
MOST_ROWS = 200
ROW_PIXELS = 18
# Whoever sees no colours goes by these.
SHAPES = {
    "waiting": ".",
    "dropped": "\\",
    "failed": "x",
    "called off": "-",
    "left": "/",
    "cut off": "|",
}


def timeline(
    ledger: Ledger,
    *,
    colour: Colouring = "staleness",
    since: float | None = None,
    until: float | None = None,
    first: int = 0,
    num: int = 40,
    or_fewer: Sequence[int] = (),
) -> Figure:
    """Tasks of `num` clients from the `first` on (by id, of those that ever started), as bars.

    Where the span holds too many tasks, `or_fewer` clients are tried; where all are too many, each
    row is cut into pieces, which show how stale the client's updates were, or what came of most of
    its work.
    """
    if colour not in ("staleness", "outcome"):
        raise ConfigError(f"a timeline is coloured by staleness or outcome, not {colour!r}")
    with ledger.lock:
        rows = [min(max(0, most), MOST_ROWS) for most in (num, *or_fewer)]
        spans = [span_of(ledger, since, until, max(0, first), most) for most in rows]
        known = [span for span in spans if span is not None]
        if not known:
            return nothing(TITLE, "No client was given a task yet.")
        few = next((span for span in known if len(span.tasks) <= MOST_BARS), None)
        return _shaded(ledger, known[0], colour) if few is None else _bars(ledger, few, colour)


def _layout(span: Span) -> dict[str, Any]:
    layout = layout_of(NAME, "time (s)", "client", barmode="overlay")
    if span.until > span.since:  # else it ended as it began
        layout["xaxis"]["range"] = [span.since, span.until]
    layout["yaxis"] |= {
        "tickvals": list(range(len(span.names))),
        "ticktext": [label(name) for name in span.names],
        "range": [len(span.names) - 0.5, -0.5],
        "fixedrange": True,  # one zooms in time
        "zeroline": False,
    }
    layout["height"] = 140 + ROW_PIXELS * max(4, len(span.names))
    return layout


# --- a bar per task -------------------------------------------------------------------------------


def _bars(ledger: Ledger, span: Span, colour: Colouring) -> Figure:
    outcomes = ledger.notes.tasks["outcome"][span.tasks]
    traces = []
    for code, outcome in enumerate(OUTCOMES):
        here = np.flatnonzero(outcomes == code)
        if len(here):
            by_staleness = colour == "staleness" and code == AGGREGATED
            marker = _scale(ledger, span, here) if by_staleness else _plain(outcome)
            traces.append(_trace(ledger, span, here, outcome, marker))
    return Figure(TITLE, in_words(ledger, span), traces, _layout(span))


def _trace(ledger: Ledger, span: Span, here: Ints, outcome: str, marker: dict[str, Any]) -> Trace:
    starts, ends = span.starts[here], span.ends[here]
    return {
        "type": "bar",
        "orientation": "h",
        "name": outcome,
        "base": numbers(starts),
        "x": numbers(ends - starts),
        "y": numbers(span.places[here]),
        "width": 0.8,
        "marker": marker,
        "hovertext": [_hover(ledger, span, place, outcome) for place in here.tolist()],
        "hoverinfo": "text",
        # A legend has no colour for a scale; the bar beside the figure tells it.
        "showlegend": "colorscale" not in marker,
    }


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        "color": COLOURS[outcome],
        "pattern": {"shape": SHAPES.get(outcome, ""), "fillmode": "overlay", "size": 5},
        "line": {"width": 0},
    }


def _scale(ledger: Ledger, span: Span, here: Ints) -> dict[str, Any]:
    staleness = ledger.notes.tasks["staleness"][span.tasks[here]]
    largest = max(1, int(staleness.max()))
    whole = {"tick0": 0, "dtick": 1} if largest < 12 else {}  # there is no half a version
    return {
        "color": numbers(staleness),
        "colorscale": STALE,
        "cmin": 0,
        "cmax": largest,
        "colorbar": {"title": {"text": "staleness"}, "thickness": 12, **whole},
        "line": {"width": 0},
    }


def _hover(ledger: Ledger, span: Span, place: int, outcome: str) -> str:
    tasks, row = ledger.notes.tasks, span.tasks[place]
    staleness, version = int(tasks["staleness"][row]), int(tasks["version"][row])
    text = f"client {label(span.names[span.places[place]])}, task {int(tasks['task'][row])}<br>"
    text += f"{outcome}" + (f", staleness {staleness}" if staleness >= 0 else "")
    text += f", from version {version}" if version >= 0 else ""
    return f"{text}<br>{span.starts[place]:,.1f} to {span.ends[place]:,.1f} s"


# --- a shade per piece of time --------------------------------------------------------------------


def _shaded(ledger: Ledger, span: Span, colour: Colouring) -> Figure:
    found = busy_map(ledger, span)
    traces = shades.by_staleness(found) if colour == "staleness" else [shades.by_outcome(found)]
    words = f"{in_words(ledger, span)[:-1]}; too many to draw one by one: zoom in to see tasks."
    if len(traces) > 1:
        words += " Grey: at work, but nothing of it was aggregated."
    return Figure(TITLE, words, traces, _layout(span))
