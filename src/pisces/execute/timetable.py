"""Comings and goings of all clients in order of time, a stretch of time after the other.

A client's sessions are few, those of a million clients are not: what is planned ahead is one
stretch, in two arrays, and nothing is kept per client beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PER_STRETCH = 65_536  # comings and goings, about: little to hold, and few calls


class Stretch(NamedTuple):
    """What happens in a stretch of time: instants in order, and 2 x client, + 1 if it goes.

    At one instant lower ids go first.
    """

    at: Floats
    places: Ints


class Timetable(Protocol):
    """Who comes and goes, stretch by stretch."""

    @property
    def is_whole(self) -> bool:
        """Are these all sessions, or only everybody's first?"""
        ...

    def stretch(self, number: int) -> Stretch | None:
        """The number-th stretch, counted from 0; `None`: there is no more."""
        ...


class Firsts(Timetable):
    """Everybody's first session, in one stretch."""

    is_whole = False

    def __init__(self, first_sessions: Floats) -> None:
        self._first_sessions: Floats | None = first_sessions

    def stretch(self, number: int) -> Stretch | None:
        """The only one is the first, and it is given once: it is large."""
        if number > 0 or self._first_sessions is None:
            return None
        at = self._first_sessions.reshape(-1)  # joins_at, leaves_at, joins_at ...
        self._first_sessions = None
        planned = np.flatnonzero(at < math.inf)
        order = planned[np.argsort(at[planned], kind="stable")]
        return Stretch(at[order], order)


class Daily(Timetable):
    """The same hours every period: clients in the order of their hours, and nothing else."""

    is_whole = True

    def __init__(
        self, hours: Floats, period_s: float, online_s: float, per_stretch: int = PER_STRETCH
    ) -> None:
        order = np.argsort(hours, kind="stable")
        self._hours = hours[order]
        self._clients = order.astype(np.int32 if len(hours) < 2**31 else np.int64)
        self._period_s, self._online_s = period_s, online_s
        self._num_stretches = -(-2 * len(hours) // per_stretch)  # of a period

    def stretch(self, number: int) -> Stretch | None:
        """All that happens from its beginning until before its end."""
        if not len(self._hours):
            return None
        starts_at, ends_at = self._begins_at(number), self._begins_at(number + 1)
        parts = list(self._between(starts_at, ends_at))
        at = np.concatenate([part.at for part in parts])
        places = np.concatenate([part.places for part in parts])
        order = np.lexsort((places ^ 1, at))  # who goes and comes at one instant goes first
        return Stretch(at[order], places[order])

    def _begins_at(self, number: int) -> float:
        return number * (self._period_s / self._num_stretches)

    def _between(self, starts_at: float, ends_at: float) -> Iterator[Stretch]:
        """The comings, and the goings, of each period that may have some then."""
        first, last = (math.floor(at / self._period_s) for at in (starts_at, ends_at))
        for period in range(max(first - 2, -1), last + 2):
            for goes, after_s in ((0, 0.0), (1, self._online_s)):
                some = self._about(period, starts_at - after_s, ends_at - after_s)
                if period == -1 and starts_at == goes == 0:  # who is there at the start
                    some = slice(0, len(self._hours))
                sessions = daily_sessions(self._hours[some], period, self._period_s, self._online_s)
                at = sessions[:, goes]
                then = (starts_at <= at) & (at < ends_at) & (sessions[:, 1] > 0)
                yield Stretch(at[then], 2 * self._clients[some][then].astype(np.int64) + goes)

    def _about(self, period: int, starts_at: float, ends_at: float) -> slice:
        """Those whose sessions of that period begin then, and a few besides, for rounding."""
        slack_s = 1e-9 * (abs(ends_at) + self._period_s)
        since_s = np.array([starts_at - slack_s, ends_at + slack_s]) - period * self._period_s
        low, high = np.searchsorted(self._hours, since_s)
        return slice(int(low), int(high))


def daily_sessions(hours: Floats, period: int, period_s: float, online_s: float) -> Floats:
    """One row per client: when its session of that period begins and ends, the run's start cut off.

    One that ended before the run began ends at 0 or earlier.
    """
    joins_at = hours + period * period_s
    next_at = hours + (period + 1) * period_s
    later = np.maximum(joins_at + online_s, np.nextafter(joins_at, np.inf))
    return np.stack([np.maximum(joins_at, 0.0), np.minimum(later, next_at)], axis=1)
