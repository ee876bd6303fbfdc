"""FedAR's pace: a timeout, and late updates that count next time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from runs import World, assert_lawful, of_kind, simulate
from worlds import update, view

from pisces.aggregate.mean import DiscountedMean
from pisces.errors import ConfigError
from pisces.pace.timed import Timed
from pisces.policy import Policies
from pisces.select.uniform import Uniform
from pisces.stop import Stop


def test_ready_when_the_time_is_over() -> None:
    pacer = Timed(3, timeout_s=10.0)
    world = view(running=[(0, 4, 20.0)], buffer=[update(1)], version=4, last_aggregated_at=20.0)
    assert pacer.next_check(world) == 30.0
    assert not pacer.ready(replace(world, now=29.999))
    assert pacer.ready(replace(world, now=30.0))


def test_ready_when_there_is_nobody_to_wait_for() -> None:
    assert Timed(3, 10.0).ready(view(buffer=[update(1)], now=1.0))


def test_seats_are_filled_after_an_aggregation_only() -> None:
    pacer = Timed(3, 10.0)
    assert pacer.slots(view()) == 3
    # Version 4 was just made; client 0 is late and keeps its seat.
    late = view(running=[(0, 3, 5.0)], version=4)
    assert pacer.slots(late) == 2
    # One of this version runs, or arrived: its time is not over.
    assert pacer.slots(view(running=[(0, 3, 5.0), (1, 4, 9.0)], version=4)) == 0
    assert pacer.slots(view(running=[(0, 3, 5.0)], buffer=[update(1)], version=4)) == 0


def test_late_updates_are_wanted() -> None:
    pacer = Timed(3, 10.0)
    world = view(running=[(0, 0, 0.0)], version=50, now=1e6)
    assert pacer.accepts(world, update(1, version=0))
    assert pacer.release(world) == ()


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        Timed(3, timeout_s)


def test_a_run_by_hand() -> None:
    # Clients of 1, 2 and 7 s, a timeout of 4 s. Version 1 at 4 from clients 0 and 1; both start
    # again and wait from 6 on. Client 2 arrives at 7, when nobody runs any more: version 2 from all
    # three, client 2 one version behind. Then again: version 3 at 11, version 4 at 14.
    policies = Policies(Uniform(), Timed(3, 4.0), DiscountedMean(reference="base"))
    lines = simulate(policies, World(latencies=[1.0, 2.0, 7.0], stop=Stop(time_s=15.0)))
    made = [(a["at"], sorted(a["staleness"])) for a in of_kind(lines, "aggregated")]
    assert made == [(4.0, [0, 0]), (7.0, [0, 0, 1]), (11.0, [0, 0]), (14.0, [0, 0, 1])]
    assert_lawful(lines, 3)


def test_the_same_run_by_name() -> None:
    # Client 2 is late twice, which leaves it some trust, and there is a seat for everybody.
    world = World(latencies=[1.0, 2.0, 7.0], stop=Stop(time_s=15.0))
    made = of_kind(simulate("fedar", world, timeout_s=4.0), "aggregated")
    assert [a["at"] for a in made] == [4.0, 7.0, 11.0, 14.0]
    assert made[1]["weights"] == pytest.approx([1 / 3] * 3)  # the late one counts like the others


def test_when_nobody_made_it_the_first_to_arrive_is_aggregated_at_once() -> None:
    policies = Policies(Uniform(), Timed(2, 1.0), DiscountedMean(reference="base"))
    lines = simulate(policies, World(latencies=[3.0, 5.0], stop=Stop(time_s=5.5)))
    assert [a["at"] for a in of_kind(lines, "aggregated")] == [3.0, 5.0]


def test_a_very_long_timeout_waits_for_everybody() -> None:
    policies = Policies(Uniform(), Timed(3, math.inf), DiscountedMean(reference="base"))
    lines = simulate(policies, World(latencies=[1.0, 2.0, 3.0], stop=Stop(time_s=7.0)))
    assert [a["at"] for a in of_kind(lines, "aggregated")] == [3.0, 6.0]
