"""Clients that do nothing but answer: many in one process, each with a connection of its own.

    python benchmarks/network_clients.py ADDRESS CERTS FIRST COUNT

They give back the weights they were sent, at once, so that what is measured is the network and the
server, and hang up when the run is over.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc

from pisces.execute.network.coding import from_server, to_server
from pisces.execute.network.messages import (
    Beat,
    Chunk,
    Content,
    Hello,
    Order,
    Over,
    Result,
    Welcome,
)
from pisces.execute.network.packing import MOST_MESSAGE_BYTES, digest
from pisces.execute.network.trust.tls import Identity, channel_credentials
from pisces.execute.network.wire import TALK
from pisces.types import Report

NUM_EXAMPLES = 100
AT_ONCE = 50  # clients that connect at the same time
OPTIONS = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a connection each
]


class Echo:
    """One client."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials) -> None:
        self._channel = grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        self._stream: Any = None
        self._writing = asyncio.Lock()
        self._order: Order | None = None
        self._content: Content | None = None
        self._chunks: list[bytes] = []  # as they are to be sent back
        self._left = 0

    async def enter(self) -> None:
        self._stream = self._channel.stream_stream(TALK)()
        await self._stream.write(to_server(Hello(NUM_EXAMPLES)))
        welcome = from_server(await self._stream.read())
        assert isinstance(welcome, Welcome)
        self._beat_s, self._layout = welcome.beat_s, digest(welcome.layout)

    async def stay(self) -> None:
        beating = asyncio.ensure_future(self._beat())
        while (data := await self._stream.read()) is not grpc.aio.EOF:
            said = from_server(data)
            if isinstance(said, Over):
                break
            await self._answer(said)
        beating.cancel()
        await self._stream.done_writing()
        await self._channel.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            await self._write(to_server(Beat()))

    async def _answer(self, said: object) -> None:
        if isinstance(said, Order):
            self._order = said
            if said.content is not None:
                self._content, self._chunks = said.content, []
                self._left = said.content.num_bytes - len(said.content.data)
            if self._left:
                return
        elif isinstance(said, Chunk):
            self._left -= len(said.data)
            self._chunks.append(to_server(said))
        else:
            return
        if self._left == 0 and self._order is not None:
            await self._send_back(self._order)

    async def _send_back(self, order: Order) -> None:
        assert self._content is not None
        report = Report(NUM_EXAMPLES, 1.0, 1.1, 1)
        await self._write(to_server(Result(order.task, report, self._content, self._layout)))
        for chunk in self._chunks:
            await self._write(chunk)

    async def _write(self, data: bytes) -> None:
        async with self._writing:  # gRPC takes one thing at a time
            await self._stream.write(data)


async def crowd(address: str, certs: Path, first: int, count: int) -> None:
    clients = []
    for number in range(first, first + count):
        identity = Identity.load(certs / "clients" / f"c{number}.pem")
        clients.append(Echo(address, channel_credentials(identity)))
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(client.enter() for client in clients[start : start + AT_ONCE]))
    await asyncio.gather(*(client.stay() for client in clients))


if __name__ == "__main__":
    asyncio.run(crowd(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
