"""Is a line of a log, or a summary, what a run writes? Folders may be anybody's, and anything.

Only what is there is looked at, and of kinds that are known: older and newer runs say less or more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pisces.record.lines import Line
from pisces.record.summary import Counts
from pisces.types import MOST_CLIENTS

MOST = 1 << 63
LARGEST = 1 << 1000  # beyond it a whole number is no float any more

Check = Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return -LARGEST < value < LARGEST
    return type(value) is float and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _is_client(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST_CLIENTS  # counts have a row for each


def _is_text(value: Any) -> bool:
    return type(value) is str


def _if_any(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: type(value) is list and all(map(check, value))


def _metrics(value: Any) -> bool:
    return type(value) is dict and all(map(_if_any(_is_number), value.values()))


_MAYBE = _if_any(_is_number)
_ROWS = _each(_each(_MAYBE))
_KEYS: Mapping[str, Check] = {
    "at": _is_number,
    "client": _is_client,
    "task": _is_count,
    "version": _is_count,
    "num_examples": _is_count,
    "num_steps": _is_count,
    "reason": _is_text,
    "tasks": _each(_is_count),
    "staleness": _each(_is_count),
    "weights": _each(_MAYBE),
    "credits": _is_count,
    **dict.fromkeys(("slots", "num_free"), _is_count),
    **dict.fromkeys(("clients", "others"), _each(_is_client)),
    "terms": _each(_is_text),
    **dict.fromkeys(("scores", "other_scores"), _ROWS),
    "pace": _metrics,
    "share": _is_number,
    **dict.fromkeys(("loss", "loss_rms", "loss_left", "latency_s"), _MAYBE),
}
# What a line of a kind must have: it is looked at without asking.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "joined": ("client", "num_examples"),
    "picked": ("clients",),
    "started": ("task", "client"),
    "arrived": ("task",),
    "failed": ("reason",),
    "left": (),
    "dropped": ("task",),
    "aggregated": ("version", "tasks", "staleness"),
    "evaluated": ("version",),
    "outlier": ("client", "task"),
    "distrusted": ("client",),
    "stopped": ("reason",),
    "sampled": ("share",),
}
_COUNTS = tuple(name for name, kind in get_type_hints(Counts).items() if kind is int)
_SUMMARY: Mapping[str, Check] = {
    "reason": _if_any(_is_text),
    "at": _is_number,
    **dict.fromkeys(_COUNTS, _is_count),
    "distrusted": _each(_is_client),
    "final": _metrics,
    "best": _metrics,
    "max_staleness": _if_any(_is_count),
    **dict.fromkeys(("mean_staleness", "target", "time_to_target_s", "wall_s"), _MAYBE),
    **dict.fromkeys(("metric", "protocol", "trained_by", "made_with"), _is_text),
}


def decode(text: bytes) -> Line | None:
    """The line's JSON object, or None if it is not what a run writes."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if is_line(line) else None


def is_line(line: Any) -> bool:
    """Does it say its kind and instant, and of its kind what it must?"""
    if type(line) is not dict or not _is_text(line.get("kind")) or not _is_number(line.get("at")):
        return False
    kind = line["kind"]
    if kind not in _NEEDED:  # of a later version: nobody looks at it
        return True
    if kind == "evaluated":
        return _is_count(line.get("version")) and _metrics({**line, "kind": None})
    about_anybody = kind in ("failed", "left")  # also of whom nobody knows
    return _fits({**line, "client": 0} if about_anybody else line, _NEEDED[kind], _KEYS)


def is_summary(summary: Any) -> bool:
    """Is it what a run came to, or a part of it?"""
    return type(summary) is dict and _fits(summary, (), _SUMMARY)


def _fits(values: Mapping[str, Any], needed: tuple[str, ...], checks: Mapping[str, Check]) -> bool:
    if any(key not in values for key in needed):
        return False
    return all(checks[key](value) for key, value in values.items() if key in checks)
