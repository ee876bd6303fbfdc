"""Clients nobody wants, each with a good certificate: they try one thing, over and over."""

from __future__ import annotations

import queue
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from federation_processes import Part
from rawclient import HungUpError, Raw, said_result

from pisces.execute.network.messages import Beat, Chunk, Content, Hello, Welcome
from pisces.execute.network.packing import pack
from pisces.execute.network.trust.tls import Identity, channel_credentials

PAUSE_S = 0.3
SECOND_S = 2.0


class Wishing(Raw):
    """Comes with a number of its own."""

    number: int

    def join(self, num_examples: int = 10, **more: Any) -> Welcome:
        return super().join(num_examples, wished=self.number, **more)


def be_hostile(part: Part, kind: str, size: int) -> None:
    """In a process: go on until it is killed."""
    credentials = channel_credentials(Identity.load(part.identity))
    rng = random.Random(part.number)
    while True:
        raw = Wishing(part.address, credentials=credentials, size=size, reads=kind != "deaf")
        raw.number = part.number
        with suppress(HungUpError, queue.Empty, AssertionError):
            KINDS[kind](raw, rng)
            raw.ended()
        raw.hang_up()
        print("tried", flush=True)  # noqa: T201
        time.sleep(PAUSE_S)


def garbage(raw: Wishing, rng: random.Random) -> None:
    """Bytes that are no messages, sometimes from the start."""
    if rng.random() < 0.7:
        raw.join()
    raw.say(*(rng.randbytes(rng.randrange(1, 400)) for _ in range(20)))


def flood(raw: Wishing, rng: random.Random) -> None:
    """More than anybody needs to say."""
    raw.join()
    raw.say(*[Beat()] * 1500)


def deaf(raw: Wishing, rng: random.Random) -> None:
    """Never reads, and has much to say that is answered."""
    raw.say(Hello(10, wished=raw.number), *[Beat()] * 400)
    time.sleep(SECOND_S)


def sizes(raw: Wishing, rng: random.Random) -> None:
    """Weights that are too few or too many, or more bytes than announced."""
    raw.join()
    order = raw.order()
    off = rng.choice([-1, 1, 10**6])
    content, data = pack(np.ones(raw.size + off, np.float32))
    if rng.random() < 0.5:  # announced as it should be
        content = Content(content.encoding, 4 * raw.size)
    raw.say(*said_result(order.task, content, data, layout=raw.layout))


def layout(raw: Wishing, rng: random.Random) -> None:
    """Numbers of another kind."""
    raw.join()
    order = raw.order()
    raw.say(*said_result(order.task, *pack(np.ones(raw.size // 2, np.float64))))


def others(raw: Wishing, rng: random.Random) -> None:
    """Results of tasks it was never given."""
    raw.join()
    theirs = raw.order().task - rng.choice([-1, 1])  # it has one at a time
    words = said_result(max(theirs, 0), *pack(np.ones(raw.size, np.float32)), layout=raw.layout)
    raw.say(*words)


def unheard_of(raw: Wishing, rng: random.Random) -> None:
    """Weights that nobody announced, and a message too large to be one."""
    raw.join()
    raw.say(Chunk(bytes(1000)) if rng.random() < 0.5 else rng.randbytes(9 << 20))


def nan(raw: Wishing, rng: random.Random) -> None:
    """All as it should be, but for what the numbers are."""
    raw.join()
    while True:
        order = raw.order()
        bad = rng.choice([np.nan, np.inf, 1e38])
        packed = pack(np.full(raw.size, bad, np.float32))
        raw.say(*said_result(order.task, *packed, layout=raw.layout))


def twice(raw: Wishing, rng: random.Random) -> None:
    """The same result again, not a number both times."""
    raw.join()
    order = raw.order()
    packed = pack(np.full(raw.size, np.nan, np.float32))
    words = said_result(order.task, *packed, layout=raw.layout)
    raw.say(*words, *words)


KINDS: dict[str, Callable[[Wishing, random.Random], None]] = {
    function.__name__: function
    for function in (garbage, flood, deaf, sizes, layout, others, unheard_of, nan, twice)
}


def be_stranger(address: str) -> None:
    """In a process: has no certificate and knows no TLS; says nonsense, or nothing for long."""
    host, _, port = address.rpartition(":")
    rng, silent = random.Random(7), []
    while True:
        with suppress(OSError):
            line = socket.create_connection((host, int(port)), 1.0)
            if len(silent) < 30:
                silent.append(line)
                continue
            line.sendall(rng.randbytes(500))
            line.close()
        time.sleep(0.2)
