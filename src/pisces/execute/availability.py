"""When a simulated client is there.

An `Availability` gives each client its sessions, the intervals `[joins_at, leaves_at)` it spends
with the server. They depend on the seed and the client alone, and asking again starts them anew.
Subclass it for sessions of your own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import count, pairwise
from os import PathLike
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.errors import ConfigError, DataError
from pisces.execute.timetable import Daily, Firsts, Timetable, daily_sessions
from pisces.execute.trace import read_trace, trace_number
from pisces.seeds import generator, nth_draw

Session: TypeAlias = tuple[float, float]


class Availability(Protocol):
    """The comings and goings of clients."""

    def sessions(self, client: int) -> Iterator[Session]:
        """Increasing, disjoint intervals `[joins_at, leaves_at)`, perhaps without end.

        Whoever leaves at infinity stays: that session is the last.
        """
        ...

    def first_sessions(self, num_clients: int) -> NDArray[np.float64]:
        """One row per client: when its first session begins and ends; infinity: never."""
        never = (math.inf, math.inf)
        first = [next(self.sessions(client), never) for client in range(num_clients)]
        return np.array(first, np.float64).reshape(num_clients, 2)

    def timetable(self, num_clients: int) -> Timetable:
        """Everybody's sessions in order of time, if they can be had so, or else the first ones."""
        return Firsts(self.first_sessions(num_clients))


class Always(Availability):
    """Everyone is there from the start and stays."""

    def sessions(self, client: int) -> Iterator[Session]:
        """One session without end."""
        yield 0.0, math.inf

    def first_sessions(self, num_clients: int) -> NDArray[np.float64]:
        """The same for all, so it need not be asked a million times."""
        return np.tile([0.0, math.inf], (num_clients, 1))


class Markov(Availability):
    """Clients come and go at random: online and offline spells are exponential.

    A client is online at the start with the share of time it is online in the long run.
    """

    def __init__(self, mean_online_s: float, mean_offline_s: float, seed: int = 0) -> None:
        for name, mean in (("mean_online_s", mean_online_s), ("mean_offline_s", mean_offline_s)):
            if not 0 < mean < math.inf:
                raise ConfigError(
                    f"{name} must be positive and finite, not {mean}; for clients that never "
                    "leave, use the availability that is always there"
                )
        self._online_s = mean_online_s
        self._offline_s = mean_offline_s
        self._seed = seed

    def sessions(self, client: int) -> Iterator[Session]:
        """Alternating spells, for ever."""
        rng = generator(self._seed, "availability", client)
        share = self._online_s / (self._online_s + self._offline_s)
        at = 0.0 if rng.random() < share else rng.exponential(self._offline_s)
        while True:
            leaves_at = _after(at, rng.exponential(self._online_s))
            yield at, leaves_at
            at = _after(leaves_at, rng.exponential(self._offline_s))


class Diurnal(Availability):
    """Each client is there for the same share of every period, at its own hours."""

    def __init__(self, period_s: float, online_share: float, seed: int = 0) -> None:
        if not 0 < period_s < math.inf:
            raise ConfigError(f"period_s must be positive and finite, not {period_s}; a day: 86400")
        if not 0 < online_share <= 1:
            raise ConfigError(
                f"online_share must be above 0 and at most 1, not {online_share}; "
                "at 0 nobody would ever come"
            )
        self._period_s = period_s
        self._online_s = math.inf if online_share == 1 else online_share * period_s
        self._seed = seed

    def sessions(self, client: int) -> Iterator[Session]:
        """One session a period; the first may have begun before the run."""
        if self._online_s == math.inf:
            yield 0.0, math.inf
            return
        hour = np.array([self._period_s * nth_draw(client, self._seed, "hours")])
        for period in count(-1):
            joins_at, leaves_at = self._nth(hour, period)[0].tolist()
            if leaves_at > 0:
                yield joins_at, leaves_at

    def first_sessions(self, num_clients: int) -> NDArray[np.float64]:
        """All at once: the same as asking each."""
        if self._online_s == math.inf:
            return Always().first_sessions(num_clients)
        hours = self._hours(num_clients)
        early, late = self._nth(hours, -1), self._nth(hours, 0)
        return np.where(early[:, 1:] > 0, early, late)

    def timetable(self, num_clients: int) -> Timetable:
        """All sessions, without a generator for each client."""
        if self._online_s == math.inf:
            return super().timetable(num_clients)
        return Daily(self._hours(num_clients), self._period_s, self._online_s)

    def _hours(self, num_clients: int) -> NDArray[np.float64]:
        """When in a period each client comes: one draw each, in the order of their ids."""
        return self._period_s * generator(self._seed, "hours").random(num_clients)

    def _nth(self, hours: NDArray[np.float64], period: int) -> NDArray[np.float64]:
        return daily_sessions(hours, period, self._period_s, self._online_s)


