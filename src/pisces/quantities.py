"""Quantities in words, the same wherever people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

UNKNOWN = "-"
MOST_NAMED = 10  # in one sentence


def duration(seconds: float | None) -> str:
    """A duration in few letters: 0.42 s, 7.5 s, 440 s, 2.8 h."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 1e4:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def percent(share: float) -> str:
    """`35 %`; 100 % is said of what is whole only."""
    return f"{math.floor(100 * min(1.0, max(0.0, share)))} %"


def in_bytes(num: float | None) -> str:
    """So many bytes: 812 B, 19.5 kB, 1.20 GB."""
    if num is None:
        return UNKNOWN
    size, unit = float(num), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    if unit == "B" or size >= 99.95:
        return f"{size:,.0f} {unit}"
    return f"{size:.1f} {unit}" if size >= 9.995 else f"{size:.2f} {unit}"


def digits(value: float | None) -> str:
    """A number in four digits: 0.8713, 12.35, 1.3e+04."""
    return UNKNOWN if value is None else f"{value:.4g}"


def counted(num: float, one: str, many: str | None = None) -> str:
    """`1 update`, `12,000 updates`."""
    return f"{num:,.0f} {one if num == 1 else many or f'{one}s'}"


def how_many(num: float, one: str, many: str | None = None) -> str:
    """`1 run`, `2 runs`, `no runs`."""
    return f"no {many or f'{one}s'}" if num == 0 else counted(num, one, many)


def listed(names: Sequence[object]) -> str:
    """`a`, `a and b`, `a, b and c`; of very many the first few.

    Where one alone would be left out it is named: that takes no more room than to count it.
    """
    words = [str(name) for name in names]
    if len(words) > MOST_NAMED + 1:
        words = [*words[:MOST_NAMED], f"{len(words) - MOST_NAMED:,} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def begun(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]


def plain_text(text: str, *, but: str = "") -> str:
    """What a config or a log calls something, with a `?` for each character that is none to see.

    A terminal would obey some of them, and no font knows the halves of a character.
    """
    return "".join(c if c.isprintable() or c in but else "?" for c in text)


def discreet(text: str) -> str:
    """The text without who logs in where, and how: `http://...@host`."""
    return re.sub(r"://[^/?#\s\"']*@", "://...@", text)


def told(metric: str) -> str:
    """What a metric is called where people read it."""
    return metric.replace("_", " ")
