"""Losses that clients told: outliers, the clusters DBSCAN saw, and credits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from pisces.errors import PiscesError
from pisces.judge.clusters import LossOutliers
from pisces.quantities import counted
from pisces.report.arrays import Ints
from pisces.report.figures.figure import (
    Figure,
    Trace,
    axis,
    dots,
    layout_of,
    middle,
    nothing,
    numbers,
)
from pisces.report.figures.judging import judge_of
from pisces.report.ledger import Ledger
from pisces.report.styles import BLUE, GREEN, ORANGE

Range: TypeAlias = tuple[int, float, float]  # version, and from where to where a cluster is

NAME, TITLE = "losses", "losses clients told, and outliers"
FAR_APART = 20  # times the median: such losses are drawn on a logarithmic axis
MOST_OUTLIERS = 300  # drawn; the latest
MOST_CLUSTERED, LEAST_CLUSTERED = 60, 4  # versions whose clusters are drawn
MOST_POOLED = 2000  # losses that are clustered together; the latest
MOST_LOSSES = 8000  # that are clustered for one figure


def losses(ledger: Ledger) -> Figure:
    """Losses of updates over the versions they were trained from; outliers are marked.

    Shaded are the ranges in which DBSCAN saw clusters, for some of the versions: clustered again
    from the log, by the settings in the config; left out where these tell of no such judge.
    """
    with ledger.lock:
        tasks = ledger.notes.tasks
        told = ledger.notes.arrivals["task"]
        told = told[~np.isnan(tasks["loss"][told])].astype(np.int64)
        if not len(told):
            return nothing(TITLE, "No update that tells a loss has arrived yet.")
        ranges, shaded = _clusters(ledger, told)
        layout = _layout(ledger, told)
        # There is no way down to 0 on a logarithmic axis: clusters reach to the least loss there.
        is_log = layout["yaxis"].get("type") == "log"
        least = float(tasks["loss"][told].min()) if is_log else -np.inf
        shown = _dots(ledger, told)
        num_shown = sum(len(trace["x"]) for trace in shown)
        return Figure(
            TITLE,
            f"{_words(ledger, told, num_shown)}{shaded}.",
            [*_bands(ranges, least), *shown, *_credits(ledger, told)],
            layout,
        )


# --- dots -----------------------------------------------------------------------------------------


def _dots(ledger: Ledger, told: Ints) -> list[Trace]:
    tasks = ledger.notes.tasks
    is_odd = tasks["is_outlier"][told]
    usual, odd = told[~is_odd], told[is_odd][-MOST_OUTLIERS:]
    usual = usual[dots(tasks["loss"][usual])]
    dot = {"color": BLUE, "size": 4, "opacity": 0.7}
    cross = {"color": ORANGE, "size": 8, "symbol": "x"}
    traces = [_scatter(ledger, usual, "believed", dot)]
    return [*traces, _scatter(ledger, odd, "outlier", cross)] if len(odd) else traces


def _scatter(ledger: Ledger, rows: Ints, name: str, marker: dict[str, Any]) -> Trace:
    tasks, ids = ledger.notes.tasks, ledger.notes.clients["client"]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": numbers(tasks["version"][rows]),
        "y": numbers(tasks["loss"][rows]),
        "customdata": numbers(ids[tasks["client"][rows]]),
        "marker": marker,
        "hovertemplate": f"client %{{customdata}}, from version %{{x}}: "
        f"loss %{{y:.4~g}} ({name})<extra></extra>",
    }


def _credits(ledger: Ledger, told: Ints) -> list[Trace]:
    """What was left to a client after each outlier."""
    tasks = ledger.notes.tasks
    odd = told[tasks["is_outlier"][told] & (tasks["credits"][told] >= 0)][-MOST_OUTLIERS:]
    if not len(odd):
        return []
    trace = _scatter(ledger, odd, "credits left", {"color": ORANGE, "size": 6, "opacity": 0.7})
    left = numbers(tasks["credits"][odd])
    words = "client %{customdata}, credits left: %{y}<extra></extra>"
    return [{**trace, "y": left, "yaxis": "y2", "hovertemplate": words}]


def _layout(ledger: Ledger, told: Ints) -> dict[str, Any]:
    layout = layout_of(NAME, "version trained from", "loss", height=440)
    tasks = ledger.notes.tasks
    values = tasks["loss"][told]
    if values.min() > 0 and values.max() / FAR_APART > middle(values):
        # Not 100µ; and raised digits would be styles that a strict policy blocks.
        layout["yaxis"] |= axis("loss (logarithmic)", type="log", exponentformat="e")
    if np.any(tasks["is_outlier"][told] & (tasks["credits"][told] >= 0)):
        layout["xaxis"]["anchor"] = "y2"
        layout["yaxis"]["domain"] = [0.32, 1.0]
        most = int(tasks["credits"][told].max())
        room = 0.08 * max(1, most)  # so that the dots of those who have none left are whole
        layout["yaxis2"] = axis("credits left", domain=[0.0, 0.22], range=[-room, most + room])
        if most <= 6:
            layout["yaxis2"]["dtick"] = 1
    return layout


def _words(ledger: Ledger, told: Ints, num_shown: int) -> str:
    tasks, clients = ledger.notes.tasks, ledger.notes.clients
    num_odd = int(np.count_nonzero(tasks["is_outlier"][told]))
    num_banned = int(np.count_nonzero(clients["distrusted_line"] >= 0))
    usual = middle(tasks["loss"][told])
    part = f" ({num_shown:,} of them drawn)" if num_shown < len(told) else ""
    latest = f", the latest {MOST_OUTLIERS} of them drawn" if num_odd > MOST_OUTLIERS else ""
    return (
        f"{counted(len(told), 'loss', 'losses')}{part}, {usual:.4g} in the median; "
        f"{counted(num_odd, 'outlier')}{latest}, {counted(num_banned, 'client')} distrusted"
    )


# --- clusters -------------------------------------------------------------------------------------


def _clusters(ledger: Ledger, told: Ints) -> tuple[list[Range], str]:
    """The clusters, and what to say of them."""
    try:
        judge = judge_of(ledger)
    except PiscesError:
        return [], "; the config's settings of the judge cannot be used, so no clusters are shaded"
    if judge is None:
        is_odd = ledger.notes.tasks["is_outlier"][told].any()
        why = "; as far as its config says, the run does not find outliers by clusters of losses"
        return [], why if is_odd else ""
    ranges = clustered(ledger, judge, told)
    if not ranges:
        return [], "; too few losses for a cluster yet"
    num = len({version for version, *_ in ranges})
    return ranges, f"; shaded are the clusters of {counted(num, 'version')}"


def clustered(ledger: Ledger, judge: LossOutliers, told: Ints) -> list[Range]:
    """(version, low, high) of each cluster, for versions spread evenly over the run."""
    tasks = ledger.notes.tasks
    versions, values = tasks["version"][told], tasks["loss"][told]
    order = np.argsort(versions, kind="stable")
    versions, values = versions[order], values[order]
    known = np.unique(versions)
    pooled = (judge.window + 1) * len(told) / len(known)  # at a version, on average
    num = int(np.clip(MOST_LOSSES / pooled, LEAST_CLUSTERED, MOST_CLUSTERED))
    chosen = known[np.unique(np.linspace(0, len(known) - 1, num).astype(np.int64))]
    found = []
    for version in chosen.tolist():
        # Its pool is of this version and those before it that count as similar.
        first = int(np.searchsorted(versions, version - judge.window))
        last = int(np.searchsorted(versions, version, side="right"))
        first = max(first, last - MOST_POOLED)
        pool = zip(versions[first:last].tolist(), values[first:last].tolist(), strict=True)
        found += [(version, low, high) for low, high in judge.clusters_of(pool, version)]
    return found


def _bands(ranges: Sequence[Range], least: float) -> list[Trace]:
    """An upright stroke for each cluster, of what is not below the `least`."""
    if not ranges:
        return []
    x = [version for version, *_ in ranges for _ in range(3)]
    y = [end for _, low, high in ranges for end in (max(low, least), high, None)]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "clusters DBSCAN sees",
            "x": x,
            "y": y,
            "line": {"color": GREEN, "width": 6},
            "opacity": 0.3,
            "hovertemplate": "a cluster at version %{x} ends at %{y:.4~g}<extra></extra>",
        }
    ]
