"""The server's desk with lines that are only remembered, and a loop that can be late."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from runs import START, task

from pisces.execute.base import Handover
from pisces.execute.network.messages import (
    Acknowledged,
    CalledOff,
    Content,
    Failure,
    FromServer,
    Hello,
    Order,
    Over,
    Result,
    Welcome,
)
from pisces.execute.network.server import executor
from pisces.execute.network.server.desk import Desk
from pisces.execute.network.server.door import Open
from pisces.execute.network.server.endings import TurnedAwayError
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.server.members import Member
from pisces.execute.network.server.terms import Terms
from pisces.execute.roster import Roster
from pisces.types import Arrived, Plan, Report, Task

FLAT = np.zeros(4, np.float32)


@dataclass(eq=False)
class FakeLine:
    """Remembers what it was told; an order is skipped like a session skips it."""

    desk: Desk | None = None
    member: Member | None = None
    pulls: bool = True
    zstd: bool = False
    said: list[FromServer | Task] = field(default_factory=list)
    expected: set[int] = field(default_factory=set)
    replaced: str | None = None

    def expect(self, task: int) -> None:
        self.expected.add(task)

    def say(self, message: FromServer) -> None:
        self.said.append(message)

    def order(self, task: Task) -> None:
        self.expect(task.id)
        self.said.append(task)

    def replace(self, reason: str) -> None:
        self.replaced = reason

    def take(self) -> list[FromServer | Order]:
        """What goes over the wire now."""
        taken: list[FromServer | Order] = []
        while self.said:
            words = self.said.pop(0)
            if not isinstance(words, Task):
                taken.append(words)
            elif self.desk is not None and self.desk.given.get(words.id) is not words:
                assert self.member is not None
                self.desk.never_sent(self.member, words.id)
            else:
                taken.append(Order(words.id, words.version, Plan(), 0))
        return taken


@dataclass
class Timer:
    at: float
    action: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Timers:
    """Time that passes when it is told to."""

    now: float = 0.0
    waiting: list[Timer] = field(default_factory=list)

    def later(self, delay_s: float, action: Callable[[], None]) -> Timer:
        self.waiting.append(Timer(self.now + delay_s, action))
        return self.waiting[-1]

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.waiting if timer.at <= self.now]
        self.waiting = [timer for timer in self.waiting if timer.at > self.now]
        for timer in due:
            if not timer.is_cancelled:
                timer.action()


def desk(roster: Roster | None = None, **terms: Any) -> tuple[Desk, list[Any], Timers]:
    """A desk, what it tells, and its timers."""
    told: list[Any] = []
    timers = Timers()
    made = Desk(
        roster=roster or Roster(),
        layout=START.layout,
        terms=Terms(**{"patience_s": 60.0, **terms}),
        tell=told.append,
        later=timers.later,
    )
    return made, told, timers


def result(number: int) -> Result:
    return Result(number, Report(10), Content("float32", 16), 0)


# --- a loop, and clients, for the machine ---------------------------------------------------------


class FakeService(Timers):
    """The network's thread, which hears what is posted when it is told to."""

    port = 0

    def __init__(self, make_desk: Callable[[Any], Desk], _door: Any, _listen: str) -> None:
        super().__init__()
        self.desk = make_desk(self)
        self.posted: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def post(self, *actions: Callable[[], None]) -> None:
        self.posted += actions

    def do_all(self) -> None:
        posted, self.posted = self.posted, []
        for action in posted:
            action()


class Loop:
    """The executor itself, over a network that is only remembered, and who uses it."""

    def __init__(self, roster: Roster, left: Handover | None = None) -> None:
        with patch.object(executor, "Service", FakeService):
            terms = Terms(patience_s=60.0)
            self.executor = NetworkExecutor("-:0", START.layout, Open(), roster=roster, terms=terms)
        self.service = cast(FakeService, self.executor._service)
        self.unsafe: list[int] = []  # heard of, not written down
        self.executor.take_over(left or Handover(0.0))
        self.service.do_all()

    @property
    def desk(self) -> Desk:
        return self.executor._desk

    @property
    def present(self) -> set[int]:
        return self.executor._present

    @property
    def running(self) -> dict[int, int]:
        return {task.id: task.client for task in self.executor._running.values()}

    @property
    def is_quiet(self) -> bool:
        """Is nothing under way?"""
        return not (self.executor._inbox or self.executor._unsaid or self.service.posted)

    def hear(self) -> list[int]:
        """Which tasks ended?"""
        events = self.executor.wait(self.executor._elapsed())
        self.unsafe += [event.task_id for event in events if isinstance(event, Arrived)]
        ended = (getattr(event, "task_id", None) for event in events)
        return [number for number in ended if number is not None]

    def expire(self, number: int) -> None:
        """Its time is up when the loop waits next."""
        heapq.heappush(self.executor._due, (0.0, number))

    def acknowledge(self) -> None:
        self.unsafe = []
        self.executor.acknowledge()

    def left(self, owners: dict[int, int]) -> Handover:
        """What the next server knows: as if what was not written down had never been heard."""
        running = {**self.running, **{number: owners[number] for number in self.unsafe}}
        tasks = tuple((task(number, client), 0.0) for number, client in running.items())
        return Handover(0.0, tasks, tuple(sorted({*self.present, *running.values()})))


@dataclass(eq=False)
class Honest:
    """A client as it should be: does what it is told, and keeps results until they are safe."""

    name: str
    run: str = ""
    line: FakeLine | None = None
    old: FakeLine | None = None  # the one before
    late: list[int] = field(default_factory=list)  # results under way on it
    member: Member | None = None
    at: list[int] = field(default_factory=list)  # tasks
    held: list[int] = field(default_factory=list)
    to_send: list[int] = field(default_factory=list)
    told_off: list[int] = field(default_factory=list)
    forgot: list[int] = field(default_factory=list)
    is_over: bool = False

    def connect(self, desk: Desk) -> None:
        line, self.old, self.late = FakeLine(desk), self.line, [*self.to_send]
        hello = Hello(10, self.name, run=self.run, holds=(*self.held,), trains=(*self.at,))
        try:
            line.member = self.member = desk.enter(self.name, hello, line)
        except TurnedAwayError as error:  # none of what is played here is refused
            raise AssertionError from error
        self.line, self.to_send, self.told_off = line, [], []

    def listen(self) -> None:
        assert self.line is not None
        for said in self.line.take():
            match said:
                case Welcome():
                    self.run = said.run
                    self.to_send = [*said.wanted]
                    for number in said.settled:
                        self._forget(number)
                case Order() if said.task not in (*self.at, *self.held):
                    self.at.append(said.task)
                case Acknowledged():
                    self._forget(said.task)
                case CalledOff():
                    self.told_off.append(said.task)
                case Over():
                    self.is_over = True

    def _forget(self, number: int) -> None:
        if number in self.held:
            self.held.remove(number)
            self.forgot.append(number)
        if number in self.to_send:
            self.to_send.remove(number)

    def stop(self, desk: Desk) -> None:
        """What it was told to; it says so."""
        assert self.member is not None
        while self.told_off:
            number = self.told_off.pop()
            if number in self.at:
                self.at.remove(number)
            self._forget(number)
            desk.fail(self.member, Failure(number, "called off"))

    def finish(self) -> None:
        if self.at:
            number = self.at.pop(0)
            self.held.append(number)
            self.to_send.append(number)

    def send(self, desk: Desk) -> None:
        assert self.member is not None
        while self.to_send:
            desk.arrive(self.member, result(self.to_send.pop(0)), FLAT)
