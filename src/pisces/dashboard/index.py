"""All runs of a folder, read in the background and kept up to date.

One thread looks for runs and reads their logs, a slice at a time, those that somebody looks at
first. What is not looked at and takes too much room is let go, but for its line in the list.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pisces.dashboard import places
from pisces.dashboard.places import Found, Place, Stamp, hidden
from pisces.errors import PiscesError
from pisces.report.ledger import Ledger, Overview, overview

SLICE_S = 0.05  # of reading; whoever asks meanwhile waits for so long at most
IDLE_S = 0.25  # between looks at the logs that somebody watches
SCAN_S = 2.0  # between looks for new runs; where that takes long, ten times as long as it takes
SOON_S = 0.5  # after the last look, where somebody asks for a run that is not known
LOOKED_AT_S = 15.0  # so long after a question somebody is still there
ROW_S = 5.0  # after which a run that is not over is asked again whether it still grows
ROOM_BYTES = 2 << 30  # of logs that are held in memory
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Watched:
    """One run: its ledger while it is held, and what the list says of it."""

    place: Place
    ledger: Ledger | None = None
    seen: Overview | None = None
    log_problem: str | None = None
    share_read: float = 0.0
    stamp_read: Stamp | None = None  # what its log was like when it was last read to its end
    read_at: float = 0.0
    rowed_at: float = 0.0
    looked_at: float = -LOOKED_AT_S

    @property
    def problem(self) -> str | None:
        """Why there is no more to see of it than there is."""
        return self.place.problem or self.log_problem

    def is_due(self, now: float) -> bool:
        """Is there something to read, as far as can be told?"""
        if self.place.problem is not None:
            return False
        is_whole = self.ledger is None or self.ledger.is_whole
        if self.stamp_read != self.place.stamp or not is_whole:
            return self.ledger is None or self.ledger.problem is None or self._is_rested(now)
        return self._is_rested(now) and self.is_looked_at(now)

    def is_looked_at(self, now: float) -> bool:
        """Does somebody look at it?"""
        return now - self.looked_at < LOOKED_AT_S

    def _is_rested(self, now: float) -> bool:
        return now - self.read_at >= IDLE_S


@dataclass(eq=False)
class Index:
    """The runs in and below `root`, which has all links resolved."""

    root: Path
    room_bytes: int = ROOM_BYTES
    # Numbers begin anew with each start: what a page knows from before must not look up to date.
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    is_cut: bool = False
    has_looked: bool = False
    _runs: dict[str, Watched] = field(default_factory=dict)
    _revision: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)
    _wanted: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _scan_at: float = 0.0
    _scanned_at: float = 0.0

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._work, name="pisces watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    @property
    def revision(self) -> str:
        """Another one whenever the list says something else."""
        return f"{self.epoch}.{self._revision}"

    def runs(self) -> list[Watched]:
        """All there are."""
        with self._lock:
            return list(self._runs.values())

    def find(self, run: str) -> Watched | None:
        """The run of that name, if it was found; from now on somebody looks at it."""
        with self._lock:
            watched = self._runs.get(run)
        now = time.monotonic()
        if watched is None:
            self._scan_at = min(self._scan_at, self._scanned_at + SOON_S)
        else:
            if not watched.is_looked_at(now):
                self._wanted.set()
            watched.looked_at = now
        return watched

    def ledger(self, watched: Watched) -> Ledger:
        """Its ledger, read as far as it is."""
        with self._lock:
            if watched.ledger is None:
                watched.ledger, watched.stamp_read = Ledger(watched.place.path), None
                self._wanted.set()
            return watched.ledger

    # --- the thread's side ------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                is_busy = self.step()
            except Exception:  # whatever it is, the page goes on with what it knows
                _log.exception("pisces watch stumbled over a run folder")
                is_busy = False
            # A breath between slices lets those go first who wait for an answer.
            self._wanted.wait(0.005 if is_busy else IDLE_S)
            self._wanted.clear()

    def step(self) -> bool:
        """One look around and one slice of reading; False where there was nothing to do."""
        now = time.monotonic()
        if now >= self._scan_at:
            self._take(places.find(self.root))
            self._look_again(now)
            self._make_room(now)
            self._scanned_at = time.monotonic()
            self._scan_at = self._scanned_at + max(SCAN_S, 10 * (self._scanned_at - now))
        due = [watched for watched in self.runs() if watched.is_due(now)]
        if not due:
            return False
        is_left = self._read(max(due, key=lambda watched: watched.looked_at))
        return is_left or len(due) > 1

    def _take(self, found: Found) -> None:
        with self._lock:
            known = self._runs
            self._runs = {name: known.get(name) or Watched(p) for name, p in found.places.items()}
            is_new = self._runs.keys() != known.keys() or found.is_cut != self.is_cut
            for name, place in found.places.items():
                watched = self._runs[name]
                is_new = is_new or watched.place.problem != place.problem
                watched.place = place
            self.is_cut = found.is_cut
        if is_new or not self.has_looked:
            self.has_looked = True
            self._revision += 1

    def _read(self, watched: Watched) -> bool:
        """A slice of its log; True where more is left."""
        stamp, ledger = watched.place.stamp, self.ledger(watched)
        is_new = ledger.read(most_s=SLICE_S)
        now = watched.read_at = time.monotonic()
        if ledger.is_whole or ledger.problem is not None:
            watched.stamp_read = stamp
        if ledger.is_whole or ledger.problem or (is_new and now - watched.rowed_at > 1.0):
            self._look_over(watched, ledger)
        elif is_new and ledger.share_read - watched.share_read > 0.01:
            self._set_row(watched, watched.seen, watched.log_problem, ledger.share_read)
        return not ledger.is_whole and ledger.problem is None

    def _look_over(self, watched: Watched, ledger: Ledger) -> None:
        watched.rowed_at = time.monotonic()
        seen, problem = watched.seen, ledger.problem
        try:
            seen = overview(ledger)
        except (PiscesError, OSError) as error:
            problem = str(error)
        problem = None if problem is None else hidden(problem, self.root)
        self._set_row(watched, seen, problem, ledger.share_read)

    def _set_row(
        self, watched: Watched, seen: Overview | None, problem: str | None, share: float
    ) -> None:
        before = (_told(watched.seen), watched.log_problem, watched.share_read)
        watched.seen, watched.log_problem, watched.share_read = seen, problem, share
        if before != (_told(seen), problem, share):
            self._revision += 1

    def _look_again(self, now: float) -> None:
        """A run that nobody writes any more, or that has a summary now, says so without a line."""
        for watched in self.runs():
            seen = watched.seen
            is_open = seen is not None and (
                seen.state in ("running", "empty", "unbegun") or not seen.is_target_known
            )
            if is_open and watched.ledger is not None and now - watched.rowed_at >= ROW_S:
                self._look_over(watched, watched.ledger)

    def _make_room(self, now: float) -> None:
        held = [watched for watched in self.runs() if watched.ledger is not None]
        room = self.room_bytes - sum(watched.place.stamp.num_bytes for watched in held)
        for watched in sorted(held, key=lambda watched: watched.looked_at):
            if room >= 0 or watched.is_looked_at(now):
                return
            if not watched.is_due(now):
                watched.ledger = None
                room += watched.place.stamp.num_bytes


def _told(seen: Overview | None) -> Mapping[str, Any] | None:
    """What the list would say: the time since the last line does not make a new answer."""
    if seen is None:
        return None
    return {name: getattr(seen, name) for name in seen.__slots__ if name != "silent_s"}