class Trace(Availability):
    """Recorded sessions. A client that the file does not name never comes.

    A CSV file has the header `client,joins_at,leaves_at`; an empty `leaves_at` means never. A JSON
    file holds, as a list by client or an object from client, lists of `[joins_at, leaves_at]`, with
    null for never. Rows may stand in any order.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        rows: defaultdict[int, list[_Row]] = defaultdict(list)
        columns = ("client", "joins_at", "leaves_at")
        for where, client, (joins_at, leaves_at) in read_trace(path, columns):
            rows[client].append(_checked(where, joins_at, leaves_at))
        if not rows:
            raise DataError(f"{path} holds no session, so nobody would ever come; add one")
        self._sessions = {client: _ordered(client, found) for client, found in rows.items()}

    def sessions(self, client: int) -> Iterator[Session]:
        """The client's recorded sessions, in order of time."""
        return iter(self._sessions.get(client, ()))


class Late(Availability):
    """Some clients turn up late: each with probability `share`, at an instant in (0, over_s].

    What the inner availability has for them before that instant is cut.
    """

    def __init__(self, inner: Availability, over_s: float, share: float, seed: int = 0) -> None:
        if not 0 < over_s < math.inf:
            raise ConfigError(f"over_s must be positive and finite, not {over_s}; shorten it")
        if not 0 <= share <= 1:
            raise ConfigError(f"the share of late clients must be within [0, 1], not {share}")
        self._inner = inner
        self._over_s = over_s
        self._share = share
        self._seed = seed

    def sessions(self, client: int) -> Iterator[Session]:
        """The inner sessions, or what is left of them after the client's first instant."""
        first_at = self._first_at(client)
        for joins_at, leaves_at in self._inner.sessions(client):
            if leaves_at > first_at:
                yield max(joins_at, first_at), leaves_at

    def _first_at(self, client: int) -> float:
        # both drawn in any case, so that a larger share adds late clients and moves none
        luck, part = generator(self._seed, "late", client).random(2)
        return self._over_s * float(1 - part) if luck < self._share else 0.0


class _Row(NamedTuple):
    """One recorded session and where it stands in the file."""

    joins_at: float
    leaves_at: float
    where: str


def _after(at: float, duration_s: float) -> float:
    """An instant strictly later, even where the duration is lost in rounding."""
    return max(at + duration_s, math.nextafter(at, math.inf))


def _checked(where: str, joins: object, leaves: object) -> _Row:
    joins_at = trace_number(where, "joins_at", joins)
    never = leaves is None or leaves == ""
    leaves_at = math.inf if never else trace_number(where, "leaves_at", leaves)
    if not 0 <= joins_at < leaves_at:
        raise DataError(
            f"{where}: a session must start at 0 or later and end after it starts, "
            f"not last from {joins_at} to {leaves_at}; mend it"
        )
    return _Row(joins_at, leaves_at, where)


def _ordered(client: int, rows: list[_Row]) -> tuple[Session, ...]:
    rows = sorted(rows)
    for one, other in pairwise(rows):
        if other.joins_at < one.leaves_at:
            raise DataError(
                f"{other.where}: this session of client {client} starts at {other.joins_at}, "
                f"before the one at {one.where} ends ({one.leaves_at}); make them disjoint"
            )
    return tuple((row.joins_at, row.leaves_at) for row in rows)
