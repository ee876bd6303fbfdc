"""Executors in real time, each with clients that do what a test says: a row of their contract.

Asked, client `n` adds (n + 1) / 8 to the weights after a few milliseconds, and says `REPORT`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from networks import TERMS
from rawclient import HungUpError, Raw, said_result
from runs import START

from pisces.execute.base import Executor
from pisces.execute.network.messages import Bye, Failure, Order
from pisces.execute.network.packing import pack
from pisces.execute.network.server.door import Open
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.server.terms import Terms
from pisces.types import Event

HAS_FLOWER = find_spec("flwr") is not None
DELAY_S, SOON_S, NUM_EXAMPLES = 0.02, 20.0, 10
Does = Literal["answer", "fail", "nothing"]


class Clients(Protocol):
    """Those of one executor."""

    executor: Executor
    does: dict[int, Does]

    def come(self, client: int) -> None:
        """Appear, or come back."""

    def leave(self, client: int) -> None:
        """Go, and say so."""

    def close(self) -> None:
        """End all of them."""


@dataclass
class Site:
    """An executor and its clients, as tests drive them."""

    executor: Any
    clients: Clients

    def begun(self, num: int = 3) -> list[Event]:
        """So many clients are there, and the loop has heard of them."""
        for client in range(num):
            self.clients.come(client)
        return self.executor.wait(0.0)

    def heard(self, num: int = 1) -> list[Event]:
        """So many events at least, however many waits that takes."""
        return self.until(lambda events: len(events) >= num)

    def until(self, is_enough: Callable[[list[Event]], bool]) -> list[Event]:
        events: list[Event] = []
        end = time.monotonic() + SOON_S
        while not is_enough(events):
            assert time.monotonic() < end, events
            events += self.executor.wait(self.executor.now + 0.2)
        return events

    def silence(self, for_s: float = 0.3) -> list[Event]:
        """What happens for so long."""
        events, until = list[Event](), self.executor.now + for_s
        while self.executor.now < until:
            events += self.executor.wait(until)
        return events


# --- over the network -----------------------------------------------------------------------------


class NetworkClients:
    """Threads that speak the wire's own language."""

    def __init__(self, at_least: int) -> None:
        terms = Terms(**{**TERMS, "at_least": at_least, "patience_s": 0.5})
        self.executor = NetworkExecutor("127.0.0.1:0", START.layout, Open(), terms=terms)
        self.does: dict[int, Does] = {}
        self._raws: dict[int, Raw] = {}

    def come(self, client: int) -> None:
        self.executor.open()
        raw = self._raws[client] = Raw(self.executor.address, f"client-{client}")
        raw.join(NUM_EXAMPLES, wished=client)
        threading.Thread(target=self._live, args=(client, raw), daemon=True).start()

    def leave(self, client: int) -> None:
        self._raws[client].say(Bye())

    def close(self) -> None:
        for raw in self._raws.values():
            raw.hang_up()
        self.executor.close()

    def _live(self, client: int, raw: Raw) -> None:
        with suppress(HungUpError):
            while True:
                said = raw.hear(3600.0)
                if isinstance(said, Order):
                    self._do(client, raw, raw.weighed(said))

    def _do(self, client: int, raw: Raw, order: Order) -> None:
        time.sleep(DELAY_S)
        match self.does.get(client, "answer"):
            case "answer":
                flat = raw.weights[order.version] + (client + 1) / 8
                content, data = pack(flat.astype("float32"))
                raw.say(*said_result(order.task, content, data, NUM_EXAMPLES, layout=raw.layout))
            case "fail":
                raw.say(Failure(order.task, "it raised"))


# --- over Flower's grid ---------------------------------------------------------------------------


class FlowerClients:
    """Nodes of Flower's own grid, in this process."""

    def __init__(self, at_least: int) -> None:
        from flowerbed import Bed

        from pisces.execute.flower.arrays import Arrays
        from pisces.execute.flower.executor import FlowerExecutor

        self._bed, self._nodes = Bed(), dict[int, Any]()
        arrays, _ = Arrays.of(_record(), ["buffers"])
        self.executor = FlowerExecutor(self._bed.grid, arrays, at_least=at_least)
        self.does: dict[int, Does] = {}
        self._over = threading.Event()

    def come(self, client: int) -> None:
        node = self._bed.add(self._app(client), key=f"key {client}".encode(), starts=False)
        assert self.executor._roster.number_of(str(node.id)) == client
        self._nodes[client] = node
        node.start()

    def leave(self, client: int) -> None:
        self._nodes[client].leave()

    def close(self) -> None:
        self._over.set()
        self.executor.close()
        self._bed.close()

    def _app(self, client: int) -> Any:
        from flwr.app import Message
        from flwr.clientapp import ClientApp
        from postbox import reply

        app = ClientApp()

        @app.train()
        def train(message: Any, _context: Any) -> Any:
            time.sleep(DELAY_S)
            does = self.does.get(client, "answer")
            if does == "nothing":
                self._over.wait(SOON_S)
            if does != "answer":
                raise RuntimeError("it raised")
            metrics = {"num-examples": NUM_EXAMPLES, "train_loss": 1.0, "loss-rms": 1.0}
            return Message(reply(message, by=(client + 1) / 8, metrics=metrics), reply_to=message)

        return app


def _record() -> Any:
    """The weights of `START`, as an app has them."""
    from postbox import record

    size = START.layout.num_parameters
    return record(w=START.flat[:size].tolist(), buffers=START.flat[size:].tolist())


# --- the table ------------------------------------------------------------------------------------

SITES: Mapping[str, Callable[[int], Any]] = {
    "network": NetworkClients,
    **({"flower": FlowerClients} if HAS_FLOWER else {}),
}


@contextmanager
def site(name: str, *, at_least: int = 3) -> Iterator[Site]:
    """An executor of that name, gone at the end."""
    clients = SITES[name](at_least)
    try:
        yield Site(clients.executor, clients)
    finally:
        clients.close()
