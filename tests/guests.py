"""Clients of a server in the clear, each in a thread: they answer at once, a step further on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from pisces.execute.network.coding import from_server, to_server
from pisces.execute.network.messages import (
    Bye,
    Hello,
    Order,
    Over,
    Result,
    Welcome,
)
from pisces.execute.network.packing import digest, pack, parts
from pisces.execute.network.trust.tls import Identity, channel_credentials
from pisces.execute.network.wire import TALK
from pisces.types import Report

STEP = 0.125  # that a client's training moves every weight by
NUM_EXAMPLES = 10
OWN = [("grpc.use_local_subchannel_pool", 1)]  # a connection each


class Guest(threading.Thread):
    """One client; `over` is what it was told at the end."""

    def __init__(self, address: str, name: str, identity: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.welcome: Welcome | None = None
        self.over: Over | None = None
        self.error: grpc.RpcError | None = None
        self.tasks: list[int] = []
        self._address, self._name, self._identity = address, name, identity
        self._said: queue.Queue[bytes | None] = queue.Queue()
        self._flat = np.zeros(0, np.float32)

    def run(self) -> None:
        self._said.put(to_server(Hello(NUM_EXAMPLES, name=self._name)))
        try:
            self._talk()
        except grpc.RpcError as error:
            self.error = error

    def _talk(self) -> None:
        with self._channel() as channel:
            for data in channel.stream_stream(TALK)(iter(self._said.get, None)):
                self._hear(from_server(data))
                if self.over is not None:
                    break

    def _channel(self) -> Any:
        if self._identity is None:
            return grpc.insecure_channel(self._address, OWN)
        credentials = channel_credentials(Identity.load(self._identity))
        return grpc.secure_channel(self._address, credentials, OWN)

    def leave(self) -> None:
        self._said.put(to_server(Bye()))
        self._said.put(None)

    def _hear(self, said: Any) -> None:
        match said:
            case Welcome():
                self.welcome = said
            case Order():
                self._train(said)
            case Over():
                self.over = said
                self._said.put(None)

    def _train(self, order: Order) -> None:
        if order.content is not None:
            assert len(order.content.data) == order.content.num_bytes  # small: in one message
            self._flat = np.frombuffer(order.content.data, np.float32)
        self.tasks.append(order.task)
        content, _ = parts(*pack(self._flat + np.float32(STEP)))
        assert self.welcome is not None
        report, layout = Report(NUM_EXAMPLES, 1.0, 1.1, 1), digest(self.welcome.layout)
        self._said.put(to_server(Result(order.task, report, content, layout)))


@contextmanager
def guests(address: str, num: int, certs: Path | None = None) -> Iterator[list[Guest]]:
    """So many clients, ended at the end; with certificates of theirs, if they are in a folder."""
    names = [f"guest-{number}" for number in range(num)]
    pems = [None if certs is None else certs / "clients" / f"{name}.pem" for name in names]
    crowd = [Guest(address, name, pem) for name, pem in zip(names, pems, strict=True)]
    for guest in crowd:
        guest.start()
    try:
        yield crowd
    finally:
        for guest in crowd:
            guest.leave()
            guest.join(10)
            assert not guest.is_alive()
