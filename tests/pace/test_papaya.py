"""Papaya's pace: FedBuff's buffer, and nobody waited for too long."""

from __future__ import annotations

import pytest
from runs import World, assert_lawful, of_kind, simulate
from worlds import update, view

from pisces.aggregate.mean import DiscountedMean
from pisces.errors import ConfigError
from pisces.pace.papaya import Papaya
from pisces.policy import Policies, Release
from pisces.select.uniform import Uniform
from pisces.stop import Stop


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


def test_late_and_stale_is_called_off_once() -> None:
    world = view(running=[(0, 0, 0.0)], version=9, now=1000.0)
    assert len(Papaya(3, 2, max_staleness=3).release(world)) == 1


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        Papaya(3, 2, timeout_s)


def test_a_slow_client_loses_its_task_but_not_its_turn() -> None:
    # Client 2 would take 20 s. Others arrive every second: at 5 it is noticed, and starts anew.
    policies = Policies(Uniform(), Papaya(3, 2, timeout_s=5.0), DiscountedMean(reference="base"))
    world = World(latencies=[1.0, 1.0, 20.0], stop=Stop(time_s=12.0))
    lines = simulate(policies, world)
    off = [line for line in of_kind(lines, "failed") if line["reason"].startswith("called off")]
    assert [(line["at"], line["client"]) for line in off] == [(5.0, 2), (10.0, 2)]
    assert off[0]["reason"] == "called off: no report within 5 s"
    assert_lawful(lines, 3)
