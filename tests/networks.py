"""A server on this machine and clients of all sorts, gone at the end of a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rawclient import Raw
from runs import START

from pisces.execute.network.server.door import Door, Open
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.server.stats import Stats
from pisces.execute.network.server.terms import Terms
from pisces.types import Event, Layout, Weights

# Short of everything, but for what would make a slow machine fail.
TERMS: dict[str, Any] = {"linger_s": 0.3, "connects_per_minute": 60_000.0}
SOON_S = 10.0


@dataclass
class Network:
    """An executor, and those who connect to it."""

    executor: NetworkExecutor
    credentials: Any = None
    clients: list[Raw] = field(default_factory=list)

    def raw(self, name: str = "", **more: Any) -> Raw:
        """A connection on which nothing was said yet."""
        size = self.executor._layout.size
        more = {"credentials": self.credentials, "size": size, **more}
        self.clients.append(Raw(self.executor.address, name, **more))
        return self.clients[-1]

    def joined(self, *names: str, **hello: Any) -> list[Raw]:
        """Clients that were made welcome, one after the other."""
        clients = []
        for name in names:
            clients.append(self.raw(name))
            clients[-1].join(**hello)
        return clients

    def begun(self, *names: str) -> list[Raw]:
        """The same, and the loop has heard of them."""
        self.executor.open()
        clients = self.joined(*names)
        self.heard(len(names))
        return clients

    def heard(self, num: int = 1) -> list[Event]:
        """So many events, however many waits that takes."""
        events: list[Event] = []
        until = time.monotonic() + SOON_S
        while len(events) < num and time.monotonic() < until:
            events += self.executor.wait(self.executor.now + 1.0)
        assert len(events) == num, events
        return events

    def nothing_heard(self, for_s: float = 0.1) -> None:
        """And nothing happens for so long."""
        until = self.executor.now + for_s
        while self.executor.now < until:
            assert self.executor.wait(until) == []

    @property
    def stats(self) -> Stats:
        return self.executor.stats

    def becomes(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is."""
        until = time.monotonic() + SOON_S
        while not is_so():
            assert time.monotonic() < until, self.stats
            time.sleep(0.005)


@contextmanager
def network(
    door: Door | None = None,
    *,
    layout: Layout = START.layout,
    listen: str = "127.0.0.1:0",
    credentials: Any = None,
    **terms: Any,
) -> Iterator[Network]:
    """A server, without certificates unless there is a door that asks for them."""
    made = NetworkExecutor(listen, layout, door or Open(), terms=Terms(**{**TERMS, **terms}))
    there = Network(made, credentials)
    try:
        yield there
    finally:
        for client in there.clients:
            client.hang_up()
        made.close()


def flat(weights: Weights) -> list[float]:
    return weights.flat.tolist()
