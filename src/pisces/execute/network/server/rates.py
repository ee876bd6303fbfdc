"""How often is too often, and how often is it worth a line in the log?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger("pisces")

MOST_REMEMBERED = 10_000
MOST_SAID_AT_ONCE = 100


@dataclass(slots=True)
class Bucket:
    """So many per second on average, and `burst` at once."""

    per_s: float
    burst: float
    clock: Callable[[], float]
    _level: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._level, self._at = self.burst, self.clock()

    def take(self) -> bool:
        """Is there one left? It is taken."""
        now = self.clock()
        self._level = min(self.burst, self._level + (now - self._at) * self.per_s)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    @property
    def is_full(self) -> bool:
        """Was nothing taken for a while?"""
        return self._level + (self.clock() - self._at) * self.per_s >= self.burst


@dataclass(slots=True)
class Buckets:
    """One per name; those that are full again are forgotten."""

    per_s: float
    burst: float
    clock: Callable[[], float]
    _of: dict[str, Bucket] = field(default_factory=dict)
    _look_at: int = MOST_REMEMBERED  # so many, for those that can be forgotten

    def take(self, name: str) -> bool:
        """Is there one left for this name?"""
        if len(self._of) >= self._look_at:
            self._of = {n: bucket for n, bucket in self._of.items() if not bucket.is_full}
            self._look_at = max(MOST_REMEMBERED, 2 * len(self._of))
        bucket = self._of.setdefault(name, Bucket(self.per_s, self.burst, self.clock))
        return bucket.take()


@dataclass(slots=True)
class Once:
    """Says a thing once, however often it happens: a flood must not fill the log as well.

    Nor may one of many things: so many are said at once, and one a second on average.
    """

    clock: Callable[[], float]
    _said: set[tuple[str, ...]] = field(default_factory=set)
    _rate: Bucket = field(init=False)

    def __post_init__(self) -> None:
        self._rate = Bucket(1.0, MOST_SAID_AT_ONCE, self.clock)

    def warn(self, about: tuple[str, ...], text: str) -> None:
        """Log it, unless something about the same was logged."""
        if about in self._said or not self._rate.take():
            return
        if len(self._said) >= MOST_REMEMBERED:
            self._said.clear()
        self._said.add(about)
        log.warning("%s", text)
