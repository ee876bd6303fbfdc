"""One row per client, in columns, so that looking at a million clients is vector arithmetic.

A float column holds NaN where a fact is not known yet. Whatever is written goes through a verb of
the table, which keeps `free` and `unseen` true to the columns and notes whose row changed: whoever
keeps something per client up to date need not look at all of them again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pisces.types import State, Update

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BLOCK = 1024  # clients counted together
MOST_STEPS = 1_000_000_000  # of one task; whoever says more says nothing


@dataclass(frozen=True, slots=True, eq=False)
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
    num_steps: Ints  # likewise; 0: untold
    staleness: Floats  # mean of its recent ones, 0 when there is none (Eq. 3)
    recent_staleness: NDArray[np.int32]  # ring of the last aggregated updates' staleness; -1: empty

    @property
    def num_clients(self) -> int:
        """How many clients ever joined."""
        return len(self.present)

    def first(self, num: int) -> Columns:
        """The first `num` rows of every column, without copying, for reading only."""
        columns = [getattr(self, f.name)[:num] for f in fields(self)]
        for column in columns:
            column.flags.writeable = False
        return Columns(*columns)


class Members:
    """Some of the clients: a mask, and counts that find the n-th of them without looking at all.

    Policies hold it too, so the verbs that change it are private: only the table calls them.
    """

    def __init__(self, mask: Bools) -> None:
        self._mask = np.zeros(-(-len(mask) // BLOCK) * BLOCK, bool)
        self._mask[: len(mask)] = mask
        self._counts = self._mask.reshape(-1, BLOCK).sum(axis=1)
        self._num = int(self._counts.sum())
        self._make_room(len(mask))

    def __len__(self) -> int:
        return self._num

    def __contains__(self, client: int) -> bool:
        return 0 <= client < self._num_rows and bool(self._mask[client])

    @property
    def mask(self) -> Bools:
        """Who is among them, client by client."""
        return self._shown

    def nth(self, places: Ints) -> Ints:
        """Who stands at these places, counted from 0, when they line up by their ids."""
        if BLOCK * len(places) >= len(self._mask):
            return self._mask.nonzero()[0][places]
        ends = self._counts.cumsum()
        blocks = ends.searchsorted(places, side="right")
        places = places - (ends - self._counts)[blocks]
        pairs = zip(blocks.tolist(), places.tolist(), strict=True)
        return np.array([self._nth_of(block, place) for block, place in pairs], np.int64)

    def _nth_of(self, block: int, place: int) -> int:
        start = block * BLOCK
        return start + int(self._mask[start : start + BLOCK].nonzero()[0][place])

    def _put(self, client: int, inside: bool) -> None:
        """Take the client in or out."""
        change = inside - self._mask.item(client)
        if change:
            self._mask[client] = inside
            self._counts[client // BLOCK] += change
            self._num += change

    def _make_room(self, num_rows: int) -> None:
        """Let there be so many clients, the new ones not among them."""
        missing = -(-num_rows // BLOCK) - len(self._counts)
        if missing > 0:
            missing = max(missing, len(self._counts))
            self._mask = np.concatenate([self._mask, np.zeros(missing * BLOCK, bool)])
            self._counts = np.concatenate([self._counts, np.zeros(missing, self._counts.dtype)])
        self._num_rows = num_rows
        self._shown = self._mask[:num_rows]
        self._shown.flags.writeable = False


class Changes:
    """Whose rows changed, in order; a reader remembers how far it has read (`mark`).

    Only so many are kept: who reads too seldom is told to look at everybody. As with `Members`,
    only the table writes.
    """

    def __init__(self, keep: int = 65_536) -> None:
        self._mark = 0
        self._keep = keep
        self._clients: list[int] = []

    @property
    def mark(self) -> int:
        """How many changes there were."""
        return self._mark

    def since(self, mark: int) -> list[int] | None:
        """The clients noted after `mark`, some of them repeatedly; None: it may be anybody."""
        place = len(self._clients) - (self._mark - mark)
        return self._clients[place:] if place >= 0 else None

    def _note(self, client: int) -> None:
        """This client's row changed."""
        self._mark += 1
        self._clients.append(client)
        if len(self._clients) > self._keep:
            del self._clients[: self._keep // 2]

    def _note_everybody(self) -> None:
        """Too many rows changed to tell them one by one."""
        self._mark += 1
        self._clients.clear()


def _told(num_steps: object) -> int:
    """The number of steps a client says it did; 0 where that cannot be a number of steps."""
    return num_steps if type(num_steps) is int and 0 <= num_steps <= MOST_STEPS else 0


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
        num_steps=np.zeros(num, np.int64),
        staleness=np.zeros(num),
        recent_staleness=np.full((num, staleness_window), -1, np.int32),
    )


