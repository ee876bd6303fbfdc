"""Aggregations: how far apart, of whom, and how stale."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pisces.quantities import counted, duration
from pisces.report.arrays import Floats, Ints
from pisces.report.figures.figure import (
    Figure,
    Trace,
    axis,
    dots,
    layout_of,
    middle,
    nothing,
    numbers,
    thinned,
)
from pisces.report.ledger import Ledger
from pisces.report.ledger.overview import bound_of
from pisces.report.styles import BLUE, GREY, ORANGE

MOST_STEPS = 150  # versions drawn one by one; more are drawn a few together
MOST_BARS = 60  # of a histogram
LEAST_STALE = 4  # versions that the axis of a histogram reaches to
NOTHING = "No version was made yet."


# --- how far apart --------------------------------------------------------------------------------


def intervals(ledger: Ledger) -> Figure:
    """Seconds between aggregations, against the pacer's limit where it has one."""
    name, title = "intervals", "time between aggregations"
    with ledger.lock:
        table = ledger.notes.aggregations
        if not len(table):
            return nothing(title, NOTHING)
        at, versions = table["at"].copy(), table["version"].copy()
        apart, limits = ledger.notes.intervals(), ledger.notes.paced("limit_s")
        is_told = ledger.has_decisions or bool(ledger.notes.pace)
    drawn = dots(apart)
    traces = [_dots(at[drawn], apart[drawn], versions[drawn])]
    if not np.isnan(limits).all():
        kept = thinned(limits)
        traces.append(_steps(at[kept], limits[kept]))
    layout = layout_of(name, "time (s)", "time since the version before (s)")
    layout["xaxis"]["rangemode"] = layout["yaxis"]["rangemode"] = "tozero"
    words = _interval_words(apart, limits, num_drawn=len(drawn), is_told=is_told)
    return Figure(title, words, traces, layout)


def _dots(at: Floats, apart: Floats, versions: Ints) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "interval",
        "x": numbers(at),
        "y": numbers(apart),
        "customdata": numbers(versions),
        "marker": {"color": BLUE, "size": 5, "opacity": 0.8},
        "hovertemplate": "version %{customdata}: %{y:.4~g} s at %{x:,.4~g} s<extra></extra>",
    }


