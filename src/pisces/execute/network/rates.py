"""How often is too often, and how often is it worth a line in the log?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger("pisces")

MOST_REMEMBERED = 10_000


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

    def take(self, name: str) -> bool:
        """Is there one left for this name?"""
        if len(self._of) >= MOST_REMEMBERED:
            self._of = {n: bucket for n, bucket in self._of.items() if not bucket.is_full}
        bucket = self._of.setdefault(name, Bucket(self.per_s, self.burst, self.clock))
        return bucket.take()


@dataclass(slots=True)
class Once:
    """Says a thing once, however often it happens: a flood must not fill the log as well."""

    _said: set[str] = field(default_factory=set)

    def warn(self, text: str) -> None:
        """Log it, unless it was logged."""
        if text not in self._said and len(self._said) < MOST_REMEMBERED:
            self._said.add(text)
            log.warning("%s", text)
