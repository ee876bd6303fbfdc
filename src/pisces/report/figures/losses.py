"""Losses that clients told: outliers, the clusters DBSCAN saw, and credits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pisces.errors import PiscesError
from pisces.judge.clusters import LossOutliers
from pisces.report.figures.figure import (
    BLUE,
    GREEN,
    MOST_DOTS,
    ORANGE,
    Columns,
    Figure,
    Ints,
    Trace,
    axis,
    counted,
    layout_of,
    middle,
    nothing,
    numbers,
    thinned,
)
from pisces.report.ledger import Ledger
from pisces.report.ledger.overview import protocol_settings
from pisces.types import State

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
            return nothing(NAME, TITLE, "No update that tells a loss has arrived yet.")
        clustering = clustering_of(ledger)
        ranges = [] if clustering is None else clustered(ledger, clustering, told)
        return Figure(
            NAME,
            TITLE,
            _words(ledger, told, clustering, ranges),
            [*_bands(ranges), *_dots(ledger, told), *_credits(ledger, told)],
            _layout(ledger, told),
            _columns(ledger, told),
        )


# --- dots -----------------------------------------------------------------------------------------


def _dots(ledger: Ledger, told: Ints) -> list[Trace]:
    tasks = ledger.notes.tasks
    is_odd = tasks["is_outlier"][told]
    usual, odd = told[~is_odd], told[is_odd][-MOST_OUTLIERS:]
    usual = usual[thinned(tasks["loss"][usual], MOST_DOTS)]
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
        layout["yaxis"]["type"] = "log"
    if np.any(tasks["is_outlier"][told] & (tasks["credits"][told] >= 0)):
        layout["xaxis"]["anchor"] = "y2"
        layout["yaxis"]["domain"] = [0.32, 1.0]
        layout["yaxis2"] = axis("credits left", domain=[0.0, 0.22], rangemode="tozero", dtick=1)
        if tasks["credits"][told].max() > 6:
            del layout["yaxis2"]["dtick"]
    return layout


def _columns(ledger: Ledger, told: Ints) -> Columns:
    tasks, ids = ledger.notes.tasks, ledger.notes.clients["client"]
    return Columns(
        task=tasks["task"][told],
        client=ids[tasks["client"][told]],
        version=tasks["version"][told],
        arrived_at=tasks["ended_at"][told],
        loss=tasks["loss"][told],
        is_outlier=tasks["is_outlier"][told].astype(np.int64),
        credits_left=tasks["credits"][told],
    )


def _words(
    ledger: Ledger,
    told: Ints,
    clustering: Clustering | None,
    ranges: list[tuple[int, float, float]],
) -> str:
    tasks, clients = ledger.notes.tasks, ledger.notes.clients
    num_odd = int(np.count_nonzero(tasks["is_outlier"][told]))
    num_banned = int(np.count_nonzero(clients["distrusted_line"] >= 0))
    usual = middle(tasks["loss"][told])
    text = f"{counted(len(told), 'loss', 'losses')}, {usual:.4g} in the median; "
    text += f"{counted(num_odd, 'outlier')}, {counted(num_banned, 'client')} distrusted"
    if clustering is None:
        why = "; the config tells of no judge by clusters, so none are shaded" if num_odd else ""
        return f"{text}{why}."
    if not ranges:
        return f"{text}; too few losses for a cluster yet."
    return f"{text}; shaded are the clusters of {counted(len({v for v, *_ in ranges}), 'version')}."


# --- clusters -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clustering:
    """A judge by clusters, and how many versions it takes for similar."""

    judge: LossOutliers
    window: int

    @classmethod
    def of(cls, concurrency: int, *, window: int = 5, **settings: Any) -> Clustering:
        """By these settings of `LossOutliers`."""
        return cls(LossOutliers(concurrency, window=window, **settings), window)


def clustering_of(ledger: Ledger) -> Clustering | None:
    """The judge by clusters that the config tells of, if it does.

    By its settings, not by names of protocols: `[judge]` itself, or a protocol's `outlier_window`
    (the paper's form), `guard = "clusters"` or `guard = true` (the authors' radius).
    """
    concurrency = ledger.setting("clients", "concurrency")
    if type(concurrency) is not int or concurrency < 1:
        return None
    try:
        return _clustering(ledger, concurrency)
    except (PiscesError, TypeError, ValueError):
        return None


def _clustering(ledger: Ledger, concurrency: int) -> Clustering | None:
    own = ledger.run.config.get("judge")
    if isinstance(own, dict):
        if own.get("policy") != "clusters":
            return None
        window, stale, eps = (own.get(k) for k in ("outlier_window", "max_staleness", "radius"))
        return Clustering.of(concurrency, window=int(window or 5), max_staleness=stale, eps=eps)
    settings = protocol_settings(ledger)
    bound, guard = settings.get("staleness_bound"), settings.get("guard")
    if "outlier_window" in settings:
        window = int(settings["outlier_window"])
        return Clustering.of(concurrency, window=window, max_staleness=bound)
    if guard == "clusters":
        return Clustering.of(concurrency, max_staleness=bound or 2 * concurrency)
    return Clustering.of(concurrency, eps=0.5) if guard is True else None


def clustered(ledger: Ledger, clustering: Clustering, told: Ints) -> list[tuple[int, float, float]]:
    """(version, low, high) of each cluster, for versions spread evenly over the run."""
    tasks = ledger.notes.tasks
    versions, values = tasks["version"][told], tasks["loss"][told]
    order = np.argsort(versions, kind="stable")
    versions, values = versions[order], values[order]
    known = np.unique(versions)
    pooled = (clustering.window + 1) * len(told) / len(known)  # at a version, on average
    num = int(np.clip(MOST_LOSSES / pooled, LEAST_CLUSTERED, MOST_CLUSTERED))
    chosen = known[np.unique(np.linspace(0, len(known) - 1, num).astype(np.int64))]
    found = []
    for version in chosen.tolist():
        # Its pool is of this version and those before it that count as similar.
        first = int(np.searchsorted(versions, version - clustering.window))
        last = int(np.searchsorted(versions, version, side="right"))
        first = max(first, last - MOST_POOLED)
        pool = np.stack([versions[first:last], values[first:last]], axis=1).tolist()
        clustering.judge.restore(State({"records": pool, "newest": version}))
        found += [(version, low, high) for low, high in clustering.judge.clusters(version)]
    return found


def _bands(ranges: list[tuple[int, float, float]]) -> list[Trace]:
    """An upright stroke for each cluster."""
    if not ranges:
        return []
    x = [version for version, *_ in ranges for _ in range(3)]
    least = min(high for *_, high in ranges) / 10  # for logarithms
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
