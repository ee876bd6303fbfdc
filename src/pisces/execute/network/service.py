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
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pisces.errors import ConfigError
from pisces.execute.network.desk import Desk, RefusedError
from pisces.execute.network.door import Door
from pisces.execute.network.extra import needed
from pisces.execute.network.messages import Hello, WireError, from_client
from pisces.execute.network.packing import MOST_MESSAGE_BYTES
from pisces.execute.network.rates import Buckets, Once
from pisces.execute.network.session import Ending, Session
from pisces.execute.network.shelf import Shelf
from pisces.execute.network.stats import Stats
from pisces.execute.network.tls import Peer
from pisces.execute.network.wire import TALK

with needed():
    import grpc

log = logging.getLogger("pisces")

BURST = 5  # connections of one name at once
ROUND_S = 3.0  # between two looks at who fell silent, or is no longer welcome
FAREWELL_S = 0.5
clock = time.monotonic


class Service:
    """Talks to clients for a desk."""

    def __init__(self, make_desk: Callable[[Service], Desk], door: Door, listen: str) -> None:
        self.stats = Stats()
        self.desk = make_desk(self)
        self._terms, self._door = self.desk.terms, door
        self._shelf = Shelf(self.desk.layout, zstd=self._terms.zstd)
        self._sessions: dict[Session, Peer] = {}
        self._connects = Buckets(self._terms.connects_per_minute / 60, BURST, clock)
        self._once = Once()
        self._rounds: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self.port = self._run(self._bind(listen))

    # --- from other threads -----------------------------------------------------------------------

    def start(self) -> None:
        """Let clients in."""
        self._run(self._server.start())
        self._rounds = asyncio.run_coroutine_threadsafe(self._make_rounds(), self._loop)

    def post(self, action: Callable[[], None]) -> None:
        """Do this in the network's thread, soon."""
        self._loop.call_soon_threadsafe(action)

    def later(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Do this after a while; from the network's thread only."""
        return self._loop.call_later(delay_s, action)

    def stop(self) -> None:
        """Let everybody hear what was said, then hang up."""
        if self._loop.is_closed():
            return
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def refuse(self, whom: str, reason: str) -> None:
        """Count somebody who is kept out, and say so once."""
        self.stats.refused[reason] += 1
        self._once.warn(f"kept out {whom}: {reason}")

    def _run(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    # --- the server -------------------------------------------------------------------------------

    async def _bind(self, listen: str) -> int:
        options = {
            "grpc.so_reuseport": 0,  # two servers must not share a port unawares
            "grpc.max_receive_message_length": MOST_MESSAGE_BYTES,
            "grpc.max_concurrent_streams": 1,
            "grpc.max_metadata_size": 8192,
            "grpc.server_handshake_timeout_ms": int(1000 * self._terms.handshake_s),
            "grpc.max_connection_idle_ms": int(1000 * self._terms.handshake_s),
            "grpc.max_allowed_incoming_connections": self._terms.max_connections,
            "grpc.http2.max_ping_strikes": 2,
        }
        self._server = grpc.aio.server(
            options=list(options.items()), maximum_concurrent_rpcs=self._terms.max_connections
        )
        service, method = TALK.removeprefix("/").split("/")
        talk = grpc.stream_stream_rpc_method_handler(self._talk)
        handler = grpc.method_handlers_generic_handler(service, {method: talk})
        self._server.add_generic_rpc_handlers((handler,))
        try:
            port = self._door.open(self._server, listen)
        except RuntimeError as error:
            port = 0
            log.debug("%s", error)
        if not port:
            raise ConfigError(
                f"--listen: cannot listen on {listen}: is the port taken, or the address another "
                "machine's? Choose another, such as 127.0.0.1:0 for any port"
            )
        return port

    async def _make_rounds(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            silent_before = clock() - self._terms.silent_after_s
            for session, peer in list(self._sessions.items()):
                if session.heard_at < silent_before:
                    session.end("nothing was heard of it", "UNAVAILABLE")
                elif not self._door.may_stay(peer):
                    session.end("its certificate is revoked", "PERMISSION_DENIED")

    async def _stop(self) -> None:
        """Wait until all was said, and a moment for clients to hang up first."""
        now = clock()
        while self._sessions and clock() < now + self._terms.linger_s:
            if clock() > now + FAREWELL_S and all(s.has_said_all for s in self._sessions):
                break
            await asyncio.sleep(0.01)
        await self._server.stop(0.1)
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.sleep(0)

    # --- one client -------------------------------------------------------------------------------

    async def _talk(self, _requests: Any, context: Any) -> None:
        """All that is said over one connection."""
        session = Session(self.desk, self._shelf, clock)
        whom = context.peer()
        try:
            name, ending = await self._let_in(session, context)
            whom = f"{name} ({whom})"
            ending = ending or await self._converse(session, context)
        except RefusedError as error:
            ending = Ending(str(error), "PERMISSION_DENIED" if error.for_good else "UNAVAILABLE")
        except WireError as error:
            ending = Ending(str(error), "INVALID_ARGUMENT")
        finally:
            self._forget(session)
        if ending.status != "OK":
            self.refuse(whom, ending.reason)
            await context.abort(getattr(grpc.StatusCode, ending.status), ending.reason)

    async def _let_in(self, session: Session, context: Any) -> tuple[str, Ending | None]:
        try:
            said = await asyncio.wait_for(context.read(), self._terms.handshake_s)
        except TimeoutError:
            return "", Ending("no Hello came in time", "UNAVAILABLE")
        hello = None if said is grpc.aio.EOF else from_client(said)
        if not isinstance(hello, Hello):
            raise WireError("the first word was no Hello")
        peer = self._door.who(context.auth_context(), hello)
        if not self._connects.take(peer.name):
            return peer.name, Ending("it connects too often", "RESOURCE_EXHAUSTED")
        session.pulls = hello.pulls
        session.member = self.desk.enter(peer.name, hello, session)
        self._sessions[session] = peer
        self.stats.num_connected += 1
        return peer.name, None

    async def _converse(self, session: Session, context: Any) -> Ending:
        """Read and write at once, until one is at its end or the session is ended."""
        reading = asyncio.ensure_future(self._read(session, context))
        writing = asyncio.ensure_future(self._write(session, context))
        both: list[asyncio.Future[None]] = [reading, writing]
        ends: list[asyncio.Future[Any]] = [*both, session.ending]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                if task.done():
                    task.result()  # raises what it raised
            return session.ending.result() if session.ending.done() else Ending("", "OK")
        finally:
            for task in both:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, WireError, Exception):
                    await task

    async def _read(self, session: Session, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            self.stats.received_bytes += len(data)
            await session.hear(from_client(data))

    async def _write(self, session: Session, context: Any) -> None:
        async for data in session.words():
            await context.write(data)
            self.stats.sent_bytes += len(data)

    def _forget(self, session: Session) -> None:
        if self._sessions.pop(session, None) is not None:
            self.stats.num_connected -= 1
        if session.member is not None:
            self.desk.leave(session.member, session)
