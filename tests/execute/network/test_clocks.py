"""One protocol, three clocks: what happened over the network, played in virtual time."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from networks import network
from rawclient import HungUpError, Raw
from runs import NUM_EXAMPLES, START, NoopTrainer, Sessions, outcome, policies

from pisces.execute.base import Executor
from pisces.execute.latency import Latency
from pisces.execute.network.messages import Bye, Order, Result
from pisces.execute.network.packing import pack
from pisces.execute.virtual import VirtualExecutor
from pisces.federation import Federation
from pisces.record.lines import Line
from pisces.running import run
from pisces.stop import Stop
from pisces.types import Task, Weights

DELAYS_S = [0.02, 0.03, 0.05, 0.08, 0.13, 0.3]
LATE, LATE_S = 1, 0.4  # comes later than the others
LEAVER, LEAVES_AFTER = 2, 5  # says goodbye after so many tasks, if it is given them


@dataclass
class Paced(threading.Thread):
    """A client that takes its time, and trains as those of virtual time do."""

    raw: Raw
    number: int
    daemon: bool = True
    num_done: int = field(default=0)

    def __hash__(self) -> int:
        return id(self)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        if self.number == LATE:
            time.sleep(LATE_S)
        try:
            self.raw.join(NUM_EXAMPLES, wished=self.number)
            while self.number != LEAVER or self.num_done < LEAVES_AFTER:
                said = self.raw.hear(60.0)
                if isinstance(said, Order):
                    self._work(said)
            time.sleep(0.01)  # at an instant of its own
            self.raw.say(Bye())
        except HungUpError:
            return

    def _work(self, order: Order) -> None:
        if order.content is not None:
            values = np.frombuffer(order.content.data, "<f4")
            self.raw.weights[order.version] = values
        time.sleep(DELAYS_S[self.number])
        start = Weights(torch.from_numpy(self.raw.weights[order.version].copy()), START.layout)
        task = Task(order.task, self.number, order.version, start, order.plan, order.seed)
        made = outcome(task)
        content, data = pack(made.weights.flat.numpy())
        whole = type(content)(content.encoding, content.num_bytes, data=bytes(data))
        self.raw.say(Result(order.task, made.report, whole, self.raw.layout))
        self.num_done += 1


def federation(protocol: str) -> Federation:
    return Federation(policies(protocol, 3), START, Stop(time_s=2.0), num_clients=len(DELAYS_S))


def log_of(federation: Federation, executor: Executor) -> list[Line]:
    ran = run(
        federation, lambda _folder: executor, protocol="a", by_whom="tests", made={}, out=None
    )
    return list(ran.memory.lines)


def over_the_network(protocol: str) -> list[Line]:
    with network(at_least=len(DELAYS_S) - 1) as there:
        there.executor.open()
        for number in range(len(DELAYS_S)):
            Paced(there.raw(f"c{number}"), number).start()
        return log_of(federation(protocol), there.executor)


# --- in virtual time ------------------------------------------------------------------------------


class Recorded(Latency):
    """Each task takes as long as it did; who did not answer before the end never does."""

    def __init__(self, lines: list[Line]) -> None:
        self._arrived = {line["task"]: line["at"] for line in lines if line["kind"] == "arrived"}
        self.executor: Any = None

    def profile(self, client: int) -> float:
        return DELAYS_S[client]

    def draw(self, client: int, turn: int, task: Task) -> float:
        now, at = self.executor.now, self._arrived.get(task.id, 1e6)
        guess = at - now
        # The one of its neighbours that added to now gives the very instant.
        near = [guess, math.nextafter(guess, 0), math.nextafter(guess, math.inf)]
        return next((seconds for seconds in near if now + seconds == at), guess)


def in_virtual_time(protocol: str, lines: list[Line]) -> list[Line]:
    latency = Recorded(lines)
    comes = {line["client"]: line["at"] for line in lines if line["kind"] == "joined"}
    goes = {line["client"]: line["at"] for line in lines if line["kind"] == "left"}
    sessions = {c: [(comes.get(c, 1e6), goes.get(c, math.inf))] for c in range(len(DELAYS_S))}
    executor = latency.executor = VirtualExecutor(
        NoopTrainer(),
        np.full(len(DELAYS_S), NUM_EXAMPLES),
        latency,
        layout=START.layout,
        availability=Sessions(sessions),
    )
    return log_of(federation(protocol), executor)


def decisions(lines: list[Line]) -> list[tuple[Any, ...]]:
    """Who was started when on what, and what became a version when, with which weights.

    Events of one instant have no order: those of the network come as they do, and what is summed
    over them differs by its last bits.
    """
    found: list[tuple[Any, ...]] = []
    for line in lines:
        if line["kind"] == "started":
            found.append((line["at"], "started", line["task"], line["client"], line["version"]))
        if line["kind"] == "aggregated":
            weights = [round(weight, 6) for weight in line["weights"]]
            shares = sorted(zip(line["tasks"], line["staleness"], weights, strict=True))
            found.append((line["at"], "aggregated", line["version"], shares))
    return found


@pytest.mark.parametrize("protocol", ["pisces", "fedbuff", "fedavg", "oort"])
def test_the_same_events_give_the_same_decisions(protocol: str) -> None:
    real = over_the_network(protocol)
    virtual = in_virtual_time(protocol, real)
    assert decisions(virtual) == decisions(real)
    kinds = [line["kind"] for line in real]
    assert kinds.count("aggregated") >= 5  # it was about something
    assert kinds.count("joined") == len(DELAYS_S)
