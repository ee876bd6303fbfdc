"""A client over the wire that does exactly what it is told, also what no client does."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray
from runs import START

from pisces.execute.network.coding import from_server, to_server
from pisces.execute.network.messages import (
    Beat,
    Chunk,
    Content,
    FromClient,
    FromServer,
    Hello,
    Order,
    Result,
    Welcome,
)
from pisces.execute.network.packing import MOST_MESSAGE_BYTES, Intake, chunks, digest, pack
from pisces.execute.network.wire import TALK
from pisces.types import Report

SOON_S = 10.0  # longer than anything takes here
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
)
Kind = TypeVar("Kind", bound=FromServer)
Flat = NDArray[Any]


class HungUpError(Exception):
    """The server ended the conversation, for a reason or without one."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self.code, self.details = code, details


class Raw:
    """One connection; what the server says is kept until it is asked for."""

    def __init__(
        self,
        address: str,
        name: str = "",
        *,
        credentials: Any = None,
        reads: bool = True,
        size: int = 4,
    ) -> None:
        self.name, self.size = name, size
        self.layout = 0  # digest of the server's
        self.weights: dict[int, Flat] = {}  # by version
        self.num_contents = 0  # how often weights were sent
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=OPTIONS)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=OPTIONS)
        self._said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._heard: queue.SimpleQueue[bytes | HungUpError] = queue.SimpleQueue()
        self._call = self._channel.stream_stream(TALK)(iter(self._said.get, None))
        if reads:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for data in self._call:
                self._heard.put(data)
        except grpc.RpcError:
            pass
        self._heard.put(HungUpError(self._call.code(), self._call.details()))

    # --- one word ---------------------------------------------------------------------------------

    def say(self, *words: FromClient | bytes) -> None:
        for word in words:
            self._said.put(word if isinstance(word, bytes) else to_server(word))

    def hear(self, timeout: float = SOON_S) -> FromServer:
        """The next word; `HungUpError` after the last, `queue.Empty` where none comes."""
        data = self._heard.get(timeout=timeout)
        if isinstance(data, HungUpError):
            self._heard.put(data)
            raise data
        said = from_server(data)
        if isinstance(said, Welcome):
            self.layout = digest(said.layout)
        return said

    def expect(self, kind: type[Kind]) -> Kind:
        """The next word but beats, which is of this kind."""
        said = self.hear()
        while isinstance(said, Beat) and kind is not Beat:
            said = self.hear()
        assert isinstance(said, kind), said
        return said

    def is_silent(self, for_s: float = 0.1) -> bool:
        """Is nothing said for so long?"""
        try:
            self.hear(for_s)
        except queue.Empty:
            return True
        return False

    def ended(self) -> HungUpError:
        """How the server ended it, whatever it said before."""
        while True:
            try:
                self.hear()
            except HungUpError as hung_up:
                return hung_up

    def hang_up(self) -> None:
        """Without a word."""
        self._said.put(None)
        self._call.cancel()
        self._channel.close()

    def stop_talking(self) -> None:
        """End one's own side in order."""
        self._said.put(None)

    # --- a conversation ---------------------------------------------------------------------------

    def join(self, num_examples: int = 10, **more: Any) -> Welcome:
        self.say(Hello(num_examples, name=self.name, **more))
        return self.expect(Welcome)

    def order(self) -> Order:
        """The next task, and its weights, which are kept."""
        return self.weighed(self.expect(Order))

    def order_or_word(self) -> FromServer:
        """Whatever is said next, with its weights if it is a task."""
        said = self.hear(SOON_S)
        return self.weighed(said) if isinstance(said, Order) else said

    def weighed(self, order: Order) -> Order:
        if order.content is not None:
            self.num_contents += 1
            intake = Intake(order.content, self.size)
            while not intake.is_whole:
                intake.add(self.expect(Chunk).data)
            self.weights[order.version] = intake.weights()
        return order

    def result(self, order: Order, add: float = 1.0, num_examples: int = 10) -> list[FromClient]:
        """What a good client says when it is done: the weights it was sent and a little more."""
        flat = (self.weights[order.version] + np.float32(add)).astype(np.float32)
        content, data = pack(flat)
        return said_result(order.task, content, data, num_examples, layout=self.layout)

    def answer(self, order: Order, add: float = 1.0) -> None:
        self.say(*self.result(order, add))


def said_result(
    task: int,
    content: Content,
    data: memoryview,
    num_examples: int = 10,
    *,
    layout: int = digest(START.layout),
) -> list[FromClient]:
    announced = Result(task, Report(num_examples, 1.0, 1.0, 1), content, layout)
    return [announced, *(Chunk(chunk) for chunk in chunks(data))]


class Good(threading.Thread):
    """A client that does all it is given, over and over, until the run is over."""

    def __init__(self, raw: Raw, **hello: Any) -> None:
        super().__init__(daemon=True)
        self.raw, self._hello = raw, hello
        self.done: list[int] = []
        self.end: Any = None  # why

    def run(self) -> None:
        with suppress(HungUpError):
            self.end = self.raw.join(**self._hello)
            while True:
                self.end = said = self.raw.order_or_word()
                if isinstance(said, Order):
                    self.raw.answer(said)
                    self.done.append(said.task)
