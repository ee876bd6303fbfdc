"""One connection, as the server sees it: what is to be said, and what is coming in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial

from pisces.errors import MissingPackageError
from pisces.execute.network.coding import to_client
from pisces.execute.network.messages import (
    Beat,
    Bye,
    Chunk,
    Content,
    Failure,
    FromClient,
    FromServer,
    Hello,
    Order,
    Result,
    WireError,
)
from pisces.execute.network.packing import Flat, Intake, check_chunk, check_length
from pisces.execute.network.server.desk import Desk
from pisces.execute.network.server.endings import DEAF, FLOOD, GONE, Ending
from pisces.execute.network.server.members import Member
from pisces.execute.network.server.rates import Bucket
from pisces.execute.network.server.shelf import LARGE_BYTES, Shelf, flat_of
from pisces.types import Task

MOST_TOLD = 256  # tasks: a client holds a hundred results at most, and has few tasks at once
MOST_UNSAID = 1000  # messages that may wait for a client that does not read
GOODBYE_S = 10.0  # after a Bye: to hear that what it sent is safe


class Session:
    """The server's end of a line; everything of it happens in the network's thread."""

    def __init__(self, desk: Desk, shelf: Shelf, clock: Callable[[], float]) -> None:
        self.pulls = self.zstd = False
        self.member: Member | None = None
        self.heard_at = clock()  # while a result is under way, only its parts count
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.writing: asyncio.Future[None] | None = None  # as long as there is something to say
        self.is_silent = False  # nothing more is said to it
        self._desk, self._shelf, self._clock = desk, shelf, clock
        self._told: dict[int, bool] = {}  # tasks it may send word of; is a result to come?
        self._unsaid: deque[FromServer | Task] = deque()
        self._has_words = asyncio.Event()
        self._has: int | None = None  # the version it was sent last
        self._incoming: Result | None = None
        self._intake: Intake | None = None  # None, too, where the result is not wanted
        self._left = 0  # bytes of it to come
        rate = desk.terms.messages_per_s
        self._rate = Bucket(rate, max(100.0, 10 * rate), clock)

    # --- what is said to it -----------------------------------------------------------------------

    def say(self, message: FromServer) -> None:
        """Send this when it can be sent."""
        self._put(message)

    def order(self, task: Task) -> None:
        """Send this task, with its weights unless they were sent already."""
        self.expect(task.id)
        self._put(task)

    def expect(self, task: int) -> None:
        """It may send word of this task; of those it never does, the oldest are forgotten."""
        self._told[task] = True
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]

    def replace(self, reason: str) -> None:
        """Hang up: somebody else has its place."""
        self.end(Ending(reason, "ABORTED", "replaced"))

    def end(self, ending: Ending) -> None:
        """Hang up."""
        if not self.ending.done():
            self.ending.set_result(ending)

    def _put(self, words: FromServer | Task) -> None:
        if len(self._unsaid) >= MOST_UNSAID:
            self.end(DEAF)
            return
        self._unsaid.append(words)
        self._has_words.set()

    @property
    def has_said_all(self) -> bool:
        """Is nothing waiting to be sent?"""
        return not self._unsaid

    def fall_silent(self) -> None:
        """Say nothing more, but for what is being sent this moment."""
        self.is_silent = True
        self._has_words.set()

    async def last_word(self) -> None:
        """Until what was being sent is: for as long as who does not read keeps the line."""
        if self.writing is not None:
            await asyncio.wait([self.writing])

    def break_off(self) -> None:
        """The line is gone, and with it whatever was being sent."""
        if self.writing is not None:
            self.writing.cancel()

    async def words(self) -> AsyncIterator[bytes]:
        """All that is to be said, as it is to be sent; ends only when it falls silent."""
        while not self.is_silent:
            while self._unsaid:
                words = self._unsaid[0]  # there until it is sent: see has_said_all
                if isinstance(words, Task):
                    async for data in self._ordered(words):
                        yield data
                else:
                    yield to_client(words)
                self._unsaid.popleft()
            if not self.is_silent:
                self._has_words.clear()
                await self._has_words.wait()

    async def _ordered(self, task: Task) -> AsyncIterator[bytes]:
        if self._desk.given.get(task.id) is not task:  # it was called off meanwhile
            self._desk.never_sent(self._who, task.id)
            return
        if self._has == task.version:
            yield to_client(_order(task))
            return
        content, chunks = await self._shelf.packed(task, zstd=self.zstd)
        self._has = None
        yield to_client(_order(task, content))
        for chunk in chunks:
            yield chunk
        self._has = task.version

    # --- what it says -----------------------------------------------------------------------------

    async def hear(self, said: FromClient) -> None:
        """Take in what it said; `WireError` if nobody says that here."""
        if isinstance(said, Chunk):
            await self._add(said.data)
            return
        if not (self._is_due(said) or self._rate.take()):
            self.end(FLOOD)
            return
        if self._incoming is None:
            self.heard_at = self._clock()
        member = self._who
        match said:
            case Beat():
                self.say(Beat())
            case Result():
                await self._announce(said)
            case Failure():
                self._check_told(said.task, is_open=said.task in self._told)
                self._told[said.task] = False
                if self._desk.fail(member, said):
                    self._has = None  # perhaps it lost the weights
            case Bye():
                self._desk.bye(member, self)
                self._desk.later(GOODBYE_S, partial(self.end, GONE))
            case Hello():
                raise WireError("a second Hello")

    def _is_due(self, said: FromClient) -> bool:
        """Is it the one word of a task that was given? How often that comes is not up to it."""
        return isinstance(said, Result | Failure) and self._told.get(said.task, False)

    @property
    def _who(self) -> Member:
        assert self.member is not None
        return self.member

    def _check_told(self, task: int, *, is_open: bool) -> None:
        """Its result may have crossed with its being called off, of which it says so, too."""
        if not is_open:
            raise WireError(f"word of task {task}, which it was not given")

    async def _announce(self, result: Result) -> None:
        self._check_told(result.task, is_open=self._told.get(result.task, False))
        if self._incoming is not None:
            raise WireError("a result in the middle of another")
        check_length(result.content.num_bytes, self._desk.layout.size)
        self._incoming = result
        self._left = result.content.num_bytes - len(result.content.data)
        self._intake = self._intake_of(result)
        if self._left == 0:
            await self._finish()

    def _intake_of(self, result: Result) -> Intake | None:
        """Where to put it; None: what follows is passed over."""
        if self._desk.wants(self._who, result.task) is None:
            self._desk.decline(self._who, result.task)
            return None
        layout = self._desk.layout
        try:
            if result.layout != self._desk.digest:
                raise WireError("weights in another layout")
            return Intake(result.content, layout.size, wanted=layout.dtype)
        except WireError as error:
            self._desk.reject(self._who, result.task, str(error))
            return None

    async def _add(self, data: bytes) -> None:
        if self._incoming is None:
            raise WireError("weights that were not announced")
        check_chunk(data, self._left)
        self._left -= len(data)
        self.heard_at = self._clock()
        if self._intake is not None:
            self._intake.add(data)
        if self._left == 0:
            await self._finish()

    async def _finish(self) -> None:
        result, intake = self._incoming, self._intake
        assert result is not None
        self._incoming = self._intake = None
        self._told[result.task] = False
        if intake is None:
            return
        task = self._desk.wants(self._who, result.task)
        if task is None:
            self._desk.decline(self._who, result.task)
            return
        try:
            flat = await self._weights(intake, task)
        except (WireError, MissingPackageError) as error:
            self._desk.reject(self._who, result.task, str(error))
            return
        self._desk.arrive(self._who, result, flat)

    async def _weights(self, intake: Intake, task: Task) -> Flat:
        # Not as the terms say: an earlier server of this run may have asked for something else.
        began = flat_of(task) if intake.is_rounded else None
        if self._desk.layout.size * 8 <= LARGE_BYTES:
            return intake.weights(began)
        return await asyncio.get_running_loop().run_in_executor(None, intake.weights, began)


def _order(task: Task, content: Content | None = None) -> Order:
    return Order(task.id, task.version, task.plan, task.seed, content)
