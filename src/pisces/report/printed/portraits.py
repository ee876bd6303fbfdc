"""Pictures of one run: who worked when, how far apart aggregations were, what clients told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pisces.report.printed.paper import SCREEN, Paper
from pisces.report.printed.sheets import tidy
from pisces.report.styles import COLOURS, ORANGE, PINK
from pisces.report.tasks import Aggregation, Log, Outcome, Score, TaskFacts

MOST_ROWS = 40  # clients in a timeline; more are lines nobody can tell apart
ROW = 0.08  # inches
SKEWED = 10  # times the median: a scale that shows the largest would hide the others
MANY = 4000  # dots; more are drawn fainter, or nothing but a block of colour is seen
MAP = "viridis_r"  # fresh is bright; told apart also by the colour-blind, and in grey
# Colour and hatch, for who sees no colours. Fewer kinds than pages have, and greyer: `SAME_AS`.
FATES: dict[Outcome, tuple[str, str]] = {
    "dropped": (PINK, "\\\\\\\\"),
    "failed": (ORANGE, "////"),
    "called off": ("0.5", "...."),
    "cut off": ("0.88", ""),
}
FATE_WORDS = {
    "dropped": "dropped",
    "failed": "failed or left",
    "called off": "called off",
    "cut off": "under way at the end",
}
SAME_AS: dict[Outcome, Outcome] = {"left": "failed", "waiting": "cut off", "running": "cut off"}


def timeline(log: Log, *, paper: Paper = SCREEN) -> Figure | None:
    """A row per client, a bar per task: coloured by staleness where it was aggregated.

    Of many clients those that were picked most are drawn. None where no task was started.
    """
    rows = timeline_rows(log)
    if not rows:
        return None
    with paper.drawing():
        width, _ = paper.alone
        figure = Figure(figsize=(width, 1.1 + ROW * len(rows)), layout="constrained")
        axes = tidy(figure.subplots())
        axes.grid(visible=False)
        _draw_bars(figure, axes, rows, log.end_s)
        _mark_distrust(axes, rows, log)
        words = "; ".join(_timeline_words(rows, log))
        axes.set_title(paper.folded(words), fontsize="small")
        step = max(1, len(rows) // 12)
        axes.set_yticks(range(0, len(rows), step), [str(client) for client in rows][::step])
        axes.set(xlabel="time (s)", ylabel="client", xlim=(0, log.end_s or 1.0))
        axes.set_ylim(len(rows) - 0.4, -0.6)
    return figure


def timeline_rows(log: Log) -> dict[int, list[TaskFacts]]:
    """Tasks by client; of many clients those that were picked most."""
    by_client: defaultdict[int, list[TaskFacts]] = defaultdict(list)
    for task in log.tasks.values():
        by_client[task.client].append(task)
    most = sorted(by_client, key=lambda client: (-len(by_client[client]), client))[:MOST_ROWS]
    return {client: by_client[client] for client in sorted(most)}


def _draw_bars(figure: Figure, axes: Axes, rows: dict[int, list[TaskFacts]], end_s: float) -> None:
    place = {client: number for number, client in enumerate(rows)}
    tasks = [task for own in rows.values() for task in own]
    boxes = [_box(task, place[task.client], end_s) for task in tasks]
    stale = [i for i, task in enumerate(tasks) if task.outcome == "aggregated"]
    if stale:
        values = np.array([tasks[i].staleness or 0 for i in stale])
        bars = PolyCollection(
            [boxes[i] for i in stale],
            array=values,
            cmap=MAP,
            norm=Normalize(0, max(1, int(values.max()))),
            edgecolors="white",
            linewidths=0.3,
        )
        axes.add_collection(bars)
        bar = figure.colorbar(bars, ax=axes, label="staleness (versions)", pad=0.01, aspect=30)
        bar.ax.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        bar.outline.set_visible(False)
    seen = dict.fromkeys(_fate(task) for task in tasks if task.outcome != "aggregated")
    for fate in seen:
        chosen = [b for b, t in zip(boxes, tasks, strict=True) if _fate(t) == fate]
        colour, hatch = FATES[fate]
        axes.add_collection(
            PolyCollection(
                chosen, facecolors=colour, hatch=hatch, edgecolors="white", linewidths=0.3
            )
        )
    keys = [
        Patch(facecolor=FATES[fate][0], hatch=FATES[fate][1], edgecolor="white", label=words)
        for fate, words in FATE_WORDS.items()
        if fate in seen
    ]
    if keys:
        figure.legend(
            handles=keys, loc="outside lower center", ncols=4, frameon=False, fontsize="small"
        )


def _fate(task: TaskFacts) -> Outcome:
    return SAME_AS.get(task.outcome, task.outcome)


def _box(task: TaskFacts, row: int, end_s: float) -> list[tuple[float, float]]:
    start, end = task.started_at, end_s if task.ended_at is None else task.ended_at
    low, high = row - 0.4, row + 0.4
    return [(start, low), (end, low), (end, high), (start, high)]


def _mark_distrust(axes: Axes, rows: dict[int, list[TaskFacts]], log: Log) -> None:
    place = {client: number for number, client in enumerate(rows)}
    marks = [(at, place[client]) for client, at in log.distrusted.items() if client in place]
    if marks:
        at, where = zip(*marks, strict=True)
        axes.plot(at, where, "x", color="black", markersize=4, clip_on=False, zorder=4)


def _timeline_words(rows: dict[int, list[TaskFacts]], log: Log) -> Iterator[str]:
    num = len({task.client for task in log.tasks.values()})
    if num > len(rows):
        yield f"the busiest {len(rows)} of {num:,} clients"
    if not rows.keys().isdisjoint(log.distrusted):
        yield "cross: distrusted from then on"


# --- the pace -------------------------------------------------------------------------------------


def intervals(aggregations: Sequence[Aggregation], *, paper: Paper = SCREEN) -> Figure | None:
    """Seconds since the aggregation before, and the pacer's limit where it has one."""
    if not aggregations:
        return None
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        dots = [(a.at, a.interval_s) for a in aggregations]
        draw_points(axes, dots, "o", COLOURS[0], "since the aggregation before")
        limits = [(a.at, a.limit_s) for a in aggregations if a.limit_s is not None]
        if limits:
            axes.step(
                *zip(*limits, strict=True),
                where="pre",
                color=COLOURS[1],
                label="the pacer's limit",
            )
            _add_key(figure, axes)
        axes.set(xlabel="time (s)", ylabel="interval (s)")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    return figure


