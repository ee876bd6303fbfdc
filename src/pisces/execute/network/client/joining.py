"""A client takes part: trains in the thread that called, talks in another, reconnects for ever."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty
from typing import Any

from pisces.errors import PiscesError, RefusedError, Terminated
from pisces.execute.network.client.bench import Bench
from pisces.execute.network.client.connection import Connection, Dial, Ended
from pisces.execute.network.client.holding import Holding
from pisces.execute.network.client.progress import Watcher
from pisces.execute.network.client.work import CalledOff, Job, Trainee
from pisces.execute.network.messages import Hello, Welcome

log = logging.getLogger("pisces")

SHORTEST_S, LONGEST_S = 0.5, 30.0  # between two tries to connect
LOOK_S = 1.0  # for signals
LEAVE_S = 5.0  # for what was sent to be acknowledged
MOST_REASON = 300  # characters


@dataclass(frozen=True, slots=True)
class Outcome:
    """How taking part ended."""

    reason: str  # the server's
    num_tasks: int  # trained here


def retry_s(attempt: int, rng: random.Random) -> float:
    """How long to wait after so many failed tries: twice as long each time, with full jitter.

    Any moment up to that: clients that lost their server together do not come back together.
    """
    return rng.uniform(0.0, min(LONGEST_S, SHORTEST_S * 2.0 ** min(attempt, 16)))


class Talker:
    """The thread that talks to the server."""

    def __init__(self, dial: Dial, bench: Bench) -> None:
        self._dial, self._bench = dial, bench
        self._rng = random.Random()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Event | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pisces-network", daemon=True)
        self.ended = Ended("it was never connected")
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()
        self._begun.wait()

    def soon(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the network's thread."""
        if self._loop is None:
            return
        with suppress(RuntimeError):  # it is over
            self._loop.call_soon_threadsafe(function, *arguments)

    def leave(self, within_s: float) -> None:
        """Say goodbye, if anybody is there to hear it."""
        if self._leaving is not None:
            self.soon(self._leaving.set)
        self._thread.join(within_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # a bug: it belongs to who called
            self.error = error
        finally:
            self._begun.set()
            self._bench.call_all_off()
            self._bench.todo.put(None)

    async def _main(self) -> None:
        self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_but_for_pollers)
        self._begun.set()
        try:
            await self._stay_connected(self._leaving)
        finally:
            await self._bench.kept()

    async def _stay_connected(self, leaving: asyncio.Event) -> None:
        attempt = 0
        while not leaving.is_set():
            self.ended = await self._connection(leaving)
            if self.ended.is_over or self.ended.is_refused:
                self._bench.tell(state="over", reason=self.ended.reason)
                return
            attempt = 0 if self.ended.was_welcome else attempt + 1
            wait_s = retry_s(attempt, self._rng)
            log.info("not connected: %s; again in %.1f s", self.ended.reason, wait_s)
            self._bench.tell(state="retrying", reason=self.ended.reason, retry_s=wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await leaving.wait()

    async def _connection(self, leaving: asyncio.Event) -> Ended:
        self._bench.tell(state="connecting")
        member = Connection(self._dial, self._bench.hello(), self._bench, self._bench.find)
        self._bench.connected(member)
        goodbye = asyncio.create_task(self._take_leave(member, leaving))
        try:
            return await member.talk()
        finally:
            goodbye.cancel()
            self._bench.connected(None)

    async def _take_leave(self, member: Connection, leaving: asyncio.Event) -> None:
        await leaving.wait()
        if not member.is_welcome:
            member.hang_up("this client left")
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await member.drained()
                while self._bench.unheard:
                    await asyncio.sleep(0.02)
        await member.bye()


def _but_for_pollers(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Several loops in one process wake each other's gRPC poller for nothing; that is no error."""
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)


def take_part(
    dial: Dial, about: Hello, trainee: Trainee, holding: Holding, on: Watcher | None = None
) -> Outcome:
    """Train what the server asks for until the run is over.

    Ctrl-C (and SIGTERM, in the main thread) ends it: what was sent is waited for a little, the rest
    stays on the disk. A server that refuses for good is a `RefusedError`.
    """
    bench = Bench(about, holding, on)
    talker = Talker(dial, bench)
    with _terminable():
        num_tasks = 0
        try:
            talker.start()
            while (what := _next(bench)) is not None:
                if isinstance(what, Welcome):
                    trainee.prepare(what)
                elif (job := bench.begin(what)) is not None:
                    num_tasks += _train(job, trainee, bench, talker)
        finally:
            talker.soon(bench.call_all_off)  # after what is finished
            talker.leave(LEAVE_S + 2.0)
    return _outcome(talker, num_tasks)


def _next(bench: Bench) -> Welcome | int | None:
    """What is to be done; a signal that another thread took wakes nobody, so look now and then."""
    while True:
        with suppress(Empty):
            return bench.todo.get(timeout=LOOK_S)


def _outcome(talker: Talker, num_tasks: int) -> Outcome:
    if talker.error is not None:
        raise talker.error
    if talker.ended.is_refused:
        raise RefusedError(talker.ended.reason)
    return Outcome(talker.ended.reason, num_tasks)


def _train(job: Job, trainee: Trainee, bench: Bench, talker: Talker) -> bool:
    """Do one task; whatever goes wrong with it is told, and the next may come."""
    try:
        job.work.check()  # it may have waited
        held = bench.packed(job, trainee.train(job))
    except CalledOff as error:
        talker.soon(bench.failed, job, reason_of(error))
        return False
    except Exception as error:
        if not job.work.called_off:
            # What the user can mend needs no traceback.
            log.error("task %d failed: %s", job.work.task, error, exc_info=_trace(error))
        talker.soon(bench.failed, job, reason_of(error))
        return False
    talker.soon(bench.finished, job, held)
    return True


def _trace(error: Exception) -> bool:
    return not isinstance(error, PiscesError)


def reason_of(error: BaseException) -> str:
    """An exception in one line, as the server is told it."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:MOST_REASON]


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, where that is ours to decide."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(_number: int, _frame: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
