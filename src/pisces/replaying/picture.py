"""A replay as a picture: versions over time, and how stale the updates were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pisces.replaying.values import Aggregation, Replayed
from pisces.report.printed.paper import SCREEN, drawable, literal, save
from pisces.report.printed.sheets import add_legend, tidy
from pisces.report.styles import Style, styles

SIZE = (8.0, 3.4)  # inches
MOST_BARS = 40


def draw(replays: Sequence[Replayed], path: str | Path) -> None:
    """Staircases on the left, shares of updates by staleness on the right; as PNG, SVG or PDF."""
    path = drawable(path)
    with SCREEN.drawing():
        save(_sheet(replays), path)


def _sheet(replays: Sequence[Replayed]) -> Figure:
    first = replays[0]
    figure = Figure(figsize=SIZE, layout="constrained")
    left, right = (tidy(axes) for axes in figure.subplots(1, 2, width_ratios=(3, 2)))
    drawn = [
        ("recorded", first.aggregations_recorded),
        *((" ".join(replay.changes) or "replayed", replay.aggregations) for replay in replays),
    ]
    width = _bar_width(drawn)
    for (label, aggregations), style in zip(drawn, styles(), strict=False):
        _draw_versions(left, aggregations, style, literal(label), first.ends_at)
        _draw_staleness(right, aggregations, style, width)
    for replay, style in zip(replays, islice(styles(), 1, None), strict=False):
        if replay.differs_at is not None:  # what is to the right of it is an estimate
            left.axvline(replay.differs_at, color=style.colour, linewidth=0.8, alpha=0.6)
    if any(replay.differs_at is not None for replay in replays):
        left.set_title("exact up to the thin line, then an estimate", fontsize="small")
    left.set(xlabel="time (s)", ylabel="version", xlim=(0, first.ends_at or 1))
    left.set_ylim(bottom=0)
    right.set(xlabel="staleness (versions)", ylabel="aggregated updates (%)")
    right.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    add_legend(figure, left)
    return figure


def _draw_versions(
    axes: Axes, aggregations: Sequence[Aggregation], style: Style, label: str, ends_at: float
) -> None:
    at = [0.0, *(aggregation.at for aggregation in aggregations), ends_at]
    versions = [0, *(aggregation.version for aggregation in aggregations)]
    axes.step(
        at,
        [*versions, versions[-1]],
        where="post",
        label=label,
        color=style.colour,
        linestyle=style.dash,
    )


def _bar_width(drawn: Sequence[tuple[str, Sequence[Aggregation]]]) -> int:
    most = max(
        (s for _, aggregations in drawn for a in aggregations for s in a.staleness), default=0
    )
    return -(-(most + 1) // MOST_BARS)


def _draw_staleness(
    axes: Axes, aggregations: Sequence[Aggregation], style: Style, width: int
) -> None:
    """Outlines, so that one does not hide another."""
    counts = Counter(s // width for aggregation in aggregations for s in aggregation.staleness)
    if not counts:
        return
    shares = np.array([counts[place] for place in range(max(counts) + 1)]) * 100 / counts.total()
    edges = np.arange(len(shares) + 1) * width - 0.5
    axes.stairs(shares, edges, color=style.colour, linestyle=style.dash, linewidth=1.5)
    axes.stairs(shares, edges, color=style.colour, fill=True, alpha=0.15)