class ClientTable:
    """Columns that grow by doubling as clients join."""

    def __init__(self, *, credits: int = 5, staleness_window: int = 5) -> None:
        self.num_clients = 0
        self.free = Members(np.zeros(0, bool))  # there, trusted, not running, no update waiting
        self.unseen = Members(np.zeros(0, bool))  # free, and nobody has heard from them yet
        self.changes = Changes()
        self._credits = credits
        self._window = staleness_window
        self._rows = _empty(0, credits, staleness_window)
        self._facts = self._rows.first(0)

    @property
    def facts(self) -> Columns:
        """All columns, for reading only."""
        if self._facts.num_clients != self.num_clients:
            self._facts = self._rows.first(self.num_clients)
        return self._facts

    # --- what happens to clients ------------------------------------------------------------------

    def join(self, client: int, num_examples: int) -> None:
        """The client is there, with so many examples."""
        self.ensure(client)
        self._rows.present[client] = True
        self._rows.num_examples[client] = num_examples
        self._settle(client)

    def join_all(self, clients: Ints, num_examples: Ints) -> None:
        """Many are there."""
        self.ensure(int(clients.max()))
        self._rows.present[clients] = True
        self._rows.num_examples[clients] = num_examples
        self._settle_all()

    def leave(self, client: int) -> None:
        """The client is gone."""
        self._rows.present[client] = False
        self._settle(client)

    def start(self, client: int) -> None:
        """The client was given a task."""
        self._rows.running[client] = True
        self._rows.num_picks[client] += 1
        self._settle(client)

    def end(self, client: int) -> None:
        """Its task came to nothing."""
        self._rows.running[client] = False
        self._settle(client)

    def report(self, update: Update) -> None:
        """Its task ended with this update, which tells something of it."""
        rows, client, report = self._rows, update.client, update.report
        rows.running[client] = False
        rows.num_reports[client] += 1
        rows.last_version[client] = update.version
        rows.latency_s[client] = update.latency_s
        rows.num_steps[client] = _told(report.num_steps)
        rows.loss[client] = np.nan if report.loss is None else report.loss
        rows.loss_rms[client] = np.nan if report.loss_rms is None else report.loss_rms
        self._settle(client)

    def hold(self, client: int, *, waits: bool) -> None:
        """Its update waits in the buffer, or does so no longer."""
        self._rows.buffered[client] = waits
        self._settle(client)

    def add_staleness(self, client: int, staleness: int) -> None:
        """Remember the staleness of an aggregated update, forgetting the oldest."""
        ring = self._rows.recent_staleness[client]
        recent = [*ring.tolist()[1:], staleness]
        seen = [s for s in recent if s >= 0]
        ring[:] = recent
        self._rows.staleness[client] = sum(seen) / len(seen)
        self.changes._note(client)

    def doubt(self, client: int, usual_loss: float) -> None:
        """Take its last loss for what is usual."""
        self._rows.loss[client] = self._rows.loss_rms[client] = usual_loss
        self.changes._note(client)

    def credit(self, client: int) -> None:
        """Give a credit back, up to as many as everybody begins with."""
        self._rows.credits[client] = min(self._credits, self._rows.credits[client] + 1)
        self.changes._note(client)

    def debit(self, client: int) -> bool:
        """Take a credit; is the client distrusted from now on, having none left?"""
        rows = self._rows
        rows.credits[client] = max(0, rows.credits[client] - 1)
        if rows.credits[client] > 0 or not rows.trusted[client]:
            return False
        rows.trusted[client] = False
        self._settle(client)
        return True

    # --- keeping order ----------------------------------------------------------------------------

    def ensure(self, client: int) -> None:
        """Make sure there is a row for `client`."""
        if client < self.num_clients:
            return
        self.num_clients = client + 1
        self.free._make_room(self.num_clients)
        self.unseen._make_room(self.num_clients)
        old = self._rows
        if self.num_clients > old.num_clients:
            num = max(self.num_clients, 2 * old.num_clients)
            self._rows = _empty(num, self._credits, self._window)
            for f in fields(Columns):
                getattr(self._rows, f.name)[: old.num_clients] = getattr(old, f.name)

    def _settle(self, client: int) -> None:
        """Something changed: may the client be started now?"""
        rows = self._rows
        there = rows.present.item(client) and rows.trusted.item(client)
        free = there and not (rows.running.item(client) or rows.buffered.item(client))
        self.free._put(client, free)
        self.unseen._put(client, free and not rows.num_reports.item(client))
        self.changes._note(client)

    def _settle_all(self) -> None:
        facts = self.facts
        free = facts.present & facts.trusted & ~facts.running & ~facts.buffered
        self.free = Members(free)
        self.unseen = Members(free & (facts.num_reports == 0))
        self.changes._note_everybody()

    # --- saving -----------------------------------------------------------------------------------

    def state(self) -> State:
        """Every column by name, but `staleness`, which follows from the recent ones."""
        names = [f.name for f in fields(Columns) if f.name != "staleness"]
        return State({}, {name: getattr(self.facts, name).copy() for name in names})

    def restore(self, state: State) -> None:
        """Take up saved columns."""
        self.num_clients = len(state.arrays["present"])
        self._rows = _empty(self.num_clients, self._credits, self._window)
        for name, column in state.arrays.items():
            getattr(self._rows, name)[:] = column
        self._facts = self._rows.first(self.num_clients)
        seen = self._rows.recent_staleness >= 0
        total = np.where(seen, self._rows.recent_staleness, 0).sum(axis=1)
        self._rows.staleness[:] = total / np.maximum(seen.sum(axis=1), 1)
        self._settle_all()
