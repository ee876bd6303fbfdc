"""Tables of the page: protocols side by side, and what runs cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pisces.report.compare import Row
from pisces.report.markup import Html, joined, table, tag
from pisces.report.table import duration, in_bytes, speedup_text, time_text

MOST_COST_ROWS = 8  # runs whose costs have a row each
HEADS = {"name": "run", "time_s": "time", "wall_s": "wall time", "reason": "ended by"}
HOW_COUNTED = (
    "Wasted are tasks whose updates went into no version. Samples are the examples of every update "
    "that arrived, counted once however often they were trained on. Bytes are what goes over the "
    "wire if each task fetches the model and each update brings one back, uncompressed."
)


def comparison_table(rows: Sequence[Row], target: float, metric: str) -> Html:
    """A row per protocol; the first is the one whose speed-ups are told."""
    heads = (
        "protocol",
        f"time to {metric.replace('_', ' ')} {target:g}",
        f"speed-up of {rows[0].protocol}",
        "runs",
        "versions",
        "updates",
        "max staleness",
        f"final {metric.replace('_', ' ')}",
        "wall time",
    )
    cells = [
        (
            row.protocol,
            time_text(row),
            "" if number == 0 else speedup_text(row),
            f"{len(row.seeds)}" + (f"\n{row.num_cut_short} cut short" * bool(row.num_cut_short)),
            _number(row.versions),
            _number(row.updates),
            _number(row.max_staleness),
            "-" if row.final is None else f"{row.final:.4g}",
            duration(row.wall_s),
        )
        for number, row in enumerate(rows)
    ]
    caption = "Medians over seeds; below a speed-up its 95 % interval, or the range of fewer pairs."
    return table(heads, cells, caption=caption)


def cost_table(rows: Sequence[dict[str, Any]]) -> Html:
    """A row per run, or per protocol where runs are many, and how it is counted."""
    parts: list[Html] = []
    if len(rows) > MOST_COST_ROWS:
        rows = _by_protocol(rows)
        parts.append(tag("p", "Medians over the runs of a protocol."))
    # A name says protocol and seed; where a run's folder is, is nobody's concern.
    aside = {"run", "protocol", "seed"} if any("name" in row for row in rows) else {"run"}
    keys = [key for key in dict.fromkeys(k for row in rows for k in row) if key not in aside]
    known = [key for key in keys if any(row.get(key) is not None for row in rows)]
    heads = [HEADS.get(key, key.replace("_", " ")) for key in known]
    parts.append(table(heads, [[_told(key, row.get(key)) for key in known] for row in rows]))
    return joined([*parts, tag("p", HOW_COUNTED, class_="note")])


def _by_protocol(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row.get("protocol")), []).append(row)
    return [{"protocol": name, "runs": len(g), **_medians(g)} for name, g in groups.items()]


def _medians(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in rows[0]:
        values = [row[key] for row in rows if row.get(key) is not None]
        if key != "seed" and values and all(type(value) in (int, float) for value in values):
            found[key] = float(np.median(values))
    return found


def _told(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if key.endswith("bytes"):
        return in_bytes(value)
    return duration(value) if key.endswith("_s") else _number(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.4g}"
