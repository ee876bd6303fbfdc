"""The executor over Flower's grid: what is particular to it beside the contract of its kind."""

from __future__ import annotations

import gc
import math
import time
import weakref
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import MetricRecord
from flwr.supercore.task_identity import TaskIdentity
from postbox import Postbox, record

from pisces.execute.flower import courier as courier_module
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.courier import Told
from pisces.execute.flower.executor import FlowerExecutor
from pisces.execute.inbox import Broken
from pisces.types import Arrived, Event, Joined, Plan, Report, Task, Weights

ARRAYS, WEIGHTS = Arrays.of(record(w=[1.0, 2.0]), None)


class Obliging(Postbox):
    """Whatever is sent is done by the time one asks."""

    def __init__(self, *nodes: int) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        super().__init__(*nodes)

    def push_messages(self, messages: Any) -> Any:
        ids = super().push_messages(messages)
        self.answer()
        self.sent[-1:] = [None]  # type: ignore[list-item]  # nothing piles up here either
        return ids


def task(number: int, client: int = 0, version: int = 0) -> Task:
    flat = torch.full((2,), float(version))
    return Task(number, client, version, Weights(flat, ARRAYS.layout), Plan(), 0, 1e6)


def heard(executor: FlowerExecutor, kind: type[Event]) -> list[Any]:
    """The first of that kind, or fail."""
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        found = [e for e in executor.wait(executor.now + 1.0) if isinstance(e, kind)]
        if found:
            return found
    raise AssertionError("nothing was heard")


@pytest.mark.parametrize("at_least", [1, 5])
def test_a_grid_that_breaks_ends_the_run_also_before_it_began(at_least: int) -> None:
    class Gone(Postbox):
        def get_node_ids(self) -> list[int]:
            raise RuntimeError("no such run")

    executor = FlowerExecutor(Gone(), ARRAYS, at_least=at_least)
    try:
        with pytest.raises(RuntimeError, match="no such run"):  # noqa: PT012
            for _ in range(2):
                executor.wait(math.inf)
    finally:
        executor.close()


def test_what_came_before_a_grid_broke_is_not_lost() -> None:
    executor = FlowerExecutor(Obliging(5), ARRAYS)
    try:
        assert executor.wait(0.0) == [Joined(0.0, 0, 1)]
        executor.submit(task(3))
        executor.send()
        while len(executor._inbox) < 2:  # news of its size, and the result
            time.sleep(0.01)
        executor._inbox.put(Broken(KeyError("gone")))
        _, arrived = executor.wait(math.inf)
        assert isinstance(arrived, Arrived)
        with pytest.raises(KeyError):
            executor.wait(math.inf)
    finally:
        executor.close()


def test_metrics_are_told_of_results_that_the_loop_hears_of_and_no_others() -> None:
    told: list[tuple[int, dict[str, Any]]] = []

    def hear(number: int, metrics: MetricRecord) -> None:
        told.append((number, dict(metrics)))

    executor = FlowerExecutor(Obliging(5), ARRAYS, heard=hear)
    try:
        executor.wait(0.0)
        executor.submit(task(3))
        heard(executor, Arrived)
        [(number, metrics)] = told
        assert (number, metrics["num-examples"]) == (3, 10)
        for late in (3, 99):  # once more, and one that nobody knows
            executor._inbox.put(
                Told(late, 0, WEIGHTS.flat.numpy(), Report(10), MetricRecord({"num-examples": 10}))
            )
        executor.wait(executor.now + 0.1)
        assert len(told) == 1
    finally:
        executor.close()


def test_nothing_piles_up_and_old_versions_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier_module, "QUICKEST_S", 0.001)
    grid = Obliging(5, 6)
    executor = FlowerExecutor(grid, ARRAYS, at_least=2)
    courier = executor._desk
    old: list[Any] = []
    try:
        executor.wait(0.0)
        for number in range(2000):
            given = task(number, number % 2, version=number)
            old.append(weakref.ref(given.weights.flat))
            executor.submit(given)
            del given
            heard(executor, Arrived)
            executor.acknowledge()
        executor.send()
        gc.collect()
        assert sum(ref() is not None for ref in old) <= 1  # no version is kept for nobody
        assert not courier._given
        assert courier._posted.qsize() == 0
        nodes = courier._nodes
        piles = (nodes._present, nodes._num_joins, nodes._rests, nodes._num_late)
        for pile in (*piles, nodes._num_failed, nodes._sizes._told, nodes._sizes._guessed):
            assert len(pile) <= 2
        for some in (executor._running, executor._inbox, executor._handed_out, executor._unsaid):
            assert not some
    finally:
        executor.close()


def test_takes_over_with_the_sizes_that_are_known() -> None:
    # Nobody is said to have come anew, with a guess in place of what is known of it.
    from pisces.execute.base import Handover

    executor = FlowerExecutor(Obliging(5, 6), ARRAYS)
    try:
        for node in (5, 6):
            executor._roster.number_of(str(node))
        executor.take_over(Handover(5.0, ((task(7, 1), 4.0),), (0, 1)))
        events: list[Event] = []
        while not any(isinstance(e, Arrived) for e in events):
            events += executor.wait(executor.now + 1.0)
        joined = [event for event in events if isinstance(event, Joined)]
        assert [(event.client, event.num_examples) for event in joined] == [(1, 10)]
    finally:
        executor.close()
