"""Where clients are served: who is there, who was given what, and what came back.

It lives in the network's thread and knows neither gRPC nor the loop's clock: lines (connections)
come and go, say things and are told things; what the loop is to hear is put into `tell`. Words
travel at least once in both directions, and each task comes to one end here.

A task is *given* until a result or a failure of it came in whole, or it was called off. A result
that came is *unsafe* until the loop has written it down; only then its client may forget it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pisces.clients.checks import Limits, wrong_size
from pisces.execute.inbox import Landed
from pisces.execute.network.messages import (
    PROTOCOL,
    Acknowledged,
    CalledOff,
    Encoding,
    Failure,
    Hello,
    Over,
    Pull,
    Result,
    Welcome,
)
from pisces.execute.network.packing import Flat, digest
from pisces.execute.network.server.endings import TurnedAwayError
from pisces.execute.network.server.members import Line, Member, Timer
from pisces.execute.network.server.terms import Terms
from pisces.execute.roster import NumberError, Roster
from pisces.types import Event, Failed, Joined, Layout, Left, Task

log = logging.getLogger("pisces")

WORTH_A_WORD = (5, 50, 500)  # failures of one client in a row
AT = 0.0  # the loop's thread says when


@dataclass(slots=True)
class Desk:
    """Everything about the clients of one run."""

    roster: Roster
    layout: Layout
    terms: Terms
    tell: Callable[[Event | Landed], None]
    later: Callable[[float, Callable[[], None]], Timer]
    limits: Limits = field(default_factory=Limits)
    settings: str = ""
    members: dict[int, Member] = field(default_factory=dict)
    given: dict[int, Task] = field(default_factory=dict)
    pulled: set[int] = field(default_factory=set)  # of those given
    unsafe: dict[int, int] = field(default_factory=dict)  # task -> client
    over: Over | None = None
    digest: int = field(init=False)  # of the layout

    def __post_init__(self) -> None:
        self.digest = digest(self.layout)

    # --- what clients say -------------------------------------------------------------------------

    def enter(self, name: str, hello: Hello, line: Line) -> Member:
        """Take a client in, or back."""
        member = self._member(name, hello)
        self._seat(member, line)
        member.num_examples = hello.num_examples
        same_run = hello.run == self.roster.run
        holds, trains = (hello.holds, hello.trains) if same_run else ((), ())
        self._greet(member, line, holds)
        for task in trains:
            self._go_on(member, line, task)
        self._remind(member, line, {*holds, *trains})
        if member.overdue not in trains:
            member.overdue = None
            self._appear(member)
        if self.over is not None:
            line.say(self.over)
        return member

    def _member(self, name: str, hello: Hello) -> Member:
        if hello.protocol != PROTOCOL:
            raise TurnedAwayError(f"it speaks version {hello.protocol}, and this server {PROTOCOL}")
        if problem := wrong_size(hello.num_examples, self.limits):
            raise TurnedAwayError(problem)
        try:
            number = self.roster.number_of(name, hello.wished)
        except NumberError as error:
            raise TurnedAwayError(str(error)) from error
        return self.members.setdefault(number, Member(number))

    def _seat(self, member: Member, line: Line) -> None:
        if member.line is not None:
            member.line.replace("a newer connection has this name")
        if member.leaving is not None:
            member.leaving.cancel()
        member.line, member.leaving, member.said_bye = line, None, False

    def _greet(self, member: Member, line: Line, holds: Iterable[int]) -> None:
        held = dict.fromkeys(holds)
        wanted = tuple(task for task in held if self._runs(task, member))
        settled = tuple(t for t in held if t not in wanted and self.unsafe.get(t) != member.number)
        for task in wanted:
            line.expect(task)
        line.say(
            Welcome(
                number=member.number,
                run=self.roster.run,
                layout=self.layout,
                settings=self.settings,
                beat_s=self.terms.beat_s,
                wanted=wanted,
                settled=settled,
                encoding=self._encoding,
                zstd=self.terms.zstd and line.zstd,
            )
        )

    @property
    def _encoding(self) -> Encoding:
        return "float16" if self.terms.encoding == "float16" else self.layout.dtype

    def _go_on(self, member: Member, line: Line, task: int) -> None:
        line.expect(task)
        if not self._runs(task, member):
            line.say(CalledOff(task, "it ended without you"))
        elif task in self.pulled and line.pulls:
            line.say(Pull(task))

    def _remind(self, member: Member, line: Line, known: set[int]) -> None:
        """Of tasks it never heard of, or has forgotten."""
        for task in list(self.given.values()):
            if task.client == member.number and task.id not in known:
                line.order(task)

    def leave(self, member: Member, line: Line) -> None:
        """A connection ended; its client may be back soon."""
        if member.line is line:
            member.line = None
            self._wait_for(member)

    def _wait_for(self, member: Member) -> None:
        member.leaving = self.later(
            self.terms.patience_s, lambda: self._vanish(member, "did not come back")
        )

    def bye(self, member: Member, line: Line) -> None:
        """A client goes, and said so; what an older line says of that does not count."""
        if member.line is line:
            member.said_bye = True
            self._vanish(member, "said goodbye")

    def wants(self, member: Member, task: int) -> Task | None:
        """The task, if a result of it is wanted."""
        return self.given[task] if self._runs(task, member) else None

    def decline(self, member: Member, task: int) -> None:
        """A result of it is not wanted; its client may forget it, unless it is on its way."""
        self._heard(member, task)
        if self.unsafe.get(task) != member.number and member.line is not None:
            member.line.say(Acknowledged(task))

    def reject(self, member: Member, task: int, why: str) -> None:
        """A result of it cannot be used: the task failed, and its client is to forget it."""
        self.fail(member, Failure(task, f"its result cannot be used: {why}"))
        self.decline(member, task)

    def never_sent(self, member: Member, task: int) -> None:
        """It was called off before its client could hear of it."""
        self._heard(member, task)

    def arrive(self, member: Member, result: Result, flat: Flat) -> None:
        """A whole result; a second one of the same task is not wanted."""
        if self.wants(member, result.task) is None:
            self.decline(member, result.task)
            return
        self._take_back(result.task)
        member.num_failed = 0
        self.unsafe[result.task] = member.number
        self.tell(Landed(result.task, member.number, flat, result.report))

    def fail(self, member: Member, failure: Failure) -> bool:
        """A task cannot be done, or was stopped; was somebody still waiting for it?"""
        if not self._runs(failure.task, member):
            self._heard(member, failure.task)
            return False
        self._take_back(failure.task)
        member.num_failed += 1
        if member.num_failed in WORTH_A_WORD:
            told = (member.number, member.num_failed, failure.reason)
            log.warning("client %d: %d tasks failed in a row, the last by: %s", *told)
        self.tell(Failed(AT, member.number, failure.reason or "failed", failure.task))
        return True

    def _heard(self, member: Member, task: int) -> None:
        """Word of a task that ended: if it was overdue, its client is free again."""
        if member.overdue == task:
            member.overdue = None
            self._appear(member)

    def _runs(self, task: int, member: Member) -> bool:
        return task in self.given and self.given[task].client == member.number

    def _take_back(self, task: int) -> Task | None:
        self.pulled.discard(task)
        return self.given.pop(task, None)

    def _appear(self, member: Member) -> None:
        """Tell that it is there, if it is and that is news."""
        is_known = member.is_present and member.told == member.num_examples
        if is_known or member.line is None or member.said_bye:
            return
        member.is_present, member.told = True, member.num_examples
        member.num_joins += 1
        self.tell(Joined(AT, member.number, member.num_examples))

    def _vanish(self, member: Member, reason: str) -> None:
        """Tell that it is gone; what it was given ends when the loop has heard so."""
        member.leaving = None
        if member.is_present:
            member.is_present = False
            self.tell(Left(AT, member.number, reason))

    # --- what the loop says -----------------------------------------------------------------------

    def give(self, task: Task) -> None:
        """A task; if its client is not connected, it hears of it when it is back."""
        self.given[task.id] = task
        if (line := self._line(task.client)) is not None:
            line.order(task)

    def call_off(self, task: int, reason: str) -> None:
        """Nobody waits for this task any more."""
        given = self._take_back(task)
        if given is not None and (line := self._line(given.client)) is not None:
            line.say(CalledOff(task, reason))

    def expire(self, task: int, client: int, num_joins: int) -> None:
        """It took too long; its client is not there until it is heard of.

        Unless it came anew while the loop, having heard of so many joins, was saying so.
        """
        member = self.members.setdefault(client, Member(client))
        if member.num_joins == num_joins:
            member.overdue, member.is_present = task, False
        if task in self.given:
            self.call_off(task, "its deadline passed")
        else:  # word of it is on its way to the loop, which does not want it any more
            self._heard(member, task)

    def pull(self, task: int) -> None:
        """Ask for what there is, if its client can; one that is away, when it is back and at it."""
        if task in self.given:
            self.pulled.add(task)
            line = self._line(self.given[task].client)
            if line is not None and line.pulls:
                line.say(Pull(task))

    def settle(self, tasks: Iterable[int]) -> None:
        """These results are safe, or not wanted."""
        for task in tasks:
            client = self.unsafe.pop(task, None)
            if client is not None and (line := self._line(client)) is not None:
                line.say(Acknowledged(task))

    def take_over(self, given: Iterable[Task], present: Iterable[int]) -> None:
        """Go on for a server that ended; whoever was there has time to come back."""
        self.given |= {task.id: task for task in given}
        for number in present:
            self.members[number] = Member(number, is_present=True)
            self._wait_for(self.members[number])

    def end(self, over: Over) -> None:
        """Tell everybody, also those who come now."""
        self.over = over
        for member in self.members.values():
            if member.line is not None:
                member.line.say(over)

    def _line(self, client: int) -> Line | None:
        member = self.members.get(client)
        return None if member is None else member.line
