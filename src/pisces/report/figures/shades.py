"""A shade per client and piece of time, where there are too many tasks for bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from pisces.report.figures.busy import BusyMap
from pisces.report.figures.figure import Trace, numbers
from pisces.report.figures.span import COLOURS, STALE
from pisces.report.ledger.tables import OUTCOMES
from pisces.report.styles import GREY


def by_staleness(found: BusyMap) -> list[Trace]:
    """How stale what was aggregated was; and grey, where nothing of it was."""
    return [_stale_cells(found), *_unused_cells(found)]


def _cells(found: BusyMap, values: Any, **more: Any) -> Trace:
    middles = numbers((found.edges[:-1] + found.edges[1:]) / 2)
    trace = {"type": "heatmap", "x": middles, "y": list(range(len(values)))}
    return {**trace, "z": values, "ygap": 1, "hoverongaps": False, **more}


def _stale_cells(found: BusyMap) -> Trace:
    return _cells(
        found,
        [numbers(row) for row in found.stale],
        colorscale=STALE,
        zmin=0,
        zmax=max(1.0, float(np.nanmax(found.stale, initial=0.0))),
        colorbar={"title": {"text": "mean<br>staleness"}, "thickness": 12},
        hovertemplate="%{x:,.4~g} s: mean staleness %{z:.3~g}<extra></extra>",
    )


def _unused_cells(found: BusyMap) -> list[Trace]:
    """Where clients worked in vain, or have not ended yet: nobody vanishes who was at work."""
    is_unused = (found.outcomes >= 0) & np.isnan(found.stale)
    if not is_unused.any():
        return []
    texts = [
        [OUTCOMES[code] if unused else "" for code, unused in zip(*pair, strict=True)]
        for pair in zip(found.outcomes.tolist(), is_unused.tolist(), strict=True)
    ]
    cells = _cells(
        found,
        [numbers(row) for row in np.where(is_unused, 1.0, np.nan)],
        text=texts,
        colorscale=[[0, GREY], [1, GREY]],
        opacity=0.55,
        showscale=False,
        hovertemplate="%{x:,.4~g} s: at work, %{text}<extra></extra>",
    )
    return [cells]


def by_outcome(found: BusyMap) -> Trace:
    """What came of most of the work, in colours that stand beside their names."""
    known = [code for code in range(len(OUTCOMES)) if np.any(found.outcomes == code)]
    places = np.full(len(OUTCOMES) + 1, np.nan)  # the last is that of -1: nobody worked
    places[known] = np.arange(len(known))
    num, names = len(known), [OUTCOMES[code] for code in known]
    steps = [[(n + end) / num, COLOURS[name]] for n, name in enumerate(names) for end in (0, 1)]
    return _cells(
        found,
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
