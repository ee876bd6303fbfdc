"""What holds of every protocol in the build table, through good times and bad."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from runs import (
    NUM_EXAMPLES,
    START,
    Sessions,
    World,
    assemble,
    assert_lawful,
    log_bytes,
    num_versions,
    of_kind,
    outcome,
    reason,
    simulate,
)

from pisces.clients.checks import Limits
from pisces.execute.failures import Failures
from pisces.execute.fake import FakeExecutor
from pisces.execute.latency import PerClient
from pisces.execute.virtual import VirtualExecutor
from pisces.names import PROTOCOLS
from pisces.record.lines import Line
from pisces.stop import Stop
from pisces.types import Arrived, Event, Failed, Joined, Report, Task, Weights

every_protocol = pytest.mark.parametrize("name", PROTOCOLS)
both_clocks = pytest.mark.parametrize("tick_s", [0.0, 5.0])

LONG = World(stop=Stop(time_s=120.0))  # latencies 1 to 6, three at a time


def clients_started(lines: list[Line], *, after: float = -math.inf) -> set[int]:
    return {line["client"] for line in of_kind(lines, "started") if line["at"] >= after}


# --- good times -----------------------------------------------------------------------------------


@every_protocol
@both_clocks
def test_makes_version_after_version(name: str, tick_s: float) -> None:
    lines = simulate(name, replace(LONG, tick_s=tick_s))
    # The slowest answer is a round of everybody at 6 s, stretched to 10 s by the tick.
    assert num_versions(lines) >= 12
    assert clients_started(lines) == set(range(6))
    assert reason(lines) == "time"
    assert_lawful(lines, LONG.concurrency)


@every_protocol
def test_one_client_is_enough(name: str) -> None:
    lines = simulate(name, World(latencies=[1.0], concurrency=1, stop=Stop(versions=5)))
    assert num_versions(lines) == 5
    assert_lawful(lines, 1)


@every_protocol
def test_equal_seeds_give_equal_logs_and_other_seeds_others(name: str) -> None:
    world = replace(LONG, jitter=0.3, stop=Stop(updates=30))
    once, again = log_bytes(simulate(name, world)), log_bytes(simulate(name, world))
    assert once == again
    assert log_bytes(simulate(name, replace(world, seed=2))) != once


# --- bad times ------------------------------------------------------------------------------------


@every_protocol
@both_clocks
@pytest.mark.parametrize(
    "failures",
    [Failures(crash=0.3), Failures(dropout=0.3, return_after_s=4.0)],
    ids=["crash", "dropout"],
)
def test_makes_progress_though_three_in_ten_tasks_fail(
    name: str, tick_s: float, failures: Failures
) -> None:
    lines = simulate(name, replace(LONG, failures=failures, tick_s=tick_s))
    # 30 % of more than 30 tasks, give or take: at least every eighth
    assert len(of_kind(lines, "failed", "left")) > len(of_kind(lines, "started")) / 8
    assert num_versions(lines) >= 10
    assert_lawful(lines, LONG.concurrency)


@every_protocol
def test_makes_progress_though_clients_fall_silent_if_there_is_a_deadline(name: str) -> None:
    failures = Failures(vanish=0.3, return_after_s=4.0)
    lines = simulate(name, replace(LONG, failures=failures, deadline_s=8.0))
    assert num_versions(lines) >= 8
    assert_lawful(lines, LONG.concurrency)


@every_protocol
@both_clocks
def test_stops_when_everybody_has_fallen_silent(name: str, tick_s: float) -> None:
    world = World(failures=Failures(vanish=1.0), stop=Stop(versions=9), tick_s=tick_s)
    lines = simulate(name, world)
    assert reason(lines) == "silent clients"
    if of_kind(lines, "failed")[0]["reason"] == "the run stopped":
        assert lines[-1]["at"] == 0.0  # it is plain from the start that nothing will happen
    else:  # tasks are called off in time, so the others have a chance first
        assert clients_started(lines) == set(range(6))
    assert_lawful(lines, world.concurrency)


@every_protocol
@both_clocks
@pytest.mark.parametrize(
    "failures", [Failures(vanish=1.0), Failures(dropout=1.0)], ids=["vanish", "dropout"]
)
def test_stops_when_everybody_is_gone(name: str, tick_s: float, failures: Failures) -> None:
    world = World(failures=failures, deadline_s=8.0, stop=Stop(versions=9), tick_s=tick_s)
    lines = simulate(name, world)
    assert reason(lines) == "no clients left"
    assert clients_started(lines) == set(range(6))  # everybody had a chance
    assert (num_versions(lines), lines[-2]["kind"]) == (0, "left")
    assert_lawful(lines, world.concurrency)


@every_protocol
@both_clocks
def test_what_waits_when_everybody_goes_offline_is_aggregated(name: str, tick_s: float) -> None:
    offline = Sessions({client: [(0.0, 4.5)] for client in range(6)})
    world = World(availability=offline, stop=Stop(versions=99), tick_s=tick_s)
    lines = simulate(name, world)
    assert reason(lines) == "no clients left"
    assert num_versions(lines) >= 1
    assert of_kind(lines, "dropped") == []
    assert_lawful(lines, world.concurrency)


@every_protocol
def test_uses_those_who_come_late_and_those_who_come_back(name: str) -> None:
    sessions = Sessions({4: [(31.0, math.inf)], 5: [(0.0, 9.0), (30.0, math.inf)]})
    lines = simulate(name, replace(LONG, availability=sessions, concurrency=6))  # room for all
    assert 4 in clients_started(lines)
    assert 5 in clients_started(lines, after=30.0)
    assert not {4, 5} & clients_started([x for x in lines if 9.0 <= x["at"] < 30.0])
    assert_lawful(lines, 6)


class Interrupted(VirtualExecutor):
    """Somebody presses Ctrl-C at the tenth `wait`."""

    waits = 0

    def wait(self, until: float) -> list[Event]:
        self.waits += 1
        if self.waits == 10:
            raise KeyboardInterrupt
        return super().wait(until)


@every_protocol
def test_ctrl_c_ends_every_task(name: str) -> None:
    executor = LONG.executor()
    executor.__class__ = Interrupted
    lines = assemble(name, LONG, executor=executor).run()
    assert reason(lines) == "interrupted"
    assert of_kind(lines, "failed")[-1]["reason"] == "the run stopped"
    assert_lawful(lines, LONG.concurrency)


# --- bad updates ----------------------------------------------------------------------------------


def flat(task: Task) -> torch.Tensor:
    return outcome(task).weights.flat


FINE = Report(NUM_EXAMPLES, 1.0, 1.1)
BAD: dict[str, Callable[[Task], tuple[torch.Tensor, Report]]] = {
    "not a number": lambda t: (flat(t) * math.nan, FINE),
    "infinite": lambda t: (flat(t) + math.inf, FINE),
    "one place infinite": lambda t: (flat(t).index_fill(0, torch.tensor([2]), -math.inf), FINE),
    "too long": lambda t: (torch.zeros(5), FINE),
    "too short": lambda t: (torch.zeros(3), FINE),
    "empty": lambda t: (torch.zeros(0), FINE),
    "a matrix": lambda t: (torch.zeros(2, 2), FINE),
    "huge": lambda t: (flat(t) - 3e38, FINE),
    "integers": lambda t: (torch.zeros(4, dtype=torch.int64), FINE),
    "double, too large for float": lambda t: (flat(t).double() + 1e300, FINE),
    "no examples": lambda t: (flat(t), Report(0, 1.0, 1.1)),
    "fewer than no examples": lambda t: (flat(t), Report(-5, 1.0, 1.1)),
    "more than it joined with": lambda t: (flat(t), Report(NUM_EXAMPLES + 1, 1.0, 1.1)),
    "a huge number of examples": lambda t: (flat(t), Report(10**30, 1.0, 1.1)),
    "half an example": lambda t: (flat(t), Report(0.5, 1.0, 1.1)),  # type: ignore[arg-type]
    "an infinite loss": lambda t: (flat(t), Report(NUM_EXAMPLES, math.inf, math.inf)),
    "a loss that is no number": lambda t: (flat(t), Report(NUM_EXAMPLES, math.nan, 1.1)),
    "an absurd loss": lambda t: (flat(t), Report(NUM_EXAMPLES, 1e300, 1e300)),
    "an absurd RMS loss": lambda t: (flat(t), Report(NUM_EXAMPLES, 1.0, 1e300)),
    "an RMS loss below the mean": lambda t: (flat(t), Report(NUM_EXAMPLES, 1.0, 0.2)),
}
LIARS = (0, 3)


def joins() -> list[Event]:
    return [Joined(0.0, client, NUM_EXAMPLES) for client in range(6)]


def honest(task: Task, at: float) -> Event:
    done = outcome(task)
    return Arrived(at, task.id, task.client, done.weights, done.report)


def run_with(
    name: str, lie: Callable[[Task, float], Event], world: World
) -> tuple[list[Line], Weights]:
    """A run in which the liars answer in their own way."""
    latency = PerClient(world.latencies)

    def respond(task: Task, now: float) -> list[Event]:
        at = now + latency.profile(task.client)
        return [lie(task, at) if task.client in LIARS else honest(task, at)]

    run = assemble(name, world, executor=FakeExecutor(joins(), respond))
    lines = run.run()
    return lines, run.coordinator.weights


def reasons_aside(lines: list[Line]) -> list[Line]:
    return [{key: value for key, value in line.items() if key != "reason"} for line in lines]


@every_protocol
def test_bad_updates_count_as_failures_and_never_touch_the_model(name: str) -> None:
    # As if the liars had said they failed: the same decisions, and the same model to the last bit.
    kinds: Iterator[Callable[[Task], tuple[torch.Tensor, Report]]] = iter(list(BAD.values()) * 50)

    def lie(task: Task, at: float) -> Event:
        tensor, report = next(kinds)(task)
        return Arrived(at, task.id, task.client, Weights(tensor, START.layout), report)

    def fail(task: Task, at: float) -> Event:
        return Failed(at, task.client, "honestly", task.id)

    # Long enough for who learns to leave the liars alone, and asks them now and then only.
    patient = replace(LONG, credits=1000, stop=Stop(time_s=600.0))
    lines, weights = run_with(name, lie, patient)
    honestly, expected = run_with(name, fail, patient)
    refused = [x for x in of_kind(lines, "failed") if x["reason"].startswith("update refused: ")]
    assert len(refused) >= len(BAD)  # every kind was tried
    assert reasons_aside(lines) == reasons_aside(honestly)
    assert torch.equal(weights.flat, expected.flat)
    assert bool(weights.flat.isfinite().all())
    assert num_versions(lines) >= 12
    assert_lawful(lines, patient.concurrency)


@every_protocol
@pytest.mark.parametrize("always_on", [False, True], ids=["to and fro", "on and on"])
def test_no_update_is_so_large_that_no_version_is_made_any_more(name: str, always_on: bool) -> None:
    # Half of what is refused: neither may models and memories overflow for good, nor may the others
    # be refused because the model was brought so far that they begin beyond the limit.
    def lie(task: Task, at: float) -> Event:
        far = Limits().max_norm / 4  # of four numbers: the norm is twice as much
        there = flat(task) + far if always_on else flat(task) * 0.0 + far * (-1) ** task.id
        return Arrived(at, task.id, task.client, Weights(there, START.layout), FINE)

    lines, weights = run_with(name, lie, LONG)
    assert of_kind(lines, "aggregated")[-1]["at"] > 100.0  # of 120 s
    assert not [line for line in of_kind(lines, "failed") if "refused" in line["reason"]]
    assert bool(weights.flat.isfinite().all())
    assert_lawful(lines, LONG.concurrency)


@every_protocol
@pytest.mark.parametrize("kind", BAD)
def test_a_client_is_distrusted_once_its_credits_are_spent(name: str, kind: str) -> None:
    def lie(task: Task, at: float) -> Event:
        tensor, report = BAD[kind](task)
        return Arrived(at, task.id, task.client, Weights(tensor, START.layout), report)

    world = World(credits=2, stop=Stop(updates=12))
    lines, _ = run_with(name, lie, world)
    assert reason(lines) == "updates"  # the honest ones carry on
    refused = [x["client"] for x in of_kind(lines, "failed") if "refused" in x["reason"]]
    for client in LIARS:
        assert refused.count(client) <= 2
        distrusted = [x["client"] for x in of_kind(lines, "distrusted")]
        assert distrusted.count(client) == (refused.count(client) == 2)
    assert_lawful(lines, world.concurrency)


@every_protocol
def test_stops_when_nobody_is_left_to_trust(name: str) -> None:
    def respond(task: Task, now: float) -> list[Event]:
        broken = Weights(flat(task) * math.nan, START.layout)
        return [Arrived(now + 1.0, task.id, task.client, broken, FINE)]

    world = World(credits=2, stop=Stop(versions=9))
    run = assemble(name, world, executor=FakeExecutor(joins(), respond))
    lines = run.run()
    assert reason(lines) == "no clients left"
    assert len(of_kind(lines, "distrusted")) == 6
    assert torch.equal(run.coordinator.weights.flat, START.flat)
    assert_lawful(lines, world.concurrency)
