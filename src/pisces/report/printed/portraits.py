"""Pictures of one run: who worked when, how far apart aggregations were, what clients told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pisces.report.arrays import Floats, Ints
from pisces.report.ledger.notes import Notes
from pisces.report.ledger.picks import SCORE
from pisces.report.ledger.tables import AGGREGATED, OUTCOMES, Outcome
from pisces.report.printed.paper import SCREEN, Paper
from pisces.report.printed.sheets import tidy
from pisces.report.styles import COLOURS, ORANGE, PINK

MOST_ROWS = 40  # clients in a timeline; more are lines nobody can tell apart
ROW = 0.08  # inches
SKEWED = 10  # times the median: a scale that shows the largest would hide the others
MANY = 4000  # dots; more are drawn fainter, or nothing but a block of colour is seen
MAP = "viridis_r"  # fresh is bright; told apart also by the colour-blind, and in grey
# Colour and hatch, for who sees no colours. Fewer kinds than pages have, and greyer: `SAME_AS`.
LOOKS: Mapping[Outcome, tuple[str, str]] = {
    "dropped": (PINK, "\\\\\\\\"),
    "failed": (ORANGE, "////"),
    "called off": ("0.5", "...."),
    "cut off": ("0.88", ""),
}
OUTCOME_WORDS: Mapping[Outcome, str] = {
    "dropped": "dropped",
    "failed": "failed or left",
    "called off": "called off",
    "cut off": "under way at the end",
}
SAME_AS: Mapping[Outcome, Outcome] = {
    "left": "failed",
    "waiting": "cut off",
    "running": "cut off",
}


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """Clients in a timeline, and their tasks client by client: rows of the notes.

    `places` are rows of the picture.
    """

    clients: Ints
    tasks: Ints
    places: Ints


def timeline(notes: Notes, *, paper: Paper = SCREEN) -> Figure | None:
    """A row per client, a bar per task: coloured by staleness where it was aggregated.

    Of many clients those that were picked most are drawn. None where no task was started.
    """
    shown = _shown(notes)
    num = len(shown.clients)
    if not num:
        return None
    with paper.drawing():
        width, _ = paper.alone
        figure = Figure(figsize=(width, 1.1 + ROW * num), layout="constrained")
        axes = tidy(figure.subplots())
        axes.grid(visible=False)
        _draw_bars(figure, axes, notes, shown)
        _mark_distrust(axes, notes, shown)
        words = "; ".join(_timeline_words(notes, shown))
        axes.set_title(paper.folded(words), fontsize="small")
        step = max(1, num // 12)
        names = [str(client) for client in notes.clients["client"][shown.clients].tolist()]
        axes.set_yticks(range(0, num, step), names[::step])
        axes.set(xlabel="time (s)", ylabel="client", xlim=(0, notes.at or 1.0))
        axes.set_ylim(num - 0.4, -0.6)
    return figure


def _shown(notes: Notes) -> Shown:
    """Of many clients those that were picked most."""
    ids, picks = notes.clients["client"], notes.clients["picks"]
    busiest = np.lexsort((ids, -picks))[: min(MOST_ROWS, np.count_nonzero(picks))]
    clients = busiest[np.argsort(ids[busiest])]
    place_of = np.full(len(ids), -1)
    place_of[clients] = np.arange(len(clients))
    places = place_of[notes.tasks["client"]]
    tasks = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
    return Shown(clients, tasks, places[tasks])


def _draw_bars(figure: Figure, axes: Axes, notes: Notes, shown: Shown) -> None:
    boxes, outcomes = _boxes(notes, shown), notes.tasks["outcome"][shown.tasks]
    is_used = outcomes == AGGREGATED
    if is_used.any():
        values = notes.tasks["staleness"][shown.tasks[is_used]]
        bars = PolyCollection(
            boxes[is_used],
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
    looks = np.array([SAME_AS.get(outcome, outcome) for outcome in OUTCOMES])[outcomes]
    seen = dict.fromkeys(looks[~is_used].tolist())
    for outcome in seen:
        colour, hatch = LOOKS[outcome]
        axes.add_collection(
            PolyCollection(
                boxes[looks == outcome],
                facecolors=colour,
                hatch=hatch,
                edgecolors="white",
                linewidths=0.3,
            )
        )
    keys = [
        Patch(facecolor=LOOKS[outcome][0], hatch=LOOKS[outcome][1], edgecolor="white", label=words)
        for outcome, words in OUTCOME_WORDS.items()
        if outcome in seen
    ]
    if keys:
        figure.legend(
            handles=keys, loc="outside lower center", ncols=4, frameon=False, fontsize="small"
        )


def _boxes(notes: Notes, shown: Shown) -> Floats:
    """The four corners of each task's bar; one that has not ended goes on to the end."""
    starts, ends = (notes.tasks[name][shown.tasks] for name in ("started_at", "ended_at"))
    ends = np.where(np.isnan(ends), notes.at, ends)
    low, high = shown.places - 0.4, shown.places + 0.4
    return np.stack((starts, low, ends, low, ends, high, starts, high), axis=1).reshape(-1, 4, 2)


