"""One protocol, two clocks: what happened over Flower's grid, played from a script."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("flwr")

from flowerbed import Bed, flowerbed
from flwr.app import Message
from flwr.clientapp import ClientApp
from postbox import record, reply
from runs import policies

from pisces.execute.base import Capabilities, Executor
from pisces.execute.fake import FakeExecutor
from pisces.execute.flower import courier
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.executor import FlowerExecutor
from pisces.federation import Federation
from pisces.record.lines import Line
from pisces.running import run
from pisces.stop import Stop
from pisces.types import Arrived, Event, Failed, Joined, Left, Report, Task, Weights

ARRAYS, START = Arrays.of(record(w=[0.0, 0.0, 1.0]), None)
DELAYS_S = [0.02, 0.03, 0.05, 0.08, 0.13, 0.3]
LATE_S = 0.4  # one comes later than the others, and one goes then
STEP = 0.01


def app(number: int) -> ClientApp:
    made = ClientApp()

    @made.train()
    def train(message: Message, _context: Any) -> Message:
        time.sleep(DELAYS_S[number])
        if number == 1 and message.content["config"]["server-round"] % 5 == 0:
            raise RuntimeError("now and then")
        metrics = {"num-examples": 10 + number, "train_loss": 1 + number / 10, "loss-rms": 2.0}
        return Message(reply(message, by=STEP, metrics=metrics), reply_to=message)

    return made


def log_of(protocol: str, executor: Executor) -> list[Line]:
    federation = Federation(policies(protocol, 3), START, Stop(time_s=2.0), deadline_s=60.0)
    how: Any = {"protocol": "a", "by_whom": "tests", "made": {}, "out": None}
    return list(run(federation, lambda _folder: executor, **how).memory.lines)


def over_flowers_grid(protocol: str) -> list[Line]:
    with flowerbed(*[app(number) for number in range(len(DELAYS_S) - 1)]) as bed:
        executor = FlowerExecutor(bed.grid, ARRAYS, at_least=len(DELAYS_S) - 1)
        timer = threading.Timer(LATE_S, _comes_and_goes, (bed,))
        timer.start()
        try:
            return log_of(protocol, executor)
        finally:
            timer.join()


def _comes_and_goes(bed: Bed) -> None:
    bed.add(app(len(DELAYS_S) - 1))
    bed.nodes[2].leave()


# --- from a script --------------------------------------------------------------------------------


def played(protocol: str, lines: list[Line]) -> list[Line]:
    ends: dict[int, Line] = {}
    for line in lines:
        if line["kind"] in ("arrived", "failed") and "stopped" not in line.get("reason", ""):
            ends[line["task"]] = line

    def respond(task: Task, _now: float) -> Iterable[Event]:
        line = ends.get(task.id)
        if line is not None and line["kind"] == "failed":
            yield Failed(line["at"], task.client, line["reason"], task.id)
        elif line is not None:
            told = Report(line["num_examples"], line["loss"], line["loss_rms"])
            weights = Weights(task.weights.flat + STEP, START.layout)
            yield Arrived(line["at"], task.id, task.client, weights, told)

    executor = FakeExecutor(_comings(lines), respond, Capabilities())
    return log_of(protocol, executor)


def _comings(lines: list[Line]) -> Iterable[Event]:
    for line in lines:
        if line["kind"] == "joined":
            yield Joined(line["at"], line["client"], line["num_examples"])
        if line["kind"] == "left":
            yield Left(line["at"], line["client"], line["reason"], line.get("task"))
    yield Joined(1e6, 99, 1)  # so that it does not fall quiet before the end


def decisions(lines: list[Line]) -> list[tuple[Any, ...]]:
    """Who was started when on what, and what became a version when, with which weights."""
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
def test_the_same_events_give_the_same_decisions(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "LOOK_S", 0.1)
    monkeypatch.setattr(courier, "QUICKEST_S", 0.01)
    real = over_flowers_grid(protocol)
    assert decisions(played(protocol, real)) == decisions(real)
    kinds = [line["kind"] for line in real]
    assert kinds.count("aggregated") >= 3  # it was about something
    assert len({line["client"] for line in real if line["kind"] == "joined"}) == len(DELAYS_S)
    assert "left" in kinds
