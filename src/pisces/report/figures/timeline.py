"""Who worked when: a row per client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.errors import ConfigError
from pisces.report.facts import Floats
from pisces.report.figures.busy import STEPS, BusyMap, busy_map
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
from pisces.report.ledger.tables import AGGREGATED, OUTCOMES, RUNNING

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
    first: int  # client of those that ever worked, counted from 0
    num_worked: int
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

    Where the span holds too many tasks, each row is cut into pieces, which show how stale the
    client's updates were, or what came of most of its work.
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
        first=first,
        num_worked=len(started),
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
    parts = [
        f"{counted(len(span.tasks), 'task')} of {_whose(span)}, from {seconds(span.since)} to "
        f"{seconds(span.until)}"
    ]
    used = staleness[outcomes == AGGREGATED]
    if len(used):
        low, high = int(used.min()), int(used.max())
        how = f"{low}" if low == high else f"{low} to {high}"
        parts.append(f"{len(used):,} aggregated with staleness {how}")
    for code, outcome in enumerate(OUTCOMES):
        if code != AGGREGATED and np.any(outcomes == code):
            words = "still running" if code == RUNNING else outcome
            parts.append(f"{np.count_nonzero(outcomes == code):,} {words}")
    return "; ".join(parts) + "."


def _whose(span: Span) -> str:
    num = len(span.clients)
    if num == span.num_worked:
        return f"the {counted(num, 'client')} that ever worked"
    if not num:
        return f"none of the {counted(span.num_worked, 'client')} that ever worked"
    first, last = span.first + 1, span.first + num
    own = f"clients {first:,} to {last:,}" if num > 1 else f"client {first:,}"
    return f"{own} of the {span.num_worked:,} that ever worked, by id"


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
    found = busy_map(ledger, span)
    edges = np.linspace(span.since, span.until, STEPS + 1)
    middles = numbers((edges[:-1] + edges[1:]) / 2)
    if colour == "staleness":
        traces = [_stale_cells(found, middles), *_unused_cells(found, middles)]
    else:
        traces = [_outcome_cells(found, middles)]
    words = f"{_words(ledger, span)[:-1]}; too many to draw one by one: zoom in to see tasks."
    if len(traces) > 1:
        words += " Grey: at work, but nothing of it was aggregated."
    codes = found.outcomes.ravel().tolist()
    columns: dict[str, list[Cell]] = {
        "client": np.repeat(span.clients, STEPS).tolist(),
        "since": numbers(np.tile(edges[:-1], len(found.busy))),
        "until": numbers(np.tile(edges[1:], len(found.busy))),
        "busy_share": numbers(found.busy.ravel()),
        "mean_staleness": numbers(found.stale.ravel()),
        "commonest_outcome": [OUTCOMES[code] if code >= 0 else None for code in codes],
    }
    return Figure(NAME, TITLE, words, traces, _layout(span), columns)


def _cells(middles: list[Any], values: Any, **more: Any) -> Trace:
    trace = {"type": "heatmap", "x": middles, "y": list(range(len(values)))}
    return {**trace, "z": values, "ygap": 1, "hoverongaps": False, **more}


def _stale_cells(found: BusyMap, middles: list[Any]) -> Trace:
    return _cells(
        middles,
        [numbers(row) for row in found.stale],
        colorscale="Viridis",
        reversescale=True,
        zmin=0,
        colorbar={"title": {"text": "mean<br>staleness"}, "thickness": 12},
        hovertemplate="%{x:,.4~g} s: mean staleness %{z:.3~g}<extra></extra>",
    )


def _unused_cells(found: BusyMap, middles: list[Any]) -> list[Trace]:
    """Where clients worked in vain, or have not ended yet: nobody vanishes who was at work."""
    is_unused = (found.outcomes >= 0) & np.isnan(found.stale)
    if not is_unused.any():
        return []
    texts = [
        [OUTCOMES[code] if unused else "" for code, unused in zip(*pair, strict=True)]
        for pair in zip(found.outcomes.tolist(), is_unused.tolist(), strict=True)
    ]
    cells = _cells(
        middles,
        [numbers(row) for row in np.where(is_unused, 1.0, np.nan)],
        text=texts,
        colorscale=[[0, GREY], [1, GREY]],
        opacity=0.55,
        showscale=False,
        hovertemplate="%{x:,.4~g} s: at work, %{text}<extra></extra>",
    )
    return [cells]


def _outcome_cells(found: BusyMap, middles: list[Any]) -> Trace:
    """What came of most of the work, in colours that stand beside their names."""
    known = [code for code in range(len(OUTCOMES)) if np.any(found.outcomes == code)]
    places = np.full(len(OUTCOMES) + 1, np.nan)  # the last is that of -1: nobody worked
    places[known] = np.arange(len(known))
    num, names = len(known), [OUTCOMES[code] for code in known]
    steps = [[(n + end) / num, COLOURS[name]] for n, name in enumerate(names) for end in (0, 1)]
    return _cells(
        middles,
        [numbers(row) for row in places[found.outcomes]],
        text=[[OUTCOMES[code] if code >= 0 else "" for code in row] for row in found.outcomes],
        colorscale=steps,
        zmin=-0.5,
        zmax=num - 0.5,
        colorbar={
            "title": {"text": "commonest<br>outcome"},
            "thickness": 12,
            "tickvals": list(range(num)),
            "ticktext": names,
        },
        hovertemplate="%{x:,.4~g} s: mostly %{text}<extra></extra>",
    )
