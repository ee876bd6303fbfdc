"""Who worked when: a row per client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.errors import ConfigError
from pisces.report.facts import Floats
from pisces.report.figures.busy import STEPS, busy_map
from pisces.report.figures.figure import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    Cell,
    Figure,
    Ints,
    Trace,
    counted,
    label,
    layout_of,
    nothing,
    numbers,
    seconds,
)
from pisces.report.ledger import Ledger
from pisces.report.ledger.tables import AGGREGATED, FAILED, OUTCOMES, RUNNING

Colouring: TypeAlias = Literal["staleness", "outcome"]
NAME, TITLE = "timeline", "who worked when"
MOST_BARS = 1500
MOST_ROWS = 200
ROW_PIXELS = 18
COLOURS = dict(zip(OUTCOMES, (SKY, AMBER, GREEN, PINK, ORANGE, GREY, BLUE, GREY), strict=True))
# Whoever sees no colours goes by these.
SHAPES = {
    "waiting": ".",
    "dropped": "\\",
    "failed": "x",
    "called off": "-",
    "left": "/",
    "cut off": "|",
}


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Tasks of some clients in a span of time; `places` are rows of the figure."""

    since: float
    until: float
    names: list[str]
    clients: list[int]
    tasks: Ints
    places: Ints
    starts: Floats
    ends: Floats


def timeline(
    ledger: Ledger,
    *,
    colour: Colouring = "staleness",
    since: float | None = None,
    until: float | None = None,
    first: int = 0,
    num: int = 40,
) -> Figure:
    """Tasks of `num` clients from the `first` on (by id, of those that ever started), as bars.

    Where the span holds too many tasks, each row is cut into pieces, which show how busy the client
    was or how stale its updates.
    """
    if colour not in ("staleness", "outcome"):
        raise ConfigError(f"a timeline is coloured by staleness or outcome, not {colour!r}")
    with ledger.lock:
        span = _span(ledger, since, until, max(0, first), min(max(0, num), MOST_ROWS))
        if span is None:
            return nothing(NAME, TITLE, "No client was given a task yet.")
        if len(span.tasks) > MOST_BARS:
            return _shaded(ledger, span, colour)
        return _bars(ledger, span, colour)


def _span(
    ledger: Ledger, since: float | None, until: float | None, first: int, num: int
) -> Span | None:
    notes = ledger.notes
    ids, tasks = notes.clients["client"], notes.tasks
    started = np.flatnonzero(notes.clients["picks"])
    shown = started[np.argsort(ids[started])][first : first + num]
    if not len(started):
        return None
    since = 0.0 if since is None else since
    until = notes.at if until is None else until
    place_of: NDArray[np.int64] = np.full(len(ids), -1)
    place_of[shown] = np.arange(len(shown))
    ends = np.where(np.isnan(tasks["ended_at"]), notes.at, tasks["ended_at"])
    places = place_of[tasks["client"]]
    within = np.flatnonzero((places >= 0) & (tasks["started_at"] <= until) & (ends >= since))
    names, clients = ledger.names.all(), ids[shown].tolist()
    return Span(
        since=since,
        until=max(until, since),
        names=[names.get(client, str(client)) for client in clients],
        clients=clients,
        tasks=within,
        places=places[within],
        starts=tasks["started_at"][within],
        ends=ends[within],
    )


def _layout(span: Span) -> dict[str, Any]:
    layout = layout_of(NAME, "time (s)", "client", barmode="overlay")
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
    return Figure(NAME, TITLE, _words(ledger, span), traces, _layout(span), _columns(ledger, span))


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


def _plain(outcome: str) -> dict[str, Any]:
    return {
        "color": COLOURS[outcome],
        "pattern": {"shape": SHAPES.get(outcome, ""), "fillmode": "overlay", "size": 5},
        "line": {"width": 0},
    }


