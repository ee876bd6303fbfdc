"""A run as notebooks show it: a few facts and its curve, in some kB of HTML.

It takes the page's colours, and whatever comes from a run folder is escaped: folders may be
anybody's. What cannot be read is said in a line, for nobody can catch what a display raises.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

from matplotlib import rc_context
from matplotlib.figure import Figure

from pisces.quantities import UNKNOWN, digits, duration
from pisces.record.summary import own_goal, time_to_target
from pisces.report.styles import COLOURS
from pisces.stop import Stop

if TYPE_CHECKING:
    from pisces.record.reader import Run

Points: TypeAlias = Sequence[tuple[float, float]]
MOST_POINTS = 120  # more are not seen in so small a picture
LONGEST = 80  # letters of a name
LONGEST_LINE = 500
NEUTRAL = "#808080"  # seen on white and on black
INCHES = (3.6, 1.7)


def card(summary: Mapping[str, Any], curve: Callable[[str], Iterable[tuple[float, float]]]) -> str:
    """The card of a run: what it came to, and `curve` of its metric."""
    try:
        return _card(summary, curve)
    except Exception as error:  # whatever it is: a cell that shows a run must not end by it
        return _line(f"this run cannot be shown: {error}")


def card_of(run: Run) -> str:
    """The card of a run folder."""
    try:
        metric, target = run.aim
        who = {"protocol": run.protocol, "seed": run.seed}
        summary = {**who, **run.summary, "metric": metric, "target": target}
    except Exception as error:
        return _line(f"this run cannot be shown: {error}")
    return card(summary, lambda metric: zip(*run.curve(metric), strict=True))


def _card(summary: Mapping[str, Any], curve: Callable[[str], Iterable[tuple[float, float]]]) -> str:
    metric, target = own_goal(
        summary.get("metric"), summary.get("final") or {}, summary.get("target")
    )
    metric = metric or Stop().metric
    points = _points(curve, metric)
    rows = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{_escaped(label)}</td>'
        f'<td style="text-align:right">{_escaped(value)}</td></tr>'
        for label, value in _facts(summary, metric, target, points)
    )
    style = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start"
    table = f'<table style="border-collapse:collapse;margin:0;color:inherit">{rows}</table>'
    return f'<div style="{style}">{table}{_figure(points, target, metric)}</div>'


def _line(text: str) -> str:
    return f"<div>{_escaped(text, LONGEST_LINE)}</div>"


def _escaped(text: str, longest: int = LONGEST) -> str:
    return escape(text if len(text) <= longest else text[: longest - 1] + "…")


# --- facts ----------------------------------------------------------------------------------------


def _facts(
    summary: Mapping[str, Any], metric: str, target: float | None, points: Points
) -> Iterator[tuple[str, str]]:
    seed = "" if summary.get("seed") is None else f", seed {summary['seed']}"
    yield "protocol", f"{summary.get('protocol') or UNKNOWN}{seed}"
    yield "ended", f"{summary.get('reason') or 'not finished'}, at {duration(summary['at'])}"
    yield "versions", f"{summary['versions']:,}"
    yield "updates", f"{summary['num_updates']:,}"
    final, best = (digits(summary[part].get(metric)) for part in ("final", "best"))
    yield f"{metric}, final and best", f"{final}, {best}"
    if target is not None:
        reached = time_to_target(points, target, metric)
        time = "not reached" if reached is None else duration(reached)
        yield f"time to {metric} {target:g}", time
    mean = summary.get("mean_staleness")
    stale = UNKNOWN if mean is None else f"{mean:.1f}, {summary.get('max_staleness')}"
    yield "staleness, mean and max", stale
    yield "wall time", duration(summary.get("wall_s"))


# --- the picture ----------------------------------------------------------------------------------


def _points(curve: Callable[[str], Iterable[tuple[float, float]]], metric: str) -> Points:
    """What can be drawn of the curve; nothing where it cannot be read."""
    try:
        points = [(float(at), float(value)) for at, value in curve(metric)]
    except Exception:  # its facts are shown all the same
        return []
    return [point for point in points if all(map(math.isfinite, point))]


def _figure(points: Points, target: float | None, metric: str) -> str:
    if len(points) < 2:
        return ""
    step = math.ceil(len(points) / MOST_POINTS)
    picture = base64.b64encode(_svg([*points[:-1:step], points[-1]], target)).decode()
    name = _escaped(metric)
    # As an image it brings no styles, names or scripts into the page.
    image = f'<img alt="{name} over time" src="data:image/svg+xml;base64,{picture}">'
    caption = f'<figcaption style="opacity:.7">{name} over time (s)</figcaption>'
    return f'<figure style="margin:0">{caption}{image}</figure>'


def _svg(points: Points, target: float | None) -> bytes:
    content, nothing = BytesIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), color=COLOURS[0], linewidth=1.8)
        if target is not None:
            axes.axhline(target, color=NEUTRAL, linewidth=1, linestyle="--")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(NEUTRAL)
        axes.tick_params(colors=NEUTRAL, labelsize=8)
        axes.margins(x=0)
        figure.savefig(content, format="svg", transparent=True, metadata=nothing)
    return content.getvalue()