def _mark_distrust(axes: Axes, notes: Notes, shown: Shown) -> None:
    lines, at = (notes.clients[f"distrusted_{what}"][shown.clients] for what in ("line", "at"))
    places = np.argsort(lines)[np.count_nonzero(lines < 0) :]
    if len(places):
        axes.plot(at[places], places, "x", color="black", markersize=4, clip_on=False, zorder=4)


def _timeline_words(notes: Notes, shown: Shown) -> Iterator[str]:
    num_worked, num = np.count_nonzero(notes.clients["picks"]), len(shown.clients)
    if num_worked > num:
        yield f"the busiest {num} of {num_worked:,} clients"
    if np.any(notes.clients["distrusted_line"][shown.clients] >= 0):
        yield "cross: distrusted from then on"


# --- the pace -------------------------------------------------------------------------------------


def intervals(notes: Notes, *, paper: Paper = SCREEN) -> Figure | None:
    """Seconds since the aggregation before, and the pacer's limit where it has one."""
    at, limits = notes.aggregations["at"], notes.paced("limit_s")
    if not len(at):
        return None
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        draw_points(axes, at, notes.intervals(), "o", COLOURS[0], "since the aggregation before")
        is_told = ~np.isnan(limits)
        if is_told.any():
            axes.step(
                at[is_told],
                limits[is_told],
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


def losses(notes: Notes, *, paper: Paper = SCREEN) -> Figure | None:
    """What clients lost on their own data, when they told it; outliers are crosses."""
    told = ~np.isnan(notes.tasks["loss"])
    if not told.any():
        return None
    at, values, is_odd = (notes.tasks[name][told] for name in ("ended_at", "loss", "is_outlier"))
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        draw_points(axes, at[~is_odd], values[~is_odd], "o", COLOURS[0], "believed")
        if is_odd.any():
            draw_points(
                axes, at[is_odd], values[is_odd], "x", COLOURS[1], "outlier: costs a credit"
            )
            _add_key(figure, axes)
        axes.set(xlabel="time (s)", ylabel="training loss")
        axes.set_xlim(left=0)
    return figure


def scores(notes: Notes, *, paper: Paper = SCREEN) -> Figure | None:
    """What clients were worth to the selector when their scores were written down."""
    picks = notes.picks
    values = picks.term_of(np.arange(len(picks.scores)), SCORE)
    known = ~np.isnan(values)
    if not known.any():
        return None
    at = picks.decisions["at"][picks.scores["decision"][known]]
    values, is_picked = values[known], picks.scores["is_picked"][known]
    with paper.drawing():
        figure = Figure(figsize=paper.alone, layout="constrained")
        axes = tidy(figure.subplots())
        draw_points(axes, at[~is_picked], values[~is_picked], "o", "0.6", "passed over")
        draw_points(axes, at[is_picked], values[is_picked], "D", COLOURS[0], "picked")
        _add_key(figure, axes)
        axes.set(xlabel="time (s)", ylabel="score")
        if values.max() > SKEWED * abs(float(np.median(values))):
            axes.set_yscale("symlog", linthresh=1.0)  # zero has a place, too
            axes.set_ylim(bottom=0.0 if values.min() >= 0 else None)
        axes.set_xlim(left=0)
    return figure


def draw_points(axes: Axes, x: Floats, y: Floats, marker: str, colour: str, label: str) -> None:
    """A mark for each, none if there are none; crosses stand out."""
    if not len(x):
        return
    is_cross = marker == "x"
    axes.plot(
        x,
        y,
        marker,
        color=colour,
        label=label,
        markersize=4 if is_cross else 2.5 if len(x) < MANY else 1.5,
        markeredgewidth=1.0 if is_cross else 0.0,
        alpha=1.0 if is_cross else max(0.02, min(0.6, 0.6 * MANY / len(x))),
        rasterized=True,  # a vector picture of a million dots is of no use to anybody
        zorder=3 if is_cross else 2,
    )


def _add_key(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize="small"
    )
