"""Pictures like the paper's, drawn from the records of one case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pisces.report.band import BAND, MIDDLE
from pisces.report.estimate import in_words
from pisces.report.printed.paper import save
from pisces.report.printed.sheets import (
    MOST_SHADED,
    at_most_one,
    draw_curves,
    draw_dots,
    draw_target,
)
from pisces.report.styles import Style, styles
from pisces.stop import lower_is_better
from pisces.study.material import (
    Drawn,
    Material,
    floats,
    panel_per_point,
    sheet,
    step_curve,
    with_legend,
)
from pisces.study.measures import MEASURES
from pisces.study.plan import Case, Picture, Study
from pisces.study.records import Record

INTERVAL = "median over seeds; lines: 95 % interval, or the range of fewer than five"
OF_METRIC = ("final", "best", "late")  # measures that are values of the metric
FIRST_SEED = "a dot per client, first seed"


def draw(
    study: Study, case: Case, records: Sequence[Record], folder: Path, *, is_trial: bool = False
) -> list[Drawn]:
    """All pictures the study asks for of one case that was run, and no others."""
    material = Material(study, case, records, is_trial)
    drawn = []
    for kind in PICTURES:
        (folder / f"{case.name}-{kind}.png").unlink(missing_ok=True)
    for kind in study.figures:
        figure = PICTURES[kind](material)
        if figure is not None:
            path = folder / f"{case.name}-{kind}.png"
            save(figure, path)
            drawn.append(Drawn(path, material.note(f"{CAPTIONS[kind]} ({case.name})")))
    return drawn


# --- over time ------------------------------------------------------------------------------------


def _curves(material: Material) -> Figure:
    metric = material.records[0].metric
    figure, panels = panel_per_point(material, "time (s)", metric)
    for axes, x in zip(panels, material.xs, strict=True):
        for variant in material.variants:
            runs = material.at(variant, x)
            reached = in_words(
                material.estimate(variant, x, "time_to_target"), MEASURES["time_to_target"].text
            )
            label = f"{variant}: {reached}" if len(panels) == 1 else variant
            curves = [step_curve(r.times, r.values) for r in runs]
            draw_curves(axes, material.style(variant), curves, label, shaded=_is_shaded(material))
        draw_target(axes, material.records[0].target, named=len(panels) == 1)
        axes.set_xlim(left=0)
    _look_closer(panels, material.records)
    told = BAND if _is_shaded(material) else MIDDLE
    return with_legend(figure, panels, material.over_seeds(told))


def _is_shaded(material: Material) -> bool:
    return len(material.variants) <= MOST_SHADED


def _look_closer(panels: Sequence[Axes], records: Sequence[Record]) -> None:
    """Leave out what lies far below the target: the first minutes would flatten all the rest.

    Of every line a quarter is seen at least, however far from the target it stays.
    """
    target, metric = records[0].target, records[0].metric
    up, better, worse = (-1, min, max) if lower_is_better(metric) else (1, max, min)
    axes = panels[0]  # the others share its scale
    best = better((v for r in records for v in r.values if v is not None), default=target)
    shown = max(4 * abs(best - target), 0.1 * abs(target))
    far = worse(target - up * shown, *_upper_quarters(panels, up))
    far = better(far, worse(axes.get_ylim()))
    near = better(best, target)
    axes.set_ylim(*sorted((far, near + 0.05 * (near - far))))
    at_most_one(axes, metric, target)


def _upper_quarters(panels: Sequence[Axes], up: int) -> list[float]:
    """Where the better quarter of each line's values begins; the target's line is among them."""
    lines = [up * np.asarray(line.get_ydata()) for axes in panels for line in axes.lines]
    return [up * float(np.quantile(line, 0.75)) for line in lines if len(line)]


def _aggregations(material: Material) -> Figure:
    figure, panels = panel_per_point(material, "time (s)", "versions made")
    for axes, x in zip(panels, material.xs, strict=True):
        for variant in material.variants:
            curves = [step_curve(r.versions_at, r.versions) for r in material.at(variant, x)]
            draw_curves(axes, material.style(variant), curves, variant)
        axes.set_xlim(left=0)
    return with_legend(figure, panels, material.over_seeds(BAND))


def _losses(material: Material) -> Figure | None:
    with_losses = {(r.variant, r.x) for r in material.records if r.losses is not None}
    pairs = [(v, x) for x in material.xs for v in material.variants if (v, x) in with_losses]
    if not pairs:
        return None
    figure, panels = sheet(len(pairs), "time (s)", "mean loss of arrived updates")
    for axes, (variant, x) in zip(panels, pairs, strict=True):
        axes.set_title(f"{variant}, {material.title(x)}", fontsize="small")
        for label, style in zip(("honest", "corrupted"), styles(), strict=False):
            parts = [r.losses for r in material.at(variant, x) if r.losses is not None]
            curves = [step_curve(p.times, getattr(p, label)) for p in parts]
            draw_curves(axes, style, curves, label, hold=False)
    return with_legend(figure, panels, material.over_seeds(BAND))


# --- against something ----------------------------------------------------------------------------


def _bars(material: Material) -> Figure:
    names = material.variants
    figure, panels = sheet(len(material.xs), "time to target (s)", "", bar_rows=len(names))
    for axes, x in zip(panels, material.xs, strict=True):
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color="0.9", linewidth=0.8)
        for place, name in enumerate(names):
            _draw_bar(axes, place, material, name, x)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_title(material.title(x), fontsize="medium")
    figure.suptitle(
        material.over_seeds(INTERVAL, "; hatched: median not reached"), fontsize="small"
    )
    return figure


def _draw_bar(axes: Axes, place: int, material: Material, name: str, x: float | None) -> None:
    found = material.estimate(name, x, "time_to_target")
    if found is None:
        return
    colour, exact = material.style(name).colour, found.least == found.most
    bar = axes.barh(place, found.least, height=0.7, color=colour, alpha=1.0 if exact else 0.4)
    bar.patches[0].set_hatch("" if exact else "///")
    if exact and found.num > 1:
        high = found.high if math.isfinite(found.high) else found.least
        ends = ([found.low, high], [place, place])
        axes.plot(*ends, color="white", linewidth=3)  # a bar may be as dark as the line
        axes.plot(*ends, color="black", linewidth=1.2)


def _sweep(material: Material) -> Figure | None:
    if not material.has_sweep:
        return None
    measures = material.study.sweep
    figure, panels = sheet(len(measures), material.study.axis, "", sharey=False)
    for axes, measure in zip(panels, measures, strict=True):
        for variant in material.variants:
            _draw_sweep(axes, material, variant, measure)
        axes.set_title(MEASURES[measure].label_with_unit, fontsize="medium")
        axes.set_xticks([x for x in material.xs if x is not None])
        if measure.endswith("_to_target"):
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        if measure in OF_METRIC:
            at_most_one(axes, material.records[0].metric)
    return with_legend(figure, panels, material.over_seeds(INTERVAL, "; hollow: at least"))


def _draw_sweep(axes: Axes, material: Material, variant: str, measure: str) -> None:
    style = material.style(variant)
    all_found = [(x, material.estimate(variant, x, measure)) for x in material.xs if x is not None]
    found = [(x, f) for x, f in all_found if f is not None and math.isfinite(f.least)]
    places, middles = [x for x, _ in found], [f.least for _, f in found]
    axes.plot(places, middles, color=style.colour, linestyle=style.dash, label=variant, zorder=2)
    for x, f in found:
        face = style.colour if f.least == f.most else "white"
        axes.plot(x, f.least, "o", color=style.colour, markerfacecolor=face, zorder=3)
        ends = [end if math.isfinite(end) else f.least for end in (f.low, f.high)]
        axes.plot([x, x], ends, color=style.colour, linewidth=1.2)


# --- client by client -----------------------------------------------------------------------------


def _involvement(material: Material) -> Figure | None:
    """None also where all clients have the same size: a column of dots says nothing."""
    clients = [record.clients for record in material.records if record.clients is not None]
    if len({size for columns in clients for size in columns.num_examples}) < 2:
        return None

    def draw_one(axes: Axes, record: Record, style: Style) -> None:
        assert record.clients is not None
        sizes, picked = floats(record.clients.num_examples), floats(record.clients.num_started)
        draw_dots(axes, style, sizes, picked)

    return _per_client(material, "samples of the client", "times picked", draw_one)


def _staleness(material: Material) -> Figure | None:
    def draw_one(axes: Axes, record: Record, style: Style) -> None:
        assert record.clients is not None
        columns = (
            record.clients.staleness_min,
            record.clients.staleness_median,
            record.clients.staleness_max,
        )
        low, middle, high = map(floats, columns)
        order = np.argsort(middle)  # clients that never arrived come last: NaN
        places = np.arange(len(order))
        axes.vlines(places, low[order], high[order], color=style.colour, linewidth=1.5, alpha=0.6)
        axes.plot(places, middle[order], "o", color=style.colour, markersize=3)

    return _per_client(material, "clients, by their median", "staleness (versions)", draw_one)


def _per_client(
    material: Material,
    xlabel: str,
    ylabel: str,
    draw_one: Callable[[Axes, Record, Style], None],
) -> Figure | None:
    chosen = [
        next((r for r in material.at(variant, x) if r.clients is not None), None)
        for variant in material.variants
        for x in material.xs
    ]
    records = [record for record in chosen if record is not None]
    if not records:
        return None
    figure, panels = sheet(len(records), xlabel, ylabel)
    for axes, record in zip(panels, records, strict=True):
        draw_one(axes, record, material.style(record.variant))
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        title = ", ".join(filter(None, (record.variant, material.title(record.x))))
        axes.set_title(title, fontsize="medium")
    figure.suptitle(material.note(FIRST_SEED), fontsize="small")
    return figure


PICTURES: Mapping[Picture, Callable[[Material], Figure | None]] = {
    "curves": _curves,
    "bars": _bars,
    "sweep": _sweep,
    "aggregations": _aggregations,
    "involvement": _involvement,
    "staleness": _staleness,
    "losses": _losses,
}
CAPTIONS: Mapping[Picture, str] = {
    "curves": "the metric over time",
    "bars": "time to target",
    "sweep": "against what is varied",
    "aggregations": "versions made over time",
    "involvement": "times picked against data size",
    "staleness": "staleness of each client's updates",
    "losses": "losses of honest and corrupted clients",
}
