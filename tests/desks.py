"""The server's desk with lines that are only remembered, a loop that can be late, and laws.

What the loop hears goes through the executor's own rules, of which this is a copy in few lines: the
test of the executor itself is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from runs import START, task

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
from pisces.execute.network.server.desk import Desk, Given, Landed, Member, RefusedError
from pisces.execute.network.server.roster import Roster
from pisces.execute.network.server.terms import Terms
from pisces.types import Failed, Joined, Left, Plan, Report

FLAT = np.zeros(4, np.float32)


@dataclass(eq=False)
class FakeLine:
    """Remembers what it was told; an order is skipped like a session skips it."""

    desk: Desk | None = None
    member: Member | None = None
    pulls: bool = True
    zstd: bool = False
    said: list[FromServer | Given] = field(default_factory=list)
    expected: set[int] = field(default_factory=set)
    replaced: str | None = None

    def expect(self, task: int) -> None:
        self.expected.add(task)

    def say(self, message: FromServer) -> None:
        self.said.append(message)

    def order(self, given: Given) -> None:
        self.expect(given.task.id)
        self.said.append(given)

    def replace(self, reason: str) -> None:
        self.replaced = reason

    def take(self) -> list[FromServer | Order]:
        """What goes over the wire now."""
        taken: list[FromServer | Order] = []
        while self.said:
            words = self.said.pop(0)
            if not isinstance(words, Given):
                taken.append(words)
            elif self.desk is not None and self.desk.given.get(words.task.id) is not words:
                assert self.member is not None
                self.desk.fail(self.member, Failure(words.task.id, "it was never sent"))
            else:
                taken.append(Order(words.task.id, words.task.version, Plan(), 0))
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


def given(number: int, client: int) -> Given:
    return Given(task(number, client), None)


def result(number: int) -> Result:
    return Result(number, Report(10), Content("float32", 16))


# --- a loop, and clients, for the machine ---------------------------------------------------------


@dataclass
class Loop:
    """What the loop knows; it hears and says things when it gets to it."""

    num_tasks: int = 0
    present: set[int] = field(default_factory=set)
    running: dict[int, int] = field(default_factory=dict)  # task -> client
    owners: dict[int, int] = field(default_factory=dict)  # of all tasks there ever were
    num_joins: Counter[int] = field(default_factory=Counter)
    unsafe: list[int] = field(default_factory=list)  # heard of, not written down
    settled: set[int] = field(default_factory=set)  # their end is written down
    ends: Counter[int] = field(default_factory=Counter)
    unsaid: list[Callable[[Desk], None]] = field(default_factory=list)

    def hear(self, said: Any) -> None:
        match said:
            case Landed():
                if said.task in self.running:
                    self._end(said.task)
                    self.unsafe.append(said.task)
                else:
                    self.unsaid.append(lambda desk: desk.settle([said.task]))
            case Joined():
                self.present.add(said.client)
                self.num_joins[said.client] += 1
            case Failed():
                if said.task_id in self.running:
                    self._end(said.task_id)
            case Left() if said.client in self.present:
                self.leave(said.client)

    def leave(self, client: int) -> None:
        self.present.discard(client)
        for number in [n for n, c in self.running.items() if c == client]:
            self._end(number)
            self.unsaid.append(lambda desk, n=number: desk.call_off(n, "gone"))  # type: ignore[misc]

    def submit(self, client: int) -> None:
        number, self.num_tasks = self.num_tasks, self.num_tasks + 1
        self.running[number] = self.owners[number] = client
        self.unsaid.append(lambda desk: desk.give(given(number, client)))

    def cancel(self, number: int) -> None:
        self._end(number)
        self.unsaid.append(lambda desk: desk.call_off(number, "called off"))

    def expire(self, number: int) -> None:
        client, num = self.running[number], self.num_joins[self.running[number]]
        self.unsaid.append(lambda desk: desk.expire(number, client, num))
        self.leave(client)

    def acknowledge(self) -> None:
        safe, self.unsafe = self.unsafe, []
        self.settled.update(safe)
        self.unsaid.append(lambda desk: desk.settle(safe))

    def _end(self, number: int) -> None:
        del self.running[number]
        self.ends[number] += 1
        assert self.ends[number] == 1


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
        except RefusedError as error:  # none of what is played here is refused
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
