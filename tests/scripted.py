"""A server of one's own that says what a test wants it to, and misbehaves where it is told to.

Each connection is led by the next script, the last one also by all that come after.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from pisces.execute.network.coding import from_client, to_client
from pisces.execute.network.messages import (
    Acknowledged,
    Beat,
    Chunk,
    Content,
    FromClient,
    FromServer,
    Hello,
    Order,
    Over,
    Result,
    Welcome,
)
from pisces.execute.network.packing import MOST_MESSAGE_BYTES, Intake, pack, parts
from pisces.types import Layout, Plan, Slice

PATIENCE_S = 20.0  # of a script that waits for a client


def layout_of(**shapes: tuple[int, ...]) -> Layout:
    """Parameters of float32."""
    slices, start = [], 0
    for name, shape in shapes.items():
        stop = start + int(np.prod(shape))
        slices.append(Slice(name, shape, "float32", "parameter", start, stop))
        start = stop
    return Layout(tuple(slices))


LAYOUT = layout_of(w=(2, 3), b=(3,))
ZEROS = np.zeros(LAYOUT.size, np.float32)


@dataclass
class Talk:
    """One connection, as a script sees it."""

    context: Any
    heard: list[FromClient] = field(default_factory=list)
    layout: Layout = LAYOUT

    async def hear(self, *, beats: bool = False) -> FromClient:
        """The next thing said; beats only if asked for."""
        while True:
            data = await asyncio.wait_for(self.context.read(), PATIENCE_S)
            if data is grpc.aio.EOF:
                raise EOFError
            said = from_client(data)
            self.heard.append(said)
            if beats or not isinstance(said, Beat):
                return said

    async def say(self, said: FromServer) -> None:
        await self.context.write(to_client(said))

    async def raw(self, data: bytes) -> None:
        await self.context.write(data)

    async def welcome(self, run: str = "run", **also: Any) -> Hello:
        hello = await self.hear()
        assert isinstance(hello, Hello)
        await self.say(Welcome(also.pop("number", 0), run, self.layout, **also))
        return hello

    async def order(
        self,
        task: int,
        weights: NDArray[Any] | None = ZEROS,
        *,
        version: int = 0,
        plan: Plan = Plan(),  # noqa: B008
        seed: int = 1,
        num_chunks: int | None = None,
    ) -> None:
        """A task; only the first `num_chunks` of its weights."""
        content: Content | None = None
        data = memoryview(b"")
        if weights is not None:
            content, data = pack(weights)
        pieces: Iterator[bytes] = iter(())
        if content is not None:
            content, pieces = parts(content, data)
        await self.say(Order(task, version, plan, seed, content=content))
        for chunk in list(pieces)[:num_chunks]:
            await self.say(Chunk(chunk))

    async def result(self, began: NDArray[Any] = ZEROS) -> tuple[Result, NDArray[Any]]:
        """The next result, whole."""
        result = await self.hear()
        assert isinstance(result, Result), result
        intake = Intake(result.content, self.layout.size)
        while not intake.is_whole:
            chunk = await self.hear()
            assert isinstance(chunk, Chunk)
            intake.add(chunk.data)
        return result, intake.weights(began)

    async def acknowledge(self, task: int) -> None:
        await self.say(Acknowledged(task))

    async def over(self, *, again: bool = False) -> None:
        await self.say(Over("enough" if not again else "back soon", again))

    async def refuse(self, code: grpc.StatusCode, why: str = "because") -> None:
        await self.context.abort(code, why)

    async def silence(self) -> None:
        """Say nothing, for longer than any client waits."""
        await asyncio.sleep(PATIENCE_S)


Script = Callable[[Talk], Awaitable[None]]


class Scripted:
    """A server in a thread of its own; what went wrong in a script is in `errors`."""

    def __init__(
        self, scripts: Sequence[Script], *, port: int = 0, layout: Layout = LAYOUT
    ) -> None:
        self._scripts, self._layout = list(scripts), layout
        self.talks: list[Talk] = []
        self.errors: list[BaseException] = []
        self._port = port
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._begun.wait(10)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        options = [
            ("grpc.max_send_message_length", 2 * MOST_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
        ]
        server = grpc.aio.server(options=options)
        handler = grpc.stream_stream_rpc_method_handler(self._talk)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("pisces.Federation", {"Talk": handler}),)
        )
        self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        await server.start()
        self._begun.set()
        await self._stopping.wait()
        await server.stop(None)

    async def _talk(self, _requests: Any, context: Any) -> None:
        talk = Talk(context, layout=self._layout)
        script = self._scripts[min(len(self.talks), len(self._scripts) - 1)]
        self.talks.append(talk)
        try:
            await script(talk)
        except (grpc.aio.AbortError, asyncio.CancelledError):
            raise
        except BaseException as error:
            self.errors.append(error)
            await context.abort(grpc.StatusCode.ABORTED, "the script failed")  # clients give up

    def stop(self) -> None:
        """Gone at once, as if killed."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)


@contextmanager
def serving(*scripts: Script, layout: Layout = LAYOUT, port: int = 0) -> Iterator[Scripted]:
    """A server for the time of a test; a script's error is the test's."""
    server = Scripted(scripts, layout=layout, port=port)
    try:
        yield server
    finally:
        server.stop()
        if server.errors:
            raise server.errors[0]
