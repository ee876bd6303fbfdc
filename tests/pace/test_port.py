"""Port's pace: a buffer within a bound, kept by asking for what there is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import (
    World,
    any_failures,
    any_world,
    assemble,
    assert_lawful,
    log_bytes,
    max_staleness,
    num_versions,
    of_kind,
    quarters,
    simulate,
    through_json,
)
from worlds import Started, update, view

from pisces.aggregate.port import SimilarityMean
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.pace.fedbuff import Buffered
from pisces.pace.port import Port
from pisces.policy import Pacer, Policies, Release
from pisces.select.uniform import Uniform
from pisces.stop import Stop
from pisces.types import Plan

TEN_STEPS = Plan(batch_size=1)  # every client has ten samples


@st.composite
def uneven_worlds(draw: st.DrawFn) -> World:
    """Everybody always runs, some for long, and a version takes few of them: many are pulled."""
    num = draw(st.integers(2, 6))
    return World(
        latencies=draw(
            st.lists(st.sampled_from([1.0, 1.5, 6.0, 20.0]), min_size=num, max_size=num)
        ),
        concurrency=num,
        jitter=draw(st.sampled_from([0.0, 0.3])),
        failures=draw(any_failures()),
        deadline_s=draw(st.sampled_from([5.0, 30.0])),
        tick_s=draw(st.sampled_from([0.0, 1.0])),
        plan=TEN_STEPS,
    )


def policies(pacer: Pacer) -> Policies:
    return Policies(Uniform(), pacer, SimilarityMean())


def world(num_waiting: int, *running: Started) -> View:
    """Version 9, with clients 4 and on waiting."""
    waiting = [update(4 + i, version=9) for i in range(num_waiting)]
    return view([10] * 8, running=running, buffer=waiting, version=9)


def test_who_would_be_too_stale_is_asked_once_the_buffer_is_full() -> None:
    # b = 3: from version 6 it is 3 behind, and would be 4 behind the next time.
    pacer, running = Port(4, 2, bound=3), [(0, 6, 1.0), (1, 7, 2.0)]
    early, full = world(1, *running), world(2, *running)
    assert pacer.release(early) == []
    assert pacer.slots(early) == 2
    assert pacer.release(full) == [Release(0, "3 versions behind", pull=True)]
    assert not pacer.ready(full)
    assert pacer.slots(full) == 0
    answered = world(3, (1, 7, 2.0))
    assert pacer.ready(answered)
    assert pacer.slots(answered) == 3


def test_while_everybody_is_within_the_bound_it_is_a_buffer() -> None:
    pacer = Port(4, 2, bound=3)
    fresh = world(2, (0, 7, 1.0), (1, 9, 2.0))
    assert pacer.ready(fresh)
    assert pacer.release(fresh) == []
    assert pacer.slots(fresh) == 2
    assert pacer.min_clients == 2
    assert pacer.needs_deadline
    assert pacer.needs_pull


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="staleness_bound"):
        Port(4, 2, 0)


def test_a_run_by_hand() -> None:
    # b = 2, a version for every update. Client 0 arrives at 1, 2 and 3; client 1 needs 20 s for ten
    # steps. At 3 the version is 2, client 1 is 2 behind and hands in the one step done by then.
    lines = simulate(
        policies(Port(2, 1, bound=2)),
        World(latencies=[1.0, 20.0], concurrency=2, plan=TEN_STEPS, stop=Stop(time_s=3.5)),
    )
    made = [(a["at"], a["staleness"]) for a in of_kind(lines, "aggregated")]
    assert made == [(1.0, [0]), (2.0, [0]), (3.0, [0, 2])]
    slow = [line for line in of_kind(lines, "arrived") if line["client"] == 1]
    assert [(line["at"], line["latency_s"]) for line in slow] == [(3.0, 3.0)]
    assert_lawful(lines, 2)


def test_less_than_one_step_is_waited_for() -> None:
    # As above, but one step takes 20 s: client 0 waits for client 1.
    lines = simulate(
        policies(Port(2, 1, bound=2)),
        World(latencies=[1.0, 20.0], concurrency=2, stop=Stop(time_s=20.5)),
    )
    made = [(a["at"], a["staleness"]) for a in of_kind(lines, "aggregated")]
    assert made == [(1.0, [0]), (2.0, [0]), (20.0, [0, 2])]


@settings(max_examples=60)
@given(
    world=uneven_worlds() | any_world(deadline_s=quarters),
    goal=st.integers(1, 4),
    bound=st.integers(1, 4),
)
def test_no_update_is_staler_than_the_bound(world: World, goal: int, bound: int) -> None:
    lines = simulate(policies(Port(world.concurrency, goal, bound)), world)
    assert max_staleness(lines) <= bound
    assert_lawful(lines, world.concurrency)


def test_where_nobody_falls_behind_it_is_fedbuff() -> None:
    world = World(plan=TEN_STEPS)
    port, buffered = (simulate(policies(p), world) for p in (Port(3, 2, 99), Buffered(3, 2)))
    assert num_versions(port) > 5
    assert log_bytes(port) == log_bytes(buffered)


@settings(max_examples=20)
@given(world=uneven_worlds(), num_steps=st.integers(1, 40))
def test_goes_on_from_saved_state(world: World, num_steps: int) -> None:
    first, second = (assemble(policies(Port(world.concurrency, 1, 2)), world) for _ in range(2))
    for _ in range(num_steps):
        if first.coordinator.reason is None:
            first.coordinator.step()
    done = len(first.memory.lines)
    second.coordinator.restore(through_json(first.coordinator.state()))
    second.coordinator.reason = first.coordinator.reason
    assert log_bytes(second.run()) == log_bytes(first.run()[done:])
    assert second.coordinator.weights.flat.equal(first.coordinator.weights.flat)
