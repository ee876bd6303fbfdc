"""Trackers that harm nobody: each in a thread of its own, behind a queue with an end.

The run never waits for them. One that fails is named once, with the reason, and left alone; so is
one that has not finished a while after the run has. What a slow one cannot keep up with is
thinned, but for evaluations and the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from pisces.quantities import discreet
from pisces.record.lines import Line, line
from pisces.record.trackers.base import Point, Subject, Tracker, name_of
from pisces.record.trackers.meter import Meter
from pisces.types import (
    Aggregated,
    Distrusted,
    Dropped,
    Entry,
    Evaluated,
    Failed,
    Left,
    Started,
    Update,
)

log = logging.getLogger("pisces")

MOST_WAITING = 10_000  # points that are no evaluations
PAUSE_S = 1.0  # from one lot of points to the next: many at once cost least
MOST_WORDS = 500  # of an error: some have a whole page
PATIENCE_S = 30.0  # at the end, for all of them together
SILENCE_S = 3.0  # of that, before whoever waits is told
COUNTED = (Aggregated, Distrusted, Dropped, Evaluated, Failed, Left, Started, Update)


class Guarded:
    """One tracker, and what waits for it; `turn` guards it, and is notified of every change."""

    def __init__(
        self, tracker: Tracker, turn: threading.Condition, most_waiting: int = MOST_WAITING
    ) -> None:
        self.name = name_of(tracker)
        self.is_done = True  # nothing was begun
        self._tracker, self._turn, self._most_waiting = tracker, turn, most_waiting
        self._waiting: list[Point] = []
        # Of points that are no evaluations, since it last took some: how many there were, how many
        # of them wait, and that one in so many does.
        self._num_spare, self._num_waiting, self._one_in = 0, 0, 1
        self._is_thinned = self._is_given_up = False
        self._over = threading.Event()
        self._summary: Mapping[str, Any] | None = None

    def begin(self, run: Subject, past: Sequence[Point] = ()) -> None:
        """Start its thread; the `past` is told first."""
        self.is_done = False
        name = f"pisces {self.name}"
        threading.Thread(target=self._work, args=(run, past), name=name, daemon=True).start()

    def track(self, point: Point) -> None:
        """Hand over a point; never waits."""
        with self._turn:
            if self.is_done:
                return
            if point.is_evaluation:
                self._waiting.append(point)
            else:
                self._add_spare(point)
            is_full = self._one_in > 1
            self._turn.notify_all()
        if is_full and not self._is_thinned:
            self._is_thinned = True
            log.warning(
                "tracker %s cannot keep up: some points are left out, but no evaluations", self.name
            )

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Nothing more will come; only the first word counts."""
        with self._turn:
            if not self._over.is_set():
                self._summary = summary
                self._over.set()
            self._turn.notify_all()

    def give_up(self) -> None:
        """Wait no more for it, aloud."""
        with self._turn:
            if self.is_done:
                return
            self._is_given_up = True
        log.warning(
            "tracker %s has not finished in time and is left alone: what it has not written yet "
            "may be lost",
            self.name,
        )

    def _add_spare(self, point: Point) -> None:
        """Where there is no more room, half of those that wait go, and half of those to come."""
        if self._num_spare % self._one_in == 0:
            self._waiting.append(point)
            self._num_waiting += 1
        self._num_spare += 1
        if self._num_waiting > self._most_waiting:
            kept = {p.number for p in [p for p in self._waiting if not p.is_evaluation][::2]}
            self._waiting = [p for p in self._waiting if p.is_evaluation or p.number in kept]
            self._num_waiting, self._one_in = len(kept), 2 * self._one_in

    # --- the thread's side ------------------------------------------------------------------------

    def _work(self, run: Subject, past: Sequence[Point]) -> None:
        try:
            self._tracker.begin(run)
            if past:
                self._tracker.track(own(past))
            while points := self._next():
                self._tracker.track(own(points))
                self._over.wait(PAUSE_S)
            self._tracker.end(deepcopy(self._summary))
        except BaseException as error:  # whatever it is: it is no reason to end the run
            self._fail(error)
        finally:
            with self._turn:
                self.is_done, self._waiting = True, []
                self._turn.notify_all()

    def _next(self) -> list[Point]:
        """All that wait; none once there is no more to come."""
        with self._turn:
            self._turn.wait_for(lambda: self._waiting or self._over.is_set())
            points, self._waiting = self._waiting, []
            self._num_spare, self._num_waiting, self._one_in = 0, 0, 1
            return points

    def _fail(self, error: BaseException) -> None:
        if not self._is_given_up:
            log.warning(
                "tracker %s failed and is left alone; the run goes on: %s",
                *(self.name, _in_words(error)),
            )
            log.debug("tracker %s", self.name, exc_info=error)


def own(points: Sequence[Point]) -> list[Point]:
    """The same, for one tracker to do with as it likes: others are told them too."""
    return [replace(point, values=dict(point.values)) for point in points]


def _in_words(error: BaseException) -> str:
    """In one line, without passwords or what a terminal would obey: a server may have put it."""
    try:
        text = discreet(str(error))[:MOST_WORDS]
    except BaseException:  # one of somebody else's making
        text = ""
    why = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f"{type(error).__name__}: {why}" if why else type(error).__name__


class Tracked:
    """A recorder that tells any number of trackers."""

    def __init__(self, trackers: Sequence[Tracker] = (), patience_s: float = PATIENCE_S) -> None:
        self._turn = threading.Condition()
        self._guarded = [Guarded(tracker, self._turn) for tracker in trackers]
        self._patience_s = patience_s
        self._meter = Meter()
        self._past: list[Point] = []
        self._is_begun = False

    def __bool__(self) -> bool:
        return bool(self._guarded)

    def begin(self, run: Subject) -> None:
        """From now on trackers hear of the run; first of all that was recorded before."""
        self._is_begun = True
        for guarded in self._guarded:
            guarded.begin(run, self._past)
        self._past = []

    def record(self, entry: Entry) -> None:
        """Tell of what happens, if it matters to trackers."""
        if self._guarded and isinstance(entry, COUNTED):
            self.add(line(entry))

    def add(self, line: Line) -> None:
        """The same with a line, which may be of a log."""
        point = self._meter.add(line) if self._guarded else None
        if point is None:
            return
        if not self._is_begun:
            self._past.append(point)
            return
        for guarded in self._guarded:
            guarded.track(point)

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run came to this."""
        for guarded in self._guarded:
            guarded.end(summary)

    def close(self) -> None:
        """Let them finish, for a while; a run that nobody ended broke off."""
        for guarded in self._guarded:
            guarded.end(None)
        with self._turn:
            soon = min(SILENCE_S, self._patience_s)
            if not self._turn.wait_for(self._are_done, soon) and soon < self._patience_s:
                late = ", ".join(g.name for g in self._guarded if not g.is_done)
                log.warning("waiting for trackers: %s (%g s at most)", late, self._patience_s)
                self._turn.wait_for(self._are_done, self._patience_s - soon)
        for guarded in self._guarded:
            guarded.give_up()

    def _are_done(self) -> bool:
        return all(guarded.is_done for guarded in self._guarded)