def _steps(at: Floats, limits: Floats) -> Trace:
    """Each limit is drawn over the time that led to its version."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "the pacer's limit",
        "x": numbers(at),
        "y": numbers(limits),
        "line": {"color": ORANGE, "width": 1.5, "shape": "vh"},
        "hovertemplate": "limit %{y:.4~g} s at %{x:,.4~g} s<extra></extra>",
    }


def _interval_words(apart: Floats, limits: Floats, *, num_drawn: int, is_told: bool) -> str:
    """`is_told`: what the pacer goes by was recorded."""
    usual, most = duration(middle(apart)), duration(float(apart.max()))
    part = f" ({num_drawn:,} of them drawn)" if num_drawn < len(apart) else ""
    text = f"{counted(len(apart), 'version')}{part}, {usual} apart in the median, {most} at most"
    known = limits[~np.isnan(limits)]
    if len(known):
        limit = f"{duration(middle(known))} in the median"
        return (
            f"{text}; one is due once the pacer's limit, {limit}, is over and there is an update. "
            "A limit is drawn as it was when its version was made: while a slow client was at "
            "work it may have been longer."
        )
    if is_told:
        return f"{text}; the pacer has no limit in seconds."
    return f"{text}; whether the pacer has a limit was not recorded."


# --- of whom --------------------------------------------------------------------------------------


def contributors(ledger: Ledger) -> Figure:
    """How many updates went into each version, and their weights.

    Where versions are too many, several stand together: the mean number of updates, and the least,
    median and greatest weight.
    """
    name, title = "contributors", "updates and weights per version"
    with ledger.lock:
        table, shares = ledger.notes.aggregations, ledger.notes.shares
        if not len(table):
            return nothing(title, NOTHING)
        versions, num = table["version"].copy(), table["num"].astype(np.int64)
        weights = shares["weight"].copy()
    width = -(-len(num) // MOST_STEPS)
    firsts = np.arange(0, len(num), width)
    mean_num = np.add.reduceat(num, firsts) / np.diff(firsts, append=len(num))
    low, middle, high = _spread(weights, num, firsts)
    at = versions[firsts]
    words = _contributor_words(num, weights, width)
    traces = [_number_bars(at, mean_num), *_weight_lines(at, low, middle, high)]
    return Figure(title, words, traces, _two_panels(name))


def _spread(weights: Floats, num: Ints, firsts: Ints) -> tuple[Floats, Floats, Floats]:
    """The least, median and greatest weight of each group of versions."""
    ends = np.concatenate([[0], np.cumsum(num)])
    edges = [*ends[firsts].tolist(), int(ends[-1])]
    found = []
    for first, end in pairwise(edges):
        own = weights[first:end]
        own = own[~np.isnan(own)]
        has = len(own) > 0
        found.append((own.min(), np.median(own), own.max()) if has else (np.nan,) * 3)
    low, middle, high = np.array(found, np.float64).reshape(-1, 3).T
    return low, middle, high


def _number_bars(at: Ints, num: Floats) -> Trace:
    return {
        "type": "bar",
        "name": "updates",
        "x": numbers(at),
        "y": numbers(num),
        "marker": {"color": BLUE, "line": {"width": 0}},
        "hovertemplate": "version %{x}: %{y:.3~g} updates<extra></extra>",
    }


def _weight_lines(at: Ints, low: Floats, middle: Floats, high: Floats) -> list[Trace]:
    line = {"type": "scatter", "mode": "lines", "x": numbers(at), "yaxis": "y2"}
    edge = {**line, "line": {"width": 0.5, "color": ORANGE}, "showlegend": False}
    return [
        {**edge, "y": numbers(low), "hovertemplate": "least weight %{y:.3~g}<extra></extra>"},
        {
            **edge,
            "y": numbers(high),
            "fill": "tonexty",
            "fillcolor": "rgba(213, 94, 0, 0.2)",
            "hovertemplate": "greatest weight %{y:.3~g}<extra></extra>",
        },
        {
            **line,
            "y": numbers(middle),
            "name": "weight (median; shaded: least to greatest)",
            "line": {"width": 1.5, "color": ORANGE},
            "hovertemplate": "version %{x}: weight %{y:.3~g}<extra></extra>",
        },
    ]


def _two_panels(name: str) -> dict[str, object]:
    layout = layout_of(name, "version", "updates", bargap=0.1, height=440)
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis"] |= {"domain": [0.55, 1.0], "rangemode": "tozero"}
    layout["yaxis2"] = axis("weight", domain=[0.0, 0.45], rangemode="tozero")
    return layout


def _contributor_words(num: Ints, weights: Floats, width: int) -> str:
    mean = f"{num.mean():.3g}"
    make = "update makes" if mean == "1" else "updates make"
    text = f"{mean} {make} a version on average, {num.max():,} at most"
    known = weights[~np.isnan(weights)]
    if len(known):
        text += f"; their weights are {_from_to(f'{known.min():.3g}', f'{known.max():.3g}')}"
    return f"{text}; each bar is the mean of {width} versions." if width > 1 else f"{text}."


def _from_to(low: str, high: str) -> str:
    return low if low == high else f"from {low} to {high}"


# --- how stale ------------------------------------------------------------------------------------


def staleness(ledger: Ledger) -> Figure:
    """How stale aggregated updates were, with the bound where there is one."""
    name, title = "staleness", "staleness of aggregated updates"
    with ledger.lock:
        counts = dict(sorted(ledger.notes.staleness.items()))
        bound = bound_of(ledger)
    if not counts:
        return nothing(title, "No update was aggregated yet.")
    values, num = np.array(list(counts)), np.array(list(counts.values()))
    width = max(1, -(-(int(values[-1]) + 1) // MOST_BARS))
    bins, places = np.unique(values // width * width, return_inverse=True)
    binned = np.bincount(places, weights=num)
    trace = {
        "type": "bar",
        "x": numbers(bins + (width - 1) / 2),
        "y": numbers(100 * binned / num.sum()),
        "width": 0.9 * width,
        "customdata": numbers(binned),
        "marker": {"color": BLUE, "line": {"width": 0}},
        "hovertemplate": "staleness %{x}: %{customdata:,} updates, %{y:.3~g} %<extra></extra>",
    }
    layout = layout_of(name, "staleness (versions)", "aggregated updates (%)", bargap=0.05)
    least, most = int(values[0]), max(int(values[-1]), bound or 0)
    if len(bins) == 1:  # whose bar would be all of the figure
        least, most = 0, max(most, LEAST_STALE)
        layout["xaxis"]["range"] = [-0.6 * width, most + 0.6 * width]
    if most - least < 12:
        layout["xaxis"] |= {"tick0": 0, "dtick": 1}  # there is no half a version
    if bound is not None:
        layout |= _upright(bound, f"bound {bound:g}")
    mean = float(np.average(values, weights=num))
    words = f"{counted(int(num.sum()), 'update')}, {mean:.3g} versions stale on average, "
    words += f"{int(values[-1]):,} at most" + _held(values, num, bound)
    return Figure(title, words, [trace], layout)


def _upright(value: float, words: str) -> dict[str, object]:
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": value, "x1": value}
    text = {"yref": "paper", "y": 1, "x": value, "xanchor": "right", "yanchor": "top"}
    return {
        "shapes": [{**line, "line": {"color": GREY, "width": 1.5, "dash": "dash"}}],
        "annotations": [{**text, "text": words, "showarrow": False, "xshift": -4}],
    }


def _held(values: Ints, num: Ints, bound: float | None) -> str:
    if bound is None:
        return "; no bound is known."
    beyond = int(num[values > bound].sum())
    return f"; {f'{beyond:,} beyond' if beyond else 'none beyond'} the bound {bound:g}."