# --- losses, scores -------------------------------------------------------------------------------


def losses(tasks: Iterable[TaskFacts], *, paper: Paper = SCREEN) -> Figure | None:
    """What clients lost on their own data, when they told it; outliers are crosses."""
    told = [t for t in tasks if t.loss is not None and t.ended_at is not None]
    if not told:
        return None
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        usual = [(t.ended_at, t.loss) for t in told if not t.is_outlier]
        odd = [(t.ended_at, t.loss) for t in told if t.is_outlier]
        draw_points(axes, usual, "o", COLOURS[0], "believed")
        if odd:
            draw_points(axes, odd, "x", COLOURS[1], "outlier: costs a credit")
            _add_key(figure, axes)
        axes.set(xlabel="time (s)", ylabel="training loss")
        axes.set_xlim(left=0)
    return figure


def scores(rows: Iterable[Score], *, paper: Paper = SCREEN) -> Figure | None:
    """What clients were worth to the selector when their scores were written down."""
    known = [s for s in rows if s.terms.get("score") is not None]
    if not known:
        return None
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        for was_picked, marker, colour, label in (
            (False, "o", "0.6", "passed over"),
            (True, "D", COLOURS[0], "picked"),
        ):
            dots = [(s.at, s.terms["score"]) for s in known if s.was_picked is was_picked]
            draw_points(axes, dots, marker, colour, label)
        _add_key(figure, axes)
        axes.set(xlabel="time (s)", ylabel="score")
        values = [s.terms["score"] or 0.0 for s in known]
        if max(values) > SKEWED * abs(float(np.median(values))):
            axes.set_yscale("symlog", linthresh=1.0)  # zero has a place, too
            axes.set_ylim(bottom=0.0 if min(values) >= 0 else None)
        axes.set_xlim(left=0)
    return figure


def draw_points(
    axes: Axes,
    points: Sequence[tuple[float | None, float | None]],
    marker: str,
    colour: str,
    label: str,
) -> None:
    """A mark for each, none if there are none; crosses stand out."""
    if not points:
        return
    is_cross = marker == "x"
    axes.plot(
        *zip(*points, strict=True),
        marker,
        color=colour,
        label=label,
        markersize=4 if is_cross else 2.5 if len(points) < MANY else 1.5,
        markeredgewidth=1.0 if is_cross else 0.0,
        alpha=1.0 if is_cross else max(0.02, min(0.6, 0.6 * MANY / len(points))),
        rasterized=True,  # a vector picture of a million dots is of no use to anybody
        zorder=3 if is_cross else 2,
    )


def _add_key(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize="small"
    )
