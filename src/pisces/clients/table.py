"""One row per client, in columns, so that looking at a million clients is vector arithmetic.

A float column holds NaN where a fact is not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pisces.types import State

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Columns:
    """The facts. Rows are client ids, `0 .. num_clients - 1`."""

    present: Bools
    running: Bools
    buffered: Bools
    trusted: Bools
    num_examples: Ints
    num_picks: NDArray[np.int32]
    num_reports: NDArray[np.int32]
    credits: NDArray[np.int32]
    last_version: NDArray[np.int32]  # version its last accepted update was trained from; -1: none
    loss: Floats
    loss_rms: Floats
    latency_s: Floats  # of its last accepted update
    recent_staleness: NDArray[np.int32]  # ring of the last aggregated updates' staleness; -1: empty

    @property
    def num_clients(self) -> int:
        """How many clients ever joined."""
        return len(self.present)

    def staleness_estimate(self) -> Floats:
        """Mean staleness of each client's most recent updates, 0 when there is none (Eq. 3)."""
        seen = self.recent_staleness >= 0
        total = np.where(seen, self.recent_staleness, 0).sum(axis=1)
        estimate: Floats = total / np.maximum(seen.sum(axis=1), 1)
        return estimate

    def first(self, num: int, *, writeable: bool) -> Columns:
        """The first `num` rows of every column, without copying."""
        columns = [getattr(self, f.name)[:num] for f in fields(self)]
        for column in columns:
            column.flags.writeable = writeable
        return Columns(*columns)


def _empty(num: int, credits: int, staleness_window: int) -> Columns:
    """Columns of clients nobody has heard of yet."""
    return Columns(
        present=np.zeros(num, bool),
        running=np.zeros(num, bool),
        buffered=np.zeros(num, bool),
        trusted=np.ones(num, bool),
        num_examples=np.zeros(num, np.int64),
        num_picks=np.zeros(num, np.int32),
        num_reports=np.zeros(num, np.int32),
        credits=np.full(num, credits, np.int32),
        last_version=np.full(num, -1, np.int32),
        loss=np.full(num, np.nan),
        loss_rms=np.full(num, np.nan),
        latency_s=np.full(num, np.nan),
        recent_staleness=np.full((num, staleness_window), -1, np.int32),
    )


class ClientTable:
    """Columns that grow by doubling as clients join."""

    def __init__(self, *, credits: int = 5, staleness_window: int = 5) -> None:
        self._credits = credits
        self._window = staleness_window
        self._store = _empty(0, credits, staleness_window)
        self._resize(0)

    def ensure(self, client: int) -> None:
        """Make sure there is a row for `client`."""
        if client >= self.rows.num_clients:
            self._resize(client + 1)

    def _resize(self, num: int) -> None:
        if num > self._store.num_clients:
            old = self._store
            self._store = _empty(max(num, 2 * old.num_clients), self._credits, self._window)
            for f in fields(Columns):
                getattr(self._store, f.name)[: old.num_clients] = getattr(old, f.name)
        self.rows = self._store.first(num, writeable=True)
        self.facts = self._store.first(num, writeable=False)

    def add_staleness(self, client: int, staleness: int) -> None:
        """Remember the staleness of an aggregated update, forgetting the oldest."""
        ring = self.rows.recent_staleness[client]
        ring[:-1] = ring[1:]
        ring[-1] = staleness

    def state(self) -> State:
        """Every column, by name."""
        return State({}, {f.name: getattr(self.rows, f.name).copy() for f in fields(Columns)})

    def restore(self, state: State) -> None:
        """Take up saved columns."""
        self._store = Columns(*(np.array(state.arrays[f.name]) for f in fields(Columns)))
        self._resize(self._store.num_clients)
