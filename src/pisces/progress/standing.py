"""Where runs stand, from the lines they record, and how long they still take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pisces.record.lines import Line
from pisces.stop import Stop, best, meets
from pisces.tables import StopAt
from pisces.types import Aggregated, Entry, Evaluated, Failed, Left, Started, Stopped, Update

Clock = Callable[[], float]
LEAST_S = 1.0  # before so many seconds nobody can tell how long it takes


@dataclass(slots=True)
class Standing:
    """Where a run stands, line by line; `group` is what it belongs to, where names repeat."""

    protocol: str
    seed: int
    stop: StopAt | Stop
    group: str = ""
    now: Clock = time.monotonic
    at: float = 0.0
    version: int = 0
    num_running: int = 0
    num_before: int = 0  # running while the clock last moved
    num_updates: int = 0
    value: float | None = None
    best: float | None = None
    reached_at: float | None = None  # when the target was first met
    reason: str | None = None
    begun_at: float | None = None  # by the clock on the wall
    ended_at: float | None = None
    share_before: float = 0.0  # what was done of it before anybody looked: it goes on

    def add(self, line: Line) -> None:
        """Note what a line changes; kinds nobody knows only move the clock."""
        self._move(line["at"])
        match line["kind"]:
            case "started":
                self.num_running += 1
            case "arrived":
                self.num_running -= 1
                self.num_updates += 1
            case "failed" | "left":
                self.num_running -= "task" in line
            case "aggregated":
                self.version = line["version"]
            case "evaluated":
                self._judge(line["at"], line.get(self.stop.metric))
            case "stopped":
                self._end(line["reason"])

    def note(self, entry: Entry) -> None:
        """The same of a live entry: nobody pays for a line that only one reads."""
        self._move(entry.arrived_at if isinstance(entry, Update) else entry.at)
        match entry:
            case Started():
                self.num_running += 1
            case Update():
                self.num_running -= 1
                self.num_updates += 1
            case Failed() | Left():
                self.num_running -= entry.task_id is not None
            case Aggregated():
                self.version = entry.version
            case Evaluated():
                self._judge(entry.at, entry.metrics.get(self.stop.metric))
            case Stopped():
                self._end(entry.reason)

    def recall(self, line: Line) -> None:
        """Note what was recorded before the run went on, which tells nothing of its pace now."""
        self.add(line)
        self.reason = self.begun_at = self.ended_at = None
        self.share_before = self.share

    def begin_anew(self) -> None:
        """Forget all: its record begins anew."""
        fresh = Standing(self.protocol, self.seed, self.stop, self.group, self.now)
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def _move(self, at: float) -> None:
        if self.begun_at is None:
            self.begun_at = self.now()
        if at > self.at:  # an evaluation may be told late
            self.at, self.num_before = at, self.num_running

    def _judge(self, at: float, value: float | None) -> None:
        known = value is not None and math.isfinite(value)
        self.value = value if known else None
        if value is None or not known:
            return
        metric, target = self.stop.metric, self.stop.target
        self.best = value if self.best is None else best((self.best, value), metric)
        if self.reached_at is None and target is not None and meets(value, target, metric):
            self.reached_at = at

    def _end(self, reason: str) -> None:
        self.reason, self.ended_at = reason, self.now()

    @property
    def name(self) -> str:
        """What to call it where people read."""
        name = f"{self.protocol}, seed {self.seed}"
        return f"{self.group}, {name}" if self.group else name

    @property
    def has_begun(self) -> bool:
        """Has anything been recorded?"""
        return self.at > 0 or self.num_running > 0 or self.reason is not None

    @property
    def num_at_work(self) -> int:
        """Tasks under way until now: in an instant one has arrived, the next not yet started."""
        is_moving = self.at > 0 and self.reason is None
        return self.num_before if is_moving else self.num_running

    @property
    def share(self) -> float:
        """How far it is, or came, to the nearest limit; 0 where only a target would end it."""
        if self.reason not in (None, "interrupted"):
            return 1.0
        limits = (
            (self.at, self.stop.time_s),
            (self.version, self.stop.versions),
            (self.num_updates, self.stop.updates),
        )
        return min(1.0, max((done / limit for done, limit in limits if limit), default=0.0))

    @property
    def may_end_early(self) -> bool:
        """May it be over before it comes to its limits?"""
        waits = self.stop.target is not None or self.stop.patience is not None
        return self.reason is None and waits

    @property
    def elapsed_s(self) -> float:
        """Seconds on the wall since it began, or went on."""
        if self.begun_at is None:
            return 0.0
        return (self.now() if self.ended_at is None else self.ended_at) - self.begun_at

    @property
    def left_s(self) -> float | None:
        """Seconds on the wall to its limits, at its pace so far; None with nothing to go by."""
        share, gone_s = self.share, self.elapsed_s
        if self.reason is not None:
            return 0.0
        gained = share - self.share_before
        return gone_s * (1 - share) / gained if gone_s >= LEAST_S and gained > 0 else None


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs that belong together, with about how many seconds each of them takes."""

    name: str
    runs: Sequence[Standing]
    run_s: float = 1.0

    @property
    def num_done(self) -> int:
        """How many are over."""
        return sum(run.reason is not None for run in self.runs)

    @property
    def under_way(self) -> list[Standing]:
        """Those that have begun and are not over, the furthest behind first."""
        begun = [run for run in self.runs if run.reason is None and run.has_begun]
        return sorted(begun, key=lambda run: run.share)

    @property
    def work_s(self) -> float:
        """What there is to do altogether."""
        return self.run_s * len(self.runs)

    @property
    def done_s(self) -> float:
        """What of it is done."""
        return self.run_s * sum(run.share for run in self.runs)


@dataclass(slots=True)
class Whole:
    """All runs of a command together."""

    batches: Sequence[Batch]
    now: Clock = time.monotonic
    began_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_at = self.now()

    @property
    def runs(self) -> list[Standing]:
        """Each of them."""
        return [run for batch in self.batches for run in batch.runs]

    @property
    def num_done(self) -> int:
        """How many are over."""
        return sum(batch.num_done for batch in self.batches)

    @property
    def may_end_early(self) -> bool:
        """May any be over before it comes to its limits?"""
        return any(run.may_end_early for run in self.runs)

    @property
    def elapsed_s(self) -> float:
        """Seconds on the wall since the command began."""
        return self.now() - self.began_at

    @property
    def share(self) -> float:
        """What of the work is done."""
        work_s = sum(batch.work_s for batch in self.batches)
        return sum(batch.done_s for batch in self.batches) / work_s if work_s else 1.0

    @property
    def left_s(self) -> float | None:
        """The time left if it goes on as it went so far; None before there is anything to go by."""
        runs = self.runs
        if len(runs) == 1:
            return runs[0].left_s  # without the time in which it was made ready
        share, gone_s = self.share, self.elapsed_s
        return gone_s * (1 - share) / share if share > 0 and gone_s >= LEAST_S else None
