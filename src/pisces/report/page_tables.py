"""Tables of the page: protocols side by side, and what runs cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from pisces.quantities import UNKNOWN, digits, duration, in_bytes, told
from pisces.report.compare import Row
from pisces.report.costs import QUANTITIES, Cost, Unit
from pisces.report.goal import Goal
from pisces.report.markup import Html, joined, table, tag
from pisces.report.table import speedup_text, time_text

CostRow: TypeAlias = tuple[tuple[str, str], list[float | None]]

MOST_COST_ROWS = 8  # runs whose costs have a row each
MEDIANS = "Medians over the runs of a protocol."
HOW_COUNTED = (
    "Wasted are tasks whose updates went into no version. Samples are the examples of every update "
    "that arrived, counted once however often they were trained on. Bytes are what goes over the "
    "wire if each task fetches the model and each update brings one back, uncompressed."
)


def comparison_table(rows: Sequence[Row], goal: Goal) -> Html:
    """A row per protocol; the first is the one whose speed-ups are told."""
    metric = told(goal.metric)
    heads = (
        "protocol",
        f"time to {metric} {goal.needed:g}",
        f"speed-up of {rows[0].protocol}",
        "runs",
        "versions",
        "updates",
        "max staleness",
        f"final {metric}",
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
            digits(row.final),
            duration(row.wall_s),
        )
        for number, row in enumerate(rows)
    ]
    caption = "Medians over seeds; below a speed-up its 95 % interval, or the range of fewer pairs."
    return table(heads, cells, caption=caption)


def cost_table(costs: Sequence[Cost]) -> Html:
    """A row per run, or per protocol where runs are many, and how it is counted."""
    keys = [key for key in QUANTITIES if any(getattr(cost, key) is not None for cost in costs)]
    is_many = len(costs) > MOST_COST_ROWS
    heads = ["protocol", "runs"] if is_many else ["run", "ended by"]
    rows = _medians(costs, keys) if is_many else _singly(costs, keys)
    parts = [tag("p", MEDIANS)] if is_many else []
    told = [[*names, *map(_told, keys, values)] for names, values in rows]
    parts.append(table([*heads, *(QUANTITIES[key][0] for key in keys)], told))
    return joined([*parts, tag("p", HOW_COUNTED, class_="note")])


def _singly(costs: Sequence[Cost], keys: Sequence[str]) -> Iterator[CostRow]:
    """A name says protocol and seed; where a run's folder is, is nobody's concern."""
    for cost in costs:
        yield (cost.name, cost.reason or UNKNOWN), [getattr(cost, key) for key in keys]


def _medians(costs: Sequence[Cost], keys: Sequence[str]) -> Iterator[CostRow]:
    """Of each protocol its name, the number of its runs, and medians of what is known of them."""
    for protocol in dict.fromkeys(cost.protocol for cost in costs):
        own = [cost for cost in costs if cost.protocol == protocol]
        known = [[v for cost in own if (v := getattr(cost, key)) is not None] for key in keys]
        medians = [float(np.median(values)) if values else None for values in known]
        yield (protocol, f"{len(own)}"), medians


def _told(key: str, value: float | None) -> str:
    return HOW_TOLD[QUANTITIES[key][1]](value)


def _number(value: float | None) -> str:
    if value is None or not (float(value).is_integer() or abs(value) >= 1000):
        return digits(value)
    return f"{value:,.0f}"


HOW_TOLD: Mapping[Unit, Callable[[float | None], str]] = {
    "seconds": duration,
    "bytes": in_bytes,
    "number": _number,
}
