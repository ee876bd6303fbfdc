"""A client takes part: trains in the thread that called, talks in another, reconnects for ever."""

from __future__ import annotations

import _thread
import asyncio
import logging
import random
import signal
import threading
import time
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
from pisces.execute.network.trust.core_log import reason as why_refused

log = logging.getLogger("pisces")

SHORTEST_S, LONGEST_S = 0.5, 30.0  # between two tries to connect
LOOK_S = 1.0  # for signals
GRACE_S = 10.0  # for training that nobody waits for any more to end
LEAVE_S = 5.0  # for what was sent to be acknowledged
MOST_REASON = 300  # characters


@dataclass(frozen=True, slots=True)
class Outcome:
    """How taking part ended."""

    reason: str  # the server's
    num_tasks: int  # trained here
    num_failed: int = 0  # that could not be trained


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
        self.is_idle = threading.Event()  # nothing is being trained
        self.is_idle.set()
        self._is_in_main = threading.current_thread() is threading.main_thread()
        self.has_interrupted = False  # training that nobody waits for and that does not end
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

    def pause(self, seconds: float) -> None:
        """Let so much time pass, or what is left until this thread ends."""
        until = time.monotonic() + seconds
        while self._thread.is_alive() and (left := until - time.monotonic()) > 0:
            self._thread.join(min(left, LOOK_S))

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
            self._end_training()

    def _end_training(self) -> None:
        """The run is over; who does not look whether anybody waits is made to end."""
        is_over = self.ended.is_over or self.ended.is_refused
        if self.is_idle.wait(GRACE_S) or not (is_over and self._is_in_main):
            return
        log.warning("%s, and the training goes on: it is interrupted", self.ended.reason)
        self.has_interrupted = True
        _thread.interrupt_main()

    async def _main(self) -> None:
        self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_but_for_pollers)
        self._begun.set()
        try:
            await self._stay_connected(self._leaving)
        finally:
            await self._bench.kept()

    async def _stay_connected(self, leaving: asyncio.Event) -> None:
        attempt, was_told = 0, False
        while not leaving.is_set():
            self.ended = await self._connection(leaving)
            if self.ended.is_over or self.ended.is_refused:
                self._bench.tell(state="over", reason=self.ended.reason)
                return
            if leaving.is_set():
                return  # there is no other try, and nothing to be said about it
            attempt = 0 if self.ended.was_welcome else attempt + 1
            wait_s = retry_s(attempt, self._rng)
            reason = in_words(self.ended)
            # Once for each time it is lost: it is tried again for ever.
            level = logging.INFO if was_told and not self.ended.was_welcome else logging.WARNING
            was_told = True
            log.log(level, "not connected: %s; again in %.1f s", reason, wait_s)
            self._bench.tell(state="retrying", reason=reason, retry_s=wait_s)
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


def in_words(ended: Ended) -> str:
    """Why there is no connection; gRPC says it in its own words, or not at all."""
    if "andshake" in ended.reason or "CERTIFICATE" in ended.reason:
        return f"this is not the server it should be: it shows {why_refused(ended.reason)}"
    if "Socket closed" in ended.reason and not ended.was_welcome:
        return (
            "the server hung up at once: is this client's certificate expired or of another "
            "authority, or only one of both sides --insecure?"
        )
    return ended.reason


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
    tally = Tally()
    with _terminable():
        try:
            talker.start()
            while (what := _next(bench)) is not None:
                if isinstance(what, Welcome):
                    trainee.prepare(what)
                elif (job := bench.begin(what)) is not None:
                    _train(job, trainee, bench, talker, tally)
                    talker.pause(tally.pause_s)
        except KeyboardInterrupt:
            if not talker.has_interrupted:
                raise
        finally:
            talker.soon(bench.call_all_off)  # after what is finished
            talker.leave(LEAVE_S + 2.0)
    return _outcome(talker, tally)


@dataclass(slots=True)
class Tally:
    """How training went so far."""

    num_done: int = 0
    num_failed: int = 0
    in_a_row: int = 0  # failed

    def done(self) -> None:
        """A task was trained."""
        self.num_done, self.in_a_row = self.num_done + 1, 0

    def failed(self) -> None:
        """One could not be."""
        self.num_failed, self.in_a_row = self.num_failed + 1, self.in_a_row + 1

    @property
    def pause_s(self) -> float:
        """After failures: what failed now will fail at once, and the next one, too."""
        if not self.in_a_row:
            return 0.0
        return float(min(LONGEST_S, SHORTEST_S * 2.0 ** min(self.in_a_row - 1, 16)))


def _next(bench: Bench) -> Welcome | int | None:
    """What is to be done; a signal that another thread took wakes nobody, so look now and then."""
    while True:
        with suppress(Empty):
            return bench.todo.get(timeout=LOOK_S)


def _outcome(talker: Talker, tally: Tally) -> Outcome:
    if talker.error is not None:
        raise talker.error
    if talker.ended.is_refused:
        raise RefusedError(talker.ended.reason)
    return Outcome(talker.ended.reason, tally.num_done, tally.num_failed)


def _train(job: Job, trainee: Trainee, bench: Bench, talker: Talker, tally: Tally) -> None:
    """Do one task; whatever goes wrong with it is told, and the next may come."""
    talker.is_idle.clear()
    try:
        job.work.check()  # it may have waited
        held = bench.packed(job, trainee.train(job))
    except CalledOff as error:
        talker.soon(bench.failed, job, reason_of(error))
    except Exception as error:
        tally.failed()
        if not job.work.called_off:
            # What the user can mend needs no traceback.
            log.error("task %d failed: %s", job.work.task, error, exc_info=_trace(error))
        talker.soon(bench.failed, job, reason_of(error))
    else:
        tally.done()
        talker.soon(bench.finished, job, held)
    finally:
        talker.is_idle.set()


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
