"""The ledger of one run folder."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

import numpy as np

from pisces.errors import RunError
from pisces.record.follower import FileFollower, mark_of
from pisces.record.lines import Line
from pisces.record.reader import Run, damaged, sampled_log
from pisces.record.sample import KIND
from pisces.record.sound import decode
from pisces.record.writer import CONFIG, EVENTS
from pisces.report.arrays import Floats
from pisces.report.ledger.checks import is_sound
from pisces.report.ledger.names import Names
from pisces.report.ledger.notes import Notes

LINES_AT_ONCE = 200  # parsed in one call, which costs half of what as many calls do
NO_DECISIONS = (
    "This log does not say why clients were picked: it was recorded without decisions, "
    "or by an older version."
)
SEEN_KEPT, SEEN_APART_S = 60, 1.0  # moments remembered, to tell how fast a run goes


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the run was at a moment of ours."""

    on_the_wall_at: float
    at: float
    version: int
    num_updates: int


class Ledger:
    """One run folder's log in columns, as far as it was read.

    `revision` grows whenever something new was read, reading began anew or came to a problem, and
    no two ledgers share one; `is_whole` says that all there was at the last look is in,
    `share_read` how much of it; `problem` why nothing more can be read, in words (what was read
    stays); `is_sampled` that the log has the lines of some clients only, so that nothing can be
    counted. Whoever looks from several threads need not care: reading and all questions to it hold
    `lock`.
    """

    _revisions = itertools.count(1)

    def __init__(self, folder: Path, *, clock: Callable[[], float] = monotonic) -> None:
        self.path = Path(folder)
        self.lock = threading.RLock()
        self.revision = 0
        self.clock = clock
        self._begin()

    @classmethod
    def whole(cls, folder: Path) -> Ledger:
        """That of all there is now, or of all up to a problem."""
        ledger = cls(folder)
        ledger.read()
        return ledger

    def _begin(self) -> None:
        """Nothing is read yet."""
        self._look_at_config()
        self.notes = Notes()
        self.names = Names(self.path)
        self.is_whole, self.share_read = False, 0.0
        self.problem: str | None = None
        self.seen: deque[Seen] = deque(maxlen=SEEN_KEPT)
        self.follower = FileFollower(self.path / EVENTS)
        self.is_sampled = False
        self._inode = 0
        self._damaged = b""

    @property
    def is_damaged(self) -> bool:
        """Does a line keep the rest from being read?"""
        return bool(self._damaged) and not self.is_sampled

    def read(self, most_s: float | None = None) -> bool:
        """Take in what was added, for at most so long; True: something new.

        A log that was cut (by a resume) or replaced (by a new run) is read anew.
        """
        with self.lock:
            before = self.revision
            self._read(None if most_s is None else self.clock() + most_s)
            self._note_seen()
            return self.revision != before

    def _look_at_config(self) -> None:
        """Its mark is of before it is read: what changes in between is read again."""
        self._config, self.run = mark_of(self.path / CONFIG), Run(self.path)

    def _read(self, until_at: float | None) -> None:
        # A run's log is there before its config is, and a resume may write another.
        if mark_of(self.path / CONFIG) != self._config:
            self._look_at_config()
            self._change()
        now = self.follower.look()
        try:
            with self.follower.open() as file:
                self._recover()
                if not self.follower.is_same(file, self._inode) or self._is_mended(file):
                    self._begin()
                    self._change()
                    now = self.follower.look()
                self._inode = now.inode
                self._take(file, until_at)
        except OSError as error:
            self._lose(error)
            return
        self.share_read = min(1.0, self.follower.position / max(1, now.num_bytes))
        if self.is_whole:
            self.share_read = 1.0

    def _lose(self, error: OSError) -> None:
        """The log cannot be read: it is gone, or not there yet, or not ours to read."""
        is_begun = self.follower.position or self._damaged
        if is_begun and isinstance(error, FileNotFoundError):
            self._begin()
            self._change()
        self.is_whole, self.share_read = True, 1.0
        if not isinstance(error, FileNotFoundError):
            self._stumble(f"cannot read {self.path / EVENTS}: {error.strerror or error}")

    def _is_mended(self, file: BinaryIO) -> bool:
        """Does something else stand where the damaged line was?"""
        if not self._damaged:
            return False
        file.seek(self.follower.position)
        return file.read(len(self._damaged)) != self._damaged

    def _take(self, file: BinaryIO, until_at: float | None) -> None:
        """Chunk by chunk, at least one."""
        if self.problem is not None:
            return
        self.is_whole = False
        while lines := self.follower.whole_lines(file):
            if self.follower.position == 0 and _says_sampled(lines[0]):
                self.is_sampled, self._damaged = True, lines[0][:512]
                self._stumble(sampled_log(self.path / EVENTS))
                break
            num = self._take_lines(lines)
            if num:
                self.follower.step(lines[:num])
                self._change()
            if num < len(lines):
                self._stop_at(lines[num], is_last=self.follower.is_last(file, lines[num : num + 1]))
                break
            if until_at is not None and self.clock() >= until_at:
                return
        self.is_whole = True

    def _take_lines(self, lines: list[bytes]) -> int:
        """Take in what is sound; how many lines that were, up to the first that is not."""
        for first in range(0, len(lines), LINES_AT_ONCE):
            batch = lines[first : first + LINES_AT_ONCE]
            found = parsed(batch)
            self.notes.take(found)
            if len(found) < len(batch):
                return first + len(found)
        return len(lines)

    def _stop_at(self, line: bytes, *, is_last: bool) -> None:
        if is_last and not line.endswith(b"}"):
            return  # it is being written, or the run was killed while it was
        self._damaged = line[:512] + b"\n" if len(line) < 512 else line[:512]
        self._stumble(damaged(self.path / EVENTS, self.notes.num_lines + 1, self._damaged))

    def _recover(self) -> None:
        """The log can be opened; only a damaged line stays a problem until it is mended."""
        if self.problem is not None and not self._damaged:
            self.problem = None
            self._change()

    def _stumble(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._change()

    def _change(self) -> None:
        self.revision = next(self._revisions)

    def _note_seen(self) -> None:
        """Remember how far the run is, once all is read that there was when we came."""
        notes, now = self.notes, self.clock()
        if not self.is_whole or (self.seen and now - self.seen[-1].on_the_wall_at < SEEN_APART_S):
            return
        self.seen.append(Seen(now, notes.at, notes.version, notes.counts["arrived"]))

    # --- what is asked often ----------------------------------------------------------------------

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics evaluated so far, in the order in which they turned up."""
        with self.lock:
            return tuple(self.notes.metrics)

    @property
    def has_decisions(self) -> bool:
        """Does the log say why clients were picked?"""
        with self.lock:
            return len(self.notes.picks.decisions) > 0

    @property
    def why_no_decisions(self) -> str | None:
        """Why it does not; None where it does, and where nobody was picked yet."""
        with self.lock:
            return NO_DECISIONS if self.notes.counts["started"] and not self.has_decisions else None

    @property
    def terms(self) -> tuple[str, ...]:
        """What scores are made of, by name, as far as the log says."""
        with self.lock:
            return self.notes.picks.names

    def curve(self, metric: str) -> tuple[Floats, Floats]:
        """Instants and values of a metric, NaN where it was not a number."""
        with self.lock:
            table = self.notes.metrics.get(metric)
            if table is None:
                return np.empty(0), np.empty(0)
            return self.notes.evaluations["at"][table["row"]], table["value"].copy()

    def setting(self, table: str, key: str) -> Any:
        """What the config says there; None where it says nothing or cannot be read."""
        try:
            return self.run.setting(table, key)
        except RunError:
            return None


def _says_sampled(line: bytes) -> bool:
    return b"sampled" in line and (decode(line) or {}).get("kind") == KIND


def parsed(lines: list[bytes]) -> list[Line]:
    """The lines' JSON objects, up to the first that is not what a run writes."""
    # One line may hold two objects, or two lines one: then what stands between lines, a number that
    # no log can foresee, does not stand between objects.
    mark = secrets.randbits(60)
    try:
        found = json.loads(b"[" + (b",%d," % mark).join(lines) + b"]")
    except (ValueError, RecursionError):
        found = []
    objects, marks = found[::2], found[1::2]
    is_apart = len(objects) == len(lines) and marks == [mark] * (len(lines) - 1)
    return list(objects) if is_apart and all(map(is_sound, objects)) else _one_by_one(lines)


def _one_by_one(lines: list[bytes]) -> list[Line]:
    found: list[Line] = []
    for text in lines:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            return found
        if not is_sound(line):
            return found
        found.append(line)
    return found
