"""Papaya's pace: FedBuff's buffer, and nobody waited for too long."""

from __future__ import annotations

import math

import pytest
from runs import World, assemble, assert_lawful, of_kind, outcome, simulate
from worlds import update, view

from pisces.aggregate.mean import DiscountedMean
from pisces.errors import ConfigError
from pisces.execute.base import Capabilities
from pisces.execute.fake import FakeExecutor
from pisces.pace.papaya import Papaya
from pisces.policy import Policies, Release
from pisces.select.uniform import Uniform
from pisces.stop import Stop
from pisces.types import Arrived, Event, Joined, Task

JOINS = [Joined(0.0, client, 10) for client in range(2)]


def arrived(task: Task, at: float) -> Arrived:
    done = outcome(task)
    return Arrived(at, task.id, task.client, done.weights, done.report)


def test_refills_at_once_and_aggregates_at_its_goal() -> None:
    pacer = Papaya(3, goal=2)
    world = view([1] * 4, running=[(0, 0, 0.0), (1, 0, 0.0)], buffer=[update(2)])
    assert pacer.slots(world) == 1
    assert not pacer.ready(world)
    assert pacer.ready(view([1] * 4, running=[(0, 0, 0.0)], buffer=[update(1), update(2)]))


def test_who_does_not_report_in_time_is_called_off() -> None:
    # At 100 they have run for 60.5, 60 and 59.5 s.
    running = [(0, 0, 39.5), (1, 0, 40.0), (2, 0, 40.5)]
    world = view(running=running, now=100.0)
    released = Papaya(3, 2, timeout_s=60.0).release(world)
    assert released == [Release(i, "no report within 60 s") for i in (0, 1)]
    assert Papaya(3, 2, timeout_s=None).release(world) == []


def test_who_is_too_stale_is_called_off_and_not_accepted() -> None:
    # At version 9: 4, 3 and 0 behind.
    pacer = Papaya(3, 2, max_staleness=3)
    world = view(running=[(0, 5, 1.0), (1, 6, 2.0), (2, 9, 3.0)], version=9, now=10.0)
    assert pacer.release(world) == [Release(0, "more than 3 versions behind")]
    assert not pacer.accepts(world, update(0, version=5))
    assert pacer.accepts(world, update(1, version=6))


def test_names_the_instant_of_the_next_timeout() -> None:
    # At 100: the first is late already, the others are at 100.5 and 101.
    running = [(0, 0, 39.5), (1, 0, 40.5), (2, 0, 41.0)]
    world = view(running=running, now=100.0)
    assert Papaya(3, 2, timeout_s=60.0).next_release(world) == 100.5
    assert Papaya(3, 2, timeout_s=None).next_release(world) == math.inf


def test_what_took_longer_is_not_accepted() -> None:
    pacer, world = Papaya(3, 2, timeout_s=5.0), view()
    assert pacer.accepts(world, update(0, latency_s=5.0))
    assert not pacer.accepts(world, update(0, latency_s=5.25))
    assert not pacer.accepts(world, update(0, version=0, latency_s=5.25, arrived_at=1e6))
    # From 1.1 on 0.3 s end at 1.4, which by subtracting is 0.0...01 more than 0.3 s.
    just_s = 1.1 + 0.3 - 1.1
    assert just_s > 0.3
    pacer = Papaya(3, 2, timeout_s=0.3)
    assert pacer.accepts(world, update(0, latency_s=just_s, arrived_at=1.4))


@pytest.mark.parametrize("cancels", [True, False])
def test_a_task_of_ten_seconds_is_never_used_with_a_timeout_of_five(cancels: bool) -> None:
    def respond(task: Task, now: float) -> list[Event]:
        return [arrived(task, now + (10.0 if task.client else 2.0))]

    executor = FakeExecutor(JOINS, respond, Capabilities(cancels=cancels))
    papaya = Papaya(2, 1, timeout_s=5.0)
    world = World(concurrency=2, stop=Stop(time_s=40.0))
    lines = assemble(Policies(Uniform(), papaya, DiscountedMean()), world, executor=executor).run()
    slow = {line["task"] for line in of_kind(lines, "started") if line["client"] == 1}
    used = {task for line in of_kind(lines, "aggregated") for task in line["tasks"]}
    assert slow
    assert used
    assert not slow & used
    late = {line["task"] for line in of_kind(lines, "dropped") if line["reason"] == "too late"}
    assert bool(late & slow) is not cancels


def test_called_off_at_the_instant_though_nothing_else_happens() -> None:
    # Latency 10 s, timeout 8: with nobody else to wake the loop, and an empty buffer.
    policies = Policies(Uniform(), Papaya(2, 1, timeout_s=8.0), DiscountedMean(reference="base"))
    lines = simulate(policies, World(latencies=[10.0, 10.0], stop=Stop(time_s=30.0)))
    off = [line["at"] for line in of_kind(lines, "failed") if "no report" in line["reason"]]
    assert off == [8.0, 8.0, 16.0, 16.0, 24.0, 24.0]
    assert of_kind(lines, "aggregated", "arrived") == []


def test_late_and_stale_is_called_off_once() -> None:
    world = view(running=[(0, 0, 0.0)], version=9, now=1000.0)
    assert len(Papaya(3, 2, max_staleness=3).release(world)) == 1


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        Papaya(3, 2, timeout_s)


def test_a_slow_client_loses_its_task_but_not_its_turn() -> None:
    # Client 2 would take 20 s. At 5 it is called off, and starts anew.
    policies = Policies(Uniform(), Papaya(3, 2, timeout_s=5.0), DiscountedMean(reference="base"))
    world = World(latencies=[1.0, 1.0, 20.0], stop=Stop(time_s=12.0))
    lines = simulate(policies, world)
    off = [line for line in of_kind(lines, "failed") if line["reason"].startswith("called off")]
    assert [(line["at"], line["client"]) for line in off] == [(5.0, 2), (10.0, 2)]
    assert off[0]["reason"] == "called off: no report within 5 s"
    assert_lawful(lines, 3)
