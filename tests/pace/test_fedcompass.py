"""FedCompass' pace: who waits for whom, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from runs import (
    NUM_EXAMPLES,
    START,
    NoopTrainer,
    World,
    assemble,
    assert_lawful,
    of_kind,
)
from worlds import NAN, update, view

from pisces.aggregate.mean import DiscountedMean
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.execute.failures import Failures, Fate
from pisces.execute.virtual import VirtualExecutor
from pisces.pace.fedcompass import Grouped
from pisces.policy import Policies
from pisces.record.lines import Line
from pisces.select.fedcompass import Compass
from pisces.stop import Stop
from pisces.types import Plan, Task


def world(latency_s: float, max_steps: int, num_steps: int = 10) -> View:
    """At 100 client 1 arrived after 50 s and 10 steps; client 0 (1 s a step) started at 90."""
    return view(
        latency_s=[latency_s, 50.0, NAN],
        num_steps=[10, num_steps, 0],
        running=[(0, 2, 90.0), (2, 0, 95.0)],
        max_steps=[max_steps, 4],
        buffer=[update(1, arrived_at=100.0, latency_s=50.0)],
        now=100.0,
    )


def test_the_first_to_arrive_waits_for_who_is_expected_soon() -> None:
    # Until 100 + 0.2 x 50 = 110. Client 0, 18 steps from 90, is expected at 108; it is given up
    # at 90 + 1.2 x 18 = 111.6, later than that.
    pacer, seen = Grouped(4), world(latency_s=10.0, max_steps=18)
    assert pacer.next_check(seen) == 110.0
    assert not pacer.ready(replace(seen, now=109.9))
    assert pacer.ready(replace(seen, now=110.0))


def test_who_should_have_come_is_given_up_at_its_own_time() -> None:
    # Expected at 102, given up at 90 + 1.2 x 12 = 104.4.
    seen = world(latency_s=10.0, max_steps=12)
    assert Grouped(4).next_check(seen) == pytest.approx(104.4)
    # Expected at 94 and given up at 94.8, before client 1 arrived: a straggler of another group.
    assert Grouped(4).ready(world(latency_s=10.0, max_steps=4))


def test_who_is_expected_later_or_not_known_is_not_waited_for() -> None:
    assert Grouped(4).ready(world(latency_s=10.0, max_steps=21))
    assert Grouped(4).ready(world(latency_s=NAN, max_steps=18))


def test_a_step_more_is_within_the_groups_time() -> None:
    # Two steps of 25 s: whoever it joined may come up to 25 s later, by 125.
    assert Grouped(4).next_check(world(10.0, 21, num_steps=2)) == pytest.approx(90 + 1.2 * 21)


def test_a_plan_without_a_limit_is_expected_to_take_as_long_as_the_last() -> None:
    # 10 steps from 90 in 16 s: at 106, given up at 109.2
    assert Grouped(4).next_check(world(latency_s=16.0, max_steps=-1)) == pytest.approx(109.2)


def test_whoever_waits_keeps_its_seat() -> None:
    assert Grouped(4).slots(world(10.0, 18)) == 1
    assert Grouped(4).slots(view()) == 4


@pytest.mark.parametrize("slack", [0.9, float("inf"), NAN])
def test_a_slack_that_is_none_is_refused(slack: float) -> None:
    with pytest.raises(ConfigError, match="slack"):
        Grouped(4, slack)


# --- whole runs -----------------------------------------------------------------------------------


class PerStep:
    """Clients that take so long for each step."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = seconds

    def profile(self, client: int) -> float:
        return NUM_EXAMPLES * self.seconds[client]

    def draw(self, client: int, turn: int, task: Task) -> float:
        return (task.plan.max_steps or NUM_EXAMPLES) * self.seconds[client]


class SilentAfter(Failures):
    """Client 0 falls silent in its third task."""

    def draw(self, client: int, turn: int) -> Fate | None:
        return Fate("vanish", 0.5) if (client, turn) == (0, 2) else None


def run(seconds: Sequence[float], until: float, failures: Failures | None = None) -> list[Line]:
    plan = Plan(batch_size=1)
    executor = VirtualExecutor(
        NoopTrainer(),
        np.full(len(seconds), NUM_EXAMPLES),
        PerStep(seconds),
        layout=START.layout,
        failures=failures,
    )
    selector = Compass(min_steps=2)
    policies = Policies(selector, Grouped(len(seconds)), DiscountedMean(reference="base"))
    small = World(concurrency=len(seconds), plan=plan, stop=Stop(time_s=until), deadline_s=60.0)
    lines = assemble(policies, small, executor=executor).run()
    assert_lawful(lines, len(seconds))
    return lines


def versions(lines: Sequence[Line]) -> list[tuple[float, list[int]]]:
    """When each was made, and from whom."""
    client = {line["task"]: line["client"] for line in of_kind(lines, "started")}
    made = of_kind(lines, "aggregated")
    return [(line["at"], sorted(client[task] for task in line["tasks"])) for line in made]


def test_clients_of_different_speeds_soon_arrive_together() -> None:
    # 1, 2 and 5 s per step, from 2 to 10 steps. First 2 steps each. Client 0 arrives at 2, alone,
    # and takes 10 steps until 12; client 1 at 4, and takes 4 steps until 12; client 2 at 10: it
    # would wait until 15 and meets both at 12. From then on 10, 5 and 2 steps of 10 s together.
    lines = run([1.0, 2.0, 5.0], until=33.0)
    together = [0, 1, 2]
    assert versions(lines) == [
        (2.0, [0]),
        (4.0, [1]),
        (12.0, together),
        (22.0, together),
        (32.0, together),
    ]


def test_a_group_does_not_wait_for_ever() -> None:
    # Client 0's third task, from 12 to 22, never arrives. The others wait for their slack and one
    # step: client 1 (5 steps of 2 s) until 22 + 10 x 0.2 = 24, when client 0 is given up, too.
    lines = run([1.0, 2.0, 5.0], until=33.0, failures=SilentAfter())
    assert versions(lines)[2:4] == [(12.0, [0, 1, 2]), (24.0, [1, 2])]
