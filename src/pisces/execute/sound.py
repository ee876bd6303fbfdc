"""Is a record of a journal what a run writes? Journals may be anybody's, and anything.

A checksum says that nothing changed since, not who wrote it. What stands for something a client
said may be any plain value here, as it may when it is heard: the loop's own checks are for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from pisces.execute.facts import DTYPES, KINDS, LARGEST
from pisces.record.segment import Record
from pisces.types import Report

Facts = Mapping[str, Any]


def check(record: Record) -> None:
    """Raise a ValueError that says what is wrong with a record, if something is."""
    facts = record.facts
    kind = facts.get("kind")
    _must(isinstance(kind, str) and kind in _CHECKS, f"no record is of the kind {kind!r}")
    _must(_is_count(facts.get("asked")), f"{kind}: asked is no count")
    num_bytes = _CHECKS[kind](facts)
    _must(
        num_bytes == len(record.content),
        f"{kind}: {len(record.content)} bytes behind it, and its facts are of {num_bytes}",
    )


def _turn(facts: Facts) -> int:
    _must(_is_number(facts.get("now")), "turn: now is no number")
    return sum(_event(event) for event in _tables(facts.get("events"), "turn: events"))


def _event(facts: Facts) -> int:
    kind: Any = facts.get("kind")
    _must(isinstance(kind, str) and kind in KINDS, f"no event is of the kind {kind!r}")
    names = {field.name for field in fields(KINDS[kind])}
    _must(facts.keys() == names | {"kind"}, f"{kind}: it has other keys")
    _must(_is_number(facts["at"]), f"{kind}: at is no number")
    own = {"report", "weights"} & names
    _must(all(_is_plain(facts[name]) for name in names - own), f"{kind}: a value is a table")
    if not own:
        return 0
    _must(_is_report(facts["report"]), f"{kind}: the report is none")
    return _num_bytes(facts["weights"])


def _is_report(facts: Any) -> bool:
    names = {field.name for field in fields(Report)}
    return type(facts) is dict and facts.keys() == names and all(map(_is_plain, facts.values()))


def _num_bytes(weights: Any) -> int:
    """What a tensor of this dtype and shape takes; asked before any memory is."""
    _must(type(weights) is dict, "weights: no table")
    dtype: Any = weights.get("dtype")
    shape: Any = weights.get("shape")
    _must(isinstance(dtype, str) and dtype in DTYPES, f"weights: no dtype is called {dtype!r}")
    _must(type(shape) is list and all(map(_is_count, shape)), "weights: the shape is none")
    size = DTYPES[dtype].itemsize
    _must(math.prod(max(1, n) for n in shape) * size < LARGEST, "weights: the shape is too large")
    num: int = math.prod(shape)
    return num * size


def _evaluated(facts: Facts) -> int:
    results = facts.get("results")
    _must(type(results) is list and all(map(_is_result, results)), "evaluated: no results")
    return 0


def _is_result(result: Any) -> bool:
    if type(result) is not list or len(result) != 3:
        return False
    at, version, metrics = result
    numbers = type(metrics) is dict and all(type(v) is float for v in metrics.values())
    return _is_number(at) and _is_count(version) and numbers


def _any(_facts: Facts) -> int:
    """What the loop said, or that it was told that all is quiet: only ever compared."""
    return 0


_CHECKS: Mapping[Any, Callable[[Facts], int]] = {
    "turn": _turn,
    "evaluated": _evaluated,
    **dict.fromkeys(("quiet", "submit", "cancel", "pull"), _any),
}


def _tables(value: Any, name: str) -> Sequence[Facts]:
    _must(type(value) is list and all(type(each) is dict for each in value), f"{name}: no tables")
    tables: Sequence[Facts] = value
    return tables


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_plain(value: Any) -> bool:
    if type(value) is int:
        return -LARGEST <= value < LARGEST
    return value is None or type(value) in (bool, float, str)


def _must(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)
