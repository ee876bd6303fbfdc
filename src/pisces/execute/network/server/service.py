"""The gRPC end of the server: an event loop in a thread of its own, one coroutine per client.

A slow client keeps only its own coroutine waiting. Everything here happens in that thread; others
reach it by `post`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

from pisces.execute.network.coding import from_client
from pisces.execute.network.extra import needed
from pisces.execute.network.messages import FromClient, Hello, WireError
from pisces.execute.network.packing import MOST_MESSAGE_BYTES
from pisces.execute.network.server.desk import Desk
from pisces.execute.network.server.door import Door
from pisces.execute.network.server.endings import (
    FULL,
    GONE,
    LATE,
    PUSHY,
    SILENT,
    Caller,
    Ending,
    TurnedAwayError,
)
from pisces.execute.network.server.listening import listening
from pisces.execute.network.server.rates import Buckets, Once
from pisces.execute.network.server.session import Session
from pisces.execute.network.server.shelf import Shelf
from pisces.execute.network.server.stats import Stats
from pisces.execute.network.trust.tls import Peer

with needed():
    import grpc

log = logging.getLogger("pisces")

BURST = 5  # connections of one name at once
ROUND_S = 1.0  # between two looks at who fell silent, or is no longer welcome
HANG_UP_S = 0.5  # at the end: for clients to hang up first
MOST_LINES = 8  # of one name: the one it has, and older ones that it keeps open
clock = time.monotonic
T = TypeVar("T")


class Service:
    """Talks to clients for a desk."""

    def __init__(self, make_desk: Callable[[Service], Desk], door: Door, listen: str) -> None:
        self.stats = Stats()
        self.desk = make_desk(self)
        self._terms, self._door = self.desk.terms, door
        self._shelf = Shelf(zstd=self._terms.zstd)
        self._sessions: dict[Session, Peer] = {}
        self._num_talking = 0  # those not let in yet, and those that do not hang up, included
        self._num_lines: Counter[str] = Counter()  # by name
        self._connects = Buckets(self._terms.connects_per_minute / 60, BURST, clock)
        self._once = Once(clock)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        try:
            self.port = self._run(self._bind(listen))
        except BaseException:
            self._end_thread()
            raise

    # --- from other threads -----------------------------------------------------------------------

    def start(self) -> None:
        """Let clients in."""
        self._run(self._server.start())
        asyncio.run_coroutine_threadsafe(self._make_rounds(), self._loop)

    def post(self, *actions: Callable[[], None]) -> None:
        """Do this in the network's thread, soon; nothing, where it has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_do_all, actions)

    def later(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Do this after a while; from the network's thread only."""
        return self._loop.call_later(delay_s, action)

    def stop(self) -> None:
        """Let everybody hear what was said, then hang up."""
        if self._loop.is_closed():
            return
        self._run(self._stop())
        self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def refuse(self, reason: str) -> None:
        """Count somebody whom TLS kept out, and say so once."""
        self.stats.refuse(reason)
        self._once.warn(("", reason), f"kept out a connection: {reason}")

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    # --- the server -------------------------------------------------------------------------------

    async def _bind(self, listen: str) -> int:
        self._server, port = listening(self._door, listen, self._talk, self._terms)
        return port

    async def _make_rounds(self) -> None:
        """Look who fell silent; not when one could not listen oneself for a while."""
        while True:
            before = clock()
            await asyncio.sleep(ROUND_S)
            now = clock()
            if now - before < 2 * ROUND_S:
                self._look_around_safely(now - self._terms.silent_after_s)

    def _look_around_safely(self, silent_before: float) -> None:
        """A mistake in one round is said once, and no reason to make no more of them."""
        try:
            self._look_around(silent_before)
        except Exception as error:
            log.debug("in looking around", exc_info=True)
            self._once.warn(("", repr(error)), f"cannot see who has to go, and tries on: {error!r}")

    def _look_around(self, silent_before: float) -> None:
        for session in self._sessions:
            if session.heard_at < silent_before:
                session.end(SILENT)
        unwelcome = self._door.unwelcome(self._sessions.values())
        for session, peer in self._sessions.items():
            if peer in unwelcome:
                session.end(unwelcome[peer])

    async def _stop(self) -> None:
        """Wait until all was said, and a moment for clients to hang up first."""
        now = clock()
        while self._sessions and clock() < now + self._terms.linger_s:
            if clock() > now + HANG_UP_S and all(s.has_said_all for s in self._sessions):
                break
            await asyncio.sleep(0.01)
        await self._server.stop(0.1)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    # --- one client -------------------------------------------------------------------------------

    async def _talk(self, _requests: Any, context: Any) -> None:
        """All that is said over one connection."""
        session = Session(self.desk, self._shelf, clock)
        caller = Caller(_host(context.peer()))
        self._num_talking += 1
        try:
            ending = await self._serve(session, caller, context)
            self._forget(session)
            if ending.status != "OK":
                self._hang_up_on(caller, ending)
            await session.last_word()  # gRPC says one thing at a time, an ending, too
            if ending.status != "OK":
                await _abort(context, ending)
        finally:
            session.break_off()
            self._forget(session)
            self._num_talking -= 1
            self._lose_line(caller.name)

    def _lose_line(self, name: str) -> None:
        """Names without any are forgotten, or whoever makes them up would fill the memory."""
        self._num_lines[name] -= 1
        if self._num_lines[name] <= 0:
            del self._num_lines[name]

    async def _serve(self, session: Session, caller: Caller, context: Any) -> Ending:
        """Until its end, and why it ended."""
        try:
            if self._num_talking > self._terms.max_connections:
                return FULL
            ending = await self._let_in(session, caller, context)
            return ending or await self._converse(session, context)
        except TurnedAwayError as error:
            return Ending(str(error), "PERMISSION_DENIED", error.kind)
        except WireError as error:
            return Ending(str(error), "INVALID_ARGUMENT", "malformed")
        except grpc.aio.BaseError as error:
            log.debug("the line to %s broke: %s", caller, error)
            raise asyncio.CancelledError from error
        except Exception:
            log.exception("a mistake of this server's, in talking to %s", caller)
            return Ending("a mistake of the server's", "INTERNAL", "mistake")

    async def _let_in(self, session: Session, caller: Caller, context: Any) -> Ending | None:
        try:
            said = await asyncio.wait_for(context.read(), self._terms.handshake_s)
        except TimeoutError:
            return LATE
        hello = None if said is grpc.aio.EOF else _read_word(said)
        if not isinstance(hello, Hello):
            raise WireError("the first word was no Hello")
        peer = self._door.who(context.auth_context(), hello)
        caller.name = peer.name
        self._num_lines[peer.name] += 1
        if self._num_lines[peer.name] > MOST_LINES or not self._connects.take(peer.name):
            return PUSHY
        session.pulls, session.zstd = hello.pulls, hello.zstd
        session.member = self.desk.enter(peer.name, hello, session)
        self._sessions[session] = peer
        self.stats.num_connected += 1
        return None

    async def _converse(self, session: Session, context: Any) -> Ending:
        """Read and write at once, until one is at its end or the session is ended."""
        reading = asyncio.ensure_future(self._read(session, context))
        session.writing = writing = asyncio.ensure_future(self._write(session, context))
        both: list[asyncio.Future[None]] = [reading, writing]
        ends: list[asyncio.Future[Any]] = [*both, session.ending]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if session.ending.done():
                return session.ending.result()
            for task in both:
                if task.done():
                    task.result()  # raises what it raised
            return GONE
        finally:
            session.fall_silent()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, session: Session, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            self.stats.received_bytes += len(data)
            await session.hear(_read_word(data))

    async def _write(self, session: Session, context: Any) -> None:
        async for data in session.words():
            await context.write(data)
            self.stats.sent_bytes += len(data)
            if session.is_silent:
                return

    def _forget(self, session: Session) -> None:
        if self._sessions.pop(session, None) is not None:
            self.stats.num_connected -= 1
        if session.member is not None:
            self.desk.leave(session.member, session)

    def _hang_up_on(self, caller: Caller, ending: Ending) -> None:
        self.stats.refuse(ending.kind)
        about = caller.name or caller.host, ending.kind
        self._once.warn(about, f"hung up on {caller}: {ending.reason}")


async def _abort(context: Any, ending: Ending) -> None:
    """Say why, and wait until that is sent: for as long as who does not read keeps the line."""
    try:
        await context.abort(getattr(grpc.StatusCode, ending.status), ending.reason)
    except grpc.aio.AbortError:
        raise  # as it should be
    except grpc.aio.BaseError as error:
        raise asyncio.CancelledError from error  # the line broke, which is nothing to log


def _host(peer: str) -> str:
    """As gRPC names the other end, without the port, which is another one every time."""
    return unquote(peer).rpartition(":")[0] or peer


def _read_word(data: bytes) -> FromClient:
    if len(data) > MOST_MESSAGE_BYTES:
        raise WireError(f"a message of {len(data)} bytes, more than {MOST_MESSAGE_BYTES}")
    return from_client(data)


def _do_all(actions: Sequence[Callable[[], None]]) -> None:
    """One that fails is no reason to leave the others out."""
    for action in actions:
        try:
            action()
        except Exception:
            log.exception("a mistake of this server's, in what it was about to say")