def _scale(ledger: Ledger, span: Span, here: Ints) -> dict[str, Any]:
    staleness = ledger.notes.tasks["staleness"][span.tasks[here]]
    return {
        "color": numbers(staleness),
        "colorscale": "Viridis",
        "reversescale": True,
        "cmin": 0,
        "cmax": max(1, int(staleness.max())),
        "colorbar": {"title": {"text": "staleness"}, "thickness": 12},
        "line": {"width": 0},
    }


def _hover(ledger: Ledger, span: Span, place: int, outcome: str) -> str:
    tasks, row = ledger.notes.tasks, span.tasks[place]
    staleness, version = int(tasks["staleness"][row]), int(tasks["version"][row])
    text = f"client {label(span.names[span.places[place]])}, task {int(tasks['task'][row])}<br>"
    text += f"{outcome}" + (f", staleness {staleness}" if staleness >= 0 else "")
    text += f", from version {version}" if version >= 0 else ""
    return f"{text}<br>{span.starts[place]:,.1f} to {span.ends[place]:,.1f} s"


def _words(ledger: Ledger, span: Span) -> str:
    tasks = ledger.notes.tasks
    outcomes, staleness = tasks["outcome"][span.tasks], tasks["staleness"][span.tasks]
    num = int(np.count_nonzero(ledger.notes.clients["picks"]))
    parts = [
        f"{counted(len(span.tasks), 'task')} of {len(span.clients):,} of the {num:,} clients that "
        f"ever worked, from {seconds(span.since)} to {seconds(span.until)}"
    ]
    used = staleness[outcomes == AGGREGATED]
    if len(used):
        parts.append(f"{len(used):,} aggregated with staleness {used.min()} to {used.max()}")
    for code, words in ((FAILED, "failed"), (RUNNING, "still running")):
        if np.any(outcomes == code):
            parts.append(f"{np.count_nonzero(outcomes == code):,} {words}")
    return "; ".join(parts) + "."


def _columns(ledger: Ledger, span: Span) -> dict[str, list[Cell]]:
    tasks, rows = ledger.notes.tasks, span.tasks
    staleness = tasks["staleness"][rows].tolist()
    return {
        "client": [span.clients[place] for place in span.places.tolist()],
        "task": numbers(tasks["task"][rows]),
        "started_at": numbers(span.starts),
        "ended_at": numbers(tasks["ended_at"][rows]),
        "outcome": [OUTCOMES[code] for code in tasks["outcome"][rows].tolist()],
        "staleness": [None if value < 0 else value for value in staleness],
    }


# --- a shade per piece of time --------------------------------------------------------------------


def _shaded(ledger: Ledger, span: Span, colour: Colouring) -> Figure:
    busy, stale = busy_map(ledger, span)
    by_staleness = colour == "staleness"
    edges = np.linspace(span.since, span.until, STEPS + 1)
    what = "mean staleness" if by_staleness else "share of time busy"
    trace: Trace = {
        "type": "heatmap",
        "x": numbers((edges[:-1] + edges[1:]) / 2),
        "y": list(range(len(span.clients))),
        "z": [numbers(row) for row in (stale if by_staleness else busy)],
        "colorscale": "Viridis" if by_staleness else "Cividis",
        "reversescale": by_staleness,
        "zmin": 0,
        "ygap": 1,
        "hoverongaps": False,
        "colorbar": {"title": {"text": what.replace(" ", "<br>", 1)}, "thickness": 12},
        "hovertemplate": f"%{{x:,.4~g}} s: {what} %{{z:.3~g}}<extra></extra>",
    }
    words = f"{_words(ledger, span)[:-1]}; too many to draw one by one: zoom in to see tasks."
    since, until = np.tile(edges[:-1], len(busy)), np.tile(edges[1:], len(busy))
    columns: dict[str, list[Cell]] = {
        "client": np.repeat(span.clients, STEPS).tolist(),
        "since": numbers(since),
        "until": numbers(until),
        "busy_share": numbers(busy.ravel()),
        "mean_staleness": numbers(stale.ravel()),
    }
    return Figure(NAME, TITLE, words, [trace], _layout(span), columns)
