"""One connection of a client, and what is said over it; asyncio.

It says Hello, is made Welcome, and from then on reads and writes at the same time. Whoever owns it
listens (`Ears`) and gives it things to say. When it ends, `talk` says how: there is another try, or
none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pisces.execute.network.client.holding import Held
from pisces.execute.network.client.incoming import Ears, Incoming
from pisces.execute.network.coding import from_server, to_server
from pisces.execute.network.extra import needed
from pisces.execute.network.messages import (
    Acknowledged,
    Beat,
    Bye,
    CalledOff,
    Chunk,
    Failure,
    FromClient,
    FromServer,
    Hello,
    Order,
    Over,
    Pull,
    Welcome,
    WireError,
)
from pisces.execute.network.packing import MOST_MESSAGE_BYTES, parts
from pisces.execute.network.wire import TALK

with needed():
    import grpc

log = logging.getLogger("pisces")

HANDSHAKE_S = 30.0  # to be made welcome
BEATS_MISSED = 3  # and the server is gone
SHORTEST_BEAT_S = 0.05
BYE_S = 1.0  # for the server to hang up, too
FINAL = {  # refusals for good
    grpc.StatusCode.UNAUTHENTICATED: "the server does not know this client",
    grpc.StatusCode.PERMISSION_DENIED: "the server does not let this client in",
    grpc.StatusCode.FAILED_PRECONDITION: "this client does not fit the server",
    grpc.StatusCode.INVALID_ARGUMENT: "the server cannot make sense of this client",
    grpc.StatusCode.ABORTED: "another client of the same name has taken its place",
}
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
)

Said: TypeAlias = Held | Failure
Dial: TypeAlias = Callable[[], Any]  # a fresh `grpc.aio.Channel`


@dataclass(frozen=True, slots=True)
class Ended:
    """How a connection ended: `is_over`, or `is_refused` for good, else there is another try."""

    reason: str
    was_welcome: bool = False
    is_over: bool = False
    is_refused: bool = False


def dial(address: str, credentials: Any | None, *, is_near: bool = False) -> Dial:
    """How to reach a server; without credentials in plain text, on this machine only."""
    options = (*OPTIONS, ("grpc.enable_http_proxy", 0)) if is_near else OPTIONS

    def channel() -> Any:
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, credentials, options=options)

    return channel


class Connection:
    """One connection, from Hello to its end."""

    def __init__(
        self,
        dial: Dial,
        hello: Hello,
        ears: Ears,
        find: Callable[[int], Awaitable[Held | None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dial, self._hello, self._ears, self._find = dial, hello, ears, find
        self._clock = clock
        self._outbox: asyncio.Queue[Said | int] = asyncio.Queue()
        self._writing = asyncio.Lock()
        self._stream: Any = None
        self._welcome: Welcome | None = None
        self._welcomed = asyncio.Event()
        self._incoming = Incoming(ears)
        self._heard_at = clock()
        self._beating: asyncio.Task[None] | None = None
        self._cut: str | None = None  # why this side ended it

    @property
    def is_welcome(self) -> bool:
        """Is there somebody to talk to?"""
        return self._welcome is not None

    def say(self, what: Said | int) -> None:
        """A failure, a result, or the task whose result is to be found on disk."""
        self._outbox.put_nowait(what)

    async def drained(self) -> None:
        """All that was to be said is."""
        await self._outbox.join()

    async def bye(self) -> None:
        """Take leave, and hang up."""
        with suppress(Exception):  # a server that is gone needs no leave
            async with asyncio.timeout(BYE_S):
                await self._write(Bye())
                await self._stream.done_writing()
                await self._stream.code()
        self.hang_up("this client left")

    def hang_up(self, reason: str) -> None:
        """End it here and now."""
        self._cut = self._cut or reason
        if self._stream is not None:
            self._stream.cancel()

    async def talk(self) -> Ended:
        """Connect and talk until it ends."""
        channel = self._dial()
        try:
            self._stream = channel.stream_stream(TALK)()
            others = [asyncio.create_task(part) for part in (self._watch(), self._speak())]
            try:
                return await self._listen()
            finally:
                self._stream.cancel()
                others += [] if self._beating is None else [self._beating]
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
        finally:
            await channel.close(None)

    # --- reading ----------------------------------------------------------------------------------

    async def _listen(self) -> Ended:
        try:
            await self._write(self._hello)
            while (data := await self._stream.read()) is not grpc.aio.EOF:
                self._heard_at = self._clock()
                ended = self._hear(from_server(data))
                if ended is not None:
                    return ended
            return self._ended(await self._stream.code(), await self._stream.details())
        except grpc.aio.AioRpcError as error:
            return self._ended(error.code(), error.details())
        except WireError as error:
            return self._end(f"the server said what no server says: {error}")
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            if self._cut is None and not self._stream.done():
                raise  # this task itself is ended
            return self._ended(await self._stream.code(), await self._stream.details())

    def _hear(self, said: FromServer) -> Ended | None:
        match said:
            case Welcome() if self._welcome is None:
                self._welcome = said
                self._welcomed.set()
                if not self._ears.welcomed(said):
                    return self._end("there is more to tell")
            case Over():
                return self._end(said.reason, is_over=not said.again)
            case _ if self._welcome is None:
                raise WireError("no welcome first")
            case Order():
                self._incoming.order(said, self._welcome.layout)
            case Chunk():
                self._incoming.chunk(said)
            case Acknowledged() | CalledOff() | Pull():
                self._incoming.told(said)
            case Beat():
                pass
            case _:
                raise WireError("a second welcome")
        return None

    # --- writing ----------------------------------------------------------------------------------

    async def _speak(self) -> None:
        """Say what is to be said, one thing after the other; a stream that ends is `_listen`'s."""
        try:
            while True:
                await self._say_next()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        except Exception as error:  # or nothing would be said any more, and nobody know
            log.exception("what was to be said cannot be")
            self.hang_up(f"it cannot be said: {error}")

    async def _say_next(self) -> None:
        said = await self._outbox.get()
        held = await self._find(said) if isinstance(said, int) else said
        if isinstance(held, Held):
            await self._hand_in(held)
        elif held is not None:
            await self._write(held)
        self._outbox.task_done()

    async def _hand_in(self, held: Held) -> None:
        content, pieces = parts(held.result.content, memoryview(held.data))
        await self._write(replace(held.result, content=content))
        for piece in pieces:
            await self._write(Chunk(piece))

    async def _write(self, said: FromClient) -> None:
        async with self._writing:
            await self._stream.write(to_server(said))

    async def _watch(self) -> None:
        """Hang up where the server is not heard from for too long, and beat until then."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):  # `wait_for` may miss being cancelled
                await self._welcomed.wait()
        except TimeoutError:
            self.hang_up(f"the server did not say welcome within {HANDSHAKE_S:g} s")
            return
        assert self._welcome is not None
        beat_s = max(self._welcome.beat_s, SHORTEST_BEAT_S)
        patience_s = BEATS_MISSED * beat_s
        beat_at = self._clock() + beat_s
        while (now := self._clock()) - self._heard_at < patience_s:
            if now >= beat_at:  # also while it sends other things: the server answers beats only
                self._beating = asyncio.create_task(self._beat())  # it may have to wait
                beat_at = now + beat_s
            due_at = min(self._heard_at + patience_s, beat_at)
            await asyncio.sleep(max(due_at - now, 0.01))
        self.hang_up(f"nothing was heard from the server for {patience_s:g} s")

    async def _beat(self) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # `_listen` hears of it
            await self._write(Beat())

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, reason: str, *, is_over: bool = False) -> Ended:
        return Ended(reason, self.is_welcome, is_over=is_over)

    def _ended(self, code: Any, details: str | None) -> Ended:
        if self._cut is not None:
            return self._end(self._cut)
        told = " ".join((details or "").split())
        told = told.removeprefix("failed to connect to all addresses; last error: UNKNOWN: ")
        if code in FINAL:
            what = f"{FINAL[code]}: {told}" if told else FINAL[code]
            return Ended(what, self.is_welcome, is_refused=True)
        name = "" if code is None else code.name.lower().replace("_", " ")
        return self._end(told or f"the connection ended ({name})")
