"""The loop: the order within an instant, ticks, dead ends, stopping, evaluating."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from runs import (
    NUM_EXAMPLES,
    START,
    Assembled,
    NoopTrainer,
    Sessions,
    World,
    assemble,
    assert_lawful,
    max_staleness,
    num_versions,
    of_kind,
    outcome,
    reason,
    simulate,
    task,
    through_json,
)

from pisces.aggregate.average import Averaged
from pisces.aggregate.mean import DiscountedMean
from pisces.clients.checks import Limits
from pisces.clients.view import View
from pisces.coordinator import EVALUATION_POLL_S
from pisces.errors import ConfigError, PolicyError
from pisces.evaluate import Background, Inline, Schedule
from pisces.execute.availability import Markov
from pisces.execute.base import Capabilities
from pisces.execute.failures import Failures
from pisces.execute.fake import FakeExecutor
from pisces.execute.virtual import VirtualExecutor
from pisces.names import PROTOCOLS
from pisces.pace.fedbuff import Buffered
from pisces.pace.papaya import Papaya
from pisces.pace.port import Port
from pisces.policy import Aggregator, Assignment, Combination, Policies, Selector
from pisces.protocols.buffered import port
from pisces.protocols.synchronous import fedavg
from pisces.record.lines import Line
from pisces.select.uniform import Uniform
from pisces.stop import Stop
from pisces.train.base import Outcome
from pisces.types import (
    Arrived,
    Event,
    Joined,
    Left,
    Plan,
    Report,
    Task,
    Update,
    Weights,
)

ANY_NORM = Limits(max_norm=math.inf)
PAIR = World(latencies=[1.0, 2.0], concurrency=2)  # FedAvg: a round takes 2 s, the slower one's


def told(lines: Sequence[Line]) -> list[tuple[str, float]]:
    """Kind and instant of each line."""
    return [(line["kind"], line["at"]) for line in lines]


def answer(latency_s: Callable[[Task], float]) -> Callable[[Task, float], list[Event]]:
    """A response: the result of `NoopTrainer` after so many seconds."""

    def respond(task: Task, now: float) -> list[Event]:
        done = outcome(task)
        return [Arrived(now + latency_s(task), task.id, task.client, done.weights, done.report)]

    return respond


def joins(num: int) -> list[Event]:
    return [Joined(0.0, client, NUM_EXAMPLES) for client in range(num)]


# --- the walk -------------------------------------------------------------------------------------


def test_a_whole_run_line_by_line() -> None:
    lines = simulate("fedavg", replace(PAIR, stop=Stop(versions=2)))
    assert told(lines) == [
        ("joined", 0.0),
        ("joined", 0.0),
        ("evaluated", 0.0),
        ("started", 0.0),
        ("started", 0.0),
        ("arrived", 1.0),
        ("arrived", 2.0),
        ("aggregated", 2.0),  # within one instant: observe, aggregate, evaluate, select
        ("evaluated", 2.0),
        ("started", 2.0),
        ("started", 2.0),
        ("arrived", 3.0),
        ("arrived", 4.0),
        ("aggregated", 4.0),
        ("evaluated", 4.0),
        ("stopped", 4.0),  # nobody is started for a run that is over
    ]
    assert [line["version"] for line in of_kind(lines, "started")] == [0, 0, 1, 1]
    assert [line["weights"] for line in of_kind(lines, "aggregated")] == [[0.5, 0.5]] * 2


def test_returns_the_last_versions_weights() -> None:
    run = assemble("fedavg", replace(PAIR, stop=Stop(versions=1)))
    new = run.coordinator.run()
    # `NoopTrainer` adds (client + 1) / 1000 and under 1e-4 more: 0.0015 on average
    assert new is run.coordinator.weights
    assert new.flat.tolist() == pytest.approx([0.0015, 0.0015, 0.0015, 1.0015], abs=1e-4)
    assert START.flat.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_with_a_tick_decisions_wait_for_the_end_of_the_window() -> None:
    lines = simulate("fedavg", replace(PAIR, tick_s=5.0, stop=Stop(versions=2)))
    # arrivals are noted when they happen, rounds end and begin on the grid
    assert [line["at"] for line in of_kind(lines, "arrived")] == [1.0, 2.0, 6.0, 7.0]
    assert [line["at"] for line in of_kind(lines, "aggregated")] == [5.0, 10.0]
    assert [line["at"] for line in of_kind(lines, "started")] == [0.0, 0.0, 5.0, 5.0]
    assert [line["latency_s"] for line in of_kind(lines, "arrived")] == [1.0, 2.0, 1.0, 2.0]


def test_a_loop_that_slept_through_windows_goes_on_with_the_next_one() -> None:
    class Sleepy(FakeExecutor):
        """Oversleeps to 12 s first, and never wakes at once."""

        def wait(self, until: float) -> list[Event]:
            return super().wait(max(until, 12.0, self.now + 0.3) if until else 0.0)

    executor = Sleepy(joins(2), answer(lambda task: 12.1))
    world = replace(PAIR, tick_s=5.0, stop=Stop(versions=1))
    lines = assemble("fedavg", world, executor=executor).run()
    # The windows end at 5, 10 and 15. It decides at 12, late, and then at 15: what arrives at 12.1
    # must not be caught by making up for the window that ended at 10.
    assert [line["at"] for line in of_kind(lines, "aggregated")] == [15.0]


def test_a_clients_turns_are_seeded_alike_whatever_the_protocol() -> None:
    seeds = []
    for protocol in ("fedavg", "fedbuff"):
        executor = FakeExecutor(joins(2), answer(lambda task: 1.0 + task.client))
        world = replace(PAIR, stop=Stop(time_s=20.0))
        assemble(protocol, world, executor=executor).run()
        by_client = [[t.seed for t in executor.submitted if t.client == c] for c in (0, 1)]
        seeds.append([s[:5] for s in by_client])
    assert seeds[0] == seeds[1]
    assert len({seed for client in seeds[0] for seed in client}) == 10


def test_an_assignment_may_bring_its_own_plan() -> None:
    short = Plan(max_steps=1)

    class Halves(Selector):
        def pick(self, view, slots, rng):  # type: ignore[no-untyped-def]
            return [Assignment(c, short if c else None) for c in view.selectable.tolist()]

    executor = FakeExecutor(joins(2), answer(lambda task: 1.0))
    own = Policies(Halves(), fedavg(2).pacer, fedavg(2).aggregator)
    assemble(own, replace(PAIR, stop=Stop(versions=1)), executor=executor).run()
    assert [t.plan for t in executor.submitted] == [Plan(), short]


def test_one_line_is_logged_per_aggregation(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pisces"):
        simulate("fedavg", replace(PAIR, stop=Stop(versions=2)))
    assert [record.message for record in caplog.records] == [
        "t=2.0 version 1 from 2 updates, staleness up to 0",
        "t=4.0 version 2 from 2 updates, staleness up to 0",
        "t=4.0 stopped: versions",
    ]


# --- calling off ----------------------------------------------------------------------------------


def test_an_over_selected_round_calls_the_late_ones_off() -> None:
    world = World(latencies=[1.0, 2.0, 9.0], concurrency=3, stop=Stop(versions=1, time_s=99.0))
    lines = simulate("fedavg", replace(world, stop=Stop(time_s=2.5)), over_selection=1.5)
    # two of three are enough, at 2 s; client 2 is called off and starts again with the others
    assert of_kind(lines, "aggregated")[0]["at"] == 2.0
    late = of_kind(lines, "failed")[0]
    assert (late["at"], late["client"], late["reason"]) == (2.0, 2, "called off: its round is over")
    assert [(s["at"], s["client"]) for s in of_kind(lines, "started")[3:]].count((2.0, 2)) == 1
    assert_lawful(lines, 3)


def test_where_nothing_can_be_called_off_late_updates_are_dropped() -> None:
    executor = FakeExecutor(
        joins(3), answer(lambda task: (1.0, 2.0, 9.0)[task.client]), Capabilities()
    )
    world = World(concurrency=3, stop=Stop(time_s=9.5))
    lines = assemble("fedavg", world, executor=executor, over_selection=1.5).run()
    late = next(line for line in of_kind(lines, "arrived") if line["client"] == 2)
    assert (late["at"], late["version"]) == (9.0, 0)
    dropped = next(line for line in of_kind(lines, "dropped") if line["task"] == late["task"])
    assert (dropped["at"], dropped["reason"]) == (9.0, "too late")
    assert executor.cancelled == []  # not even at the end
    assert_lawful(lines, 3)


class Asking(Port):
    """A pace that would rather pull, and can do without."""

    @property
    def needs_pull(self) -> bool:
        return False


@pytest.mark.parametrize("pulls", [True, False])
def test_a_task_is_pulled_where_it_can_be_and_never_called_off_instead(pulls: bool) -> None:
    # Client 1 takes 9 s and is one version behind at 2, when client 0 has arrived twice.
    answers = answer(lambda task: (1.0, 9.0)[task.client])
    hand_in = answer(lambda _task: 0.0)
    can = Capabilities(cancels=True, pulls=pulls)
    executor = FakeExecutor(joins(2), answers, can, hand_in=hand_in)
    policies = Policies(Uniform(), Asking(2, 1, bound=1), DiscountedMean(reference="base"))
    lines = assemble(policies, World(concurrency=2, stop=Stop(time_s=2.5)), executor=executor).run()
    asked = [task.client for task in executor.submitted if task.id in executor.pulled]
    assert asked == ([1] if pulls else [])
    slow = [line["at"] for line in of_kind(lines, "arrived") if line["client"] == 1]
    assert slow == ([2.0] if pulls else [])
    reasons = {line["reason"] for line in of_kind(lines, "failed")}
    assert reasons <= {"the run stopped"}


def test_what_ends_with_the_run_has_an_end_in_the_log() -> None:
    executor = FakeExecutor(joins(3), answer(lambda task: (1.0, 5.0, 5.0)[task.client]))
    lines = assemble("fedavg", World(stop=Stop(time_s=3.0)), executor=executor).run()
    slow = [t.id for t in executor.submitted if t.client > 0]
    failed = of_kind(lines, "failed")
    assert [(f["task"], f["reason"]) for f in failed] == [(i, "the run stopped") for i in slow]
    [dropped] = of_kind(lines, "dropped")  # client 0's update waited for the round to end
    assert dropped["reason"] == "the run stopped"
    assert executor.cancelled == slow
    assert_lawful(lines, 3)


# --- dead ends ------------------------------------------------------------------------------------


def test_a_buffer_that_can_no_longer_fill_is_aggregated() -> None:
    # Four updates are wanted, and client 3 leaves at 3.5 for good: three wait, nobody can come.
    world = World(
        latencies=[1.0, 2.0, 3.0, 4.0],
        concurrency=4,
        availability=Sessions({3: [(0.0, 3.5)]}),
        stop=Stop(time_s=20.0),
    )
    lines = simulate("fedbuff", world, buffer_size=4)
    first, second = of_kind(lines, "aggregated")[:2]
    assert (first["at"], len(first["tasks"])) == (3.5, 3)
    assert (second["at"], len(second["tasks"])) == (6.5, 3)  # and so it goes on: 3.5 + 3
    after = [line["kind"] for line in lines[lines.index(first) :]]
    assert after[:5] == ["aggregated", "evaluated", "started", "started", "started"]
    assert reason(lines) == "time"
    assert_lawful(lines, 4)


def test_a_round_goes_on_without_its_silent_members() -> None:
    # Task 0 falls silent without a deadline; once the others are in, nothing will ever happen.
    def respond(task: Task, now: float) -> list[Event]:
        return [] if task.id == 0 else answer(lambda _: 2.0)(task, now)

    lines = assemble(
        "fedavg",
        World(stop=Stop(versions=2)),
        executor=FakeExecutor(joins(3), respond),
    ).run()
    assert [(a["at"], len(a["tasks"])) for a in of_kind(lines, "aggregated")] == [
        (2.0, 2),
        (4.0, 2),
    ]
    assert_lawful(lines, 3)


def test_it_is_no_dead_end_while_the_pacer_means_to_go_on_by_itself() -> None:
    # Client 1 is silent and counts with 10 s; b = 2, so 5 s pass between versions. Client 0's
    # updates of 1 s and 6 s wait for that, though nothing else will happen meanwhile.
    def respond(task: Task, now: float) -> list[Event]:
        return [] if task.client == 1 else answer(lambda _: 1.0)(task, now)

    executor = FakeExecutor(joins(2), respond)
    world = replace(PAIR, stop=Stop(versions=2))
    settings = {"staleness_bound": 2, "unseen_latency_s": 10.0}
    lines = assemble("pisces-paper", world, executor=executor, **settings).run()
    assert [line["at"] for line in of_kind(lines, "arrived")] == [1.0, 6.0]
    assert [line["at"] for line in of_kind(lines, "aggregated")] == [5.0, 10.0]


def test_an_instant_that_has_passed_is_no_reason_to_wake() -> None:
    class Restless(Buffered):
        def next_check(self, view: View) -> float:
            return 0.0

    class Patient(FakeExecutor):
        num_waits = 0

        def wait(self, until: float) -> list[Event]:
            self.num_waits += 1
            assert self.num_waits < 100, "the loop turns without end"
            return super().wait(until)

    executor = Patient(joins(3), answer(lambda task: 1.0 + task.client))
    policies = replace(fedavg(3), pacer=Restless(3, 2))
    lines = assemble(policies, World(stop=Stop(versions=3)), executor=executor).run()
    assert reason(lines) == "versions"


def test_a_dead_end_ends_with_the_limit_it_reaches() -> None:
    # The buffer of two cannot reach five, so it becomes version 1, which is all that was wanted.
    world = World(latencies=[1.0, 1.0], concurrency=2, stop=Stop(versions=1))
    policies = replace(fedavg(2), pacer=Buffered(2, 5))
    lines = simulate(policies, world)
    assert (num_versions(lines), reason(lines)) == (1, "versions")
    assert of_kind(lines, "dropped") == []


def test_silent_clients_without_a_deadline_end_the_run() -> None:
    lines = simulate("fedbuff", World(failures=Failures(vanish=1.0), stop=Stop(versions=9)))
    assert told(lines[-2:]) == [("failed", 0.0), ("stopped", 0.0)]
    assert reason(lines) == "silent clients"
    assert_lawful(lines, 3)


def test_silence_is_noticed_at_once_whatever_the_pacer_would_wait_for() -> None:
    world = World(failures=Failures(vanish=1.0), stop=Stop(versions=9))
    lines = simulate("pisces-paper", world, unseen_latency_s=60.0)
    assert (reason(lines), lines[-1]["at"]) == ("silent clients", 0.0)


def test_nobody_at_all_ends_the_run() -> None:
    lines = assemble("pisces", World(), executor=FakeExecutor()).run()
    assert told(lines) == [("evaluated", 0.0), ("stopped", 0.0)]
    assert reason(lines) == "no clients left"


def test_a_selector_that_picks_nobody_ends_the_run() -> None:
    class Nobody(Selector):
        def pick(self, view, slots, rng):  # type: ignore[no-untyped-def]
            return []

    lines = simulate(replace(fedavg(3), selector=Nobody()), World(stop=Stop(versions=1)))
    assert (reason(lines), lines[-1]["at"]) == ("nobody may be selected", 0.0)


FLITS = [(float(t), t + 0.5) for t in range(60)]
COME_AND_GO = Sessions({0: [(0.0, 7.0), *FLITS[20:]]})


class Once(Selector):
    """Picks everybody once: of those who have been picked, nobody may be selected any more."""

    def pick(self, view, slots, rng):  # type: ignore[no-untyped-def]
        new = view.selectable[view.clients.num_picks[view.selectable] == 0]
        return [Assignment(client) for client in new[:slots].tolist()]


@pytest.mark.parametrize("tick_s", [0.0, 1.0])
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(every_s=0.5)])
def test_nobody_to_select_ends_the_run_though_clients_come_and_go(
    tick_s: float, schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    # Six updates, the buffer wants four: two are aggregated when nobody is picked any more. By then
    # client 0 is away, and back at 20.
    world = World(availability=COME_AND_GO, stop=Stop(versions=9), schedule=schedule, tick_s=tick_s)
    policies = Policies(Once(), Buffered(3, 4), DiscountedMean(reference="base"))
    with caplog.at_level(logging.WARNING, logger="pisces"):
        lines = simulate(policies, world)
    assert (reason(lines), lines[-1]["at"]) == ("nobody may be selected", 20.0)
    assert of_kind(lines, "dropped") == []
    assert [len(line["tasks"]) for line in of_kind(lines, "aggregated")] == [4, 2]
    assert "none of the free is selected" in caplog.text
    assert_lawful(lines, 3)


def test_who_is_still_to_come_may_be_selected() -> None:
    # Client 1 comes at 30, when all there is to pick from is client 0, which was picked. Client 2
    # comes and goes all the time and was picked as well.
    sessions = Sessions({1: [(30.75, math.inf)], 2: [(0.0, 5.0), *FLITS[6:]]})
    world = World(latencies=[1.0, 2.0, 3.0], availability=sessions, stop=Stop(versions=9))
    policies = Policies(Once(), Buffered(3, 3), DiscountedMean(reference="base"))
    lines = simulate(policies, world)
    assert [(a["at"], len(a["tasks"])) for a in of_kind(lines, "aggregated")] == [
        (3.0, 2),
        (32.75, 1),
    ]
    # Client 2 is there again at 33: only then has everybody been refused since.
    assert (reason(lines), lines[-1]["at"]) == ("nobody may be selected", 33.0)


def test_clients_that_stay_away_might_be_selected() -> None:
    # Client 0 never comes back. Nobody can know that of it, so the run goes on to its limit.
    sessions = Sessions({0: [(0.0, 4.0)], 1: [(0.0, 5.0), *FLITS[6:]]})
    world = World(latencies=[1.0, 2.0], availability=sessions, stop=Stop(time_s=50.0))
    policies = Policies(Once(), Buffered(2, 1), DiscountedMean(reference="base"))
    late = replace(world, availability=Sessions({0: [(0.0, 1.5)], 1: [(0.0, 1.5), *FLITS[2:]]}))
    assert reason(simulate(policies, late)) == "time"
    assert reason(simulate(policies, world)) == "nobody may be selected"


@pytest.mark.parametrize("tick_s", [0.0, 5.0])
def test_a_stop_behind_a_saved_run_ends_it_before_it_goes_on(tick_s: float) -> None:
    world = World(tick_s=tick_s, stop=Stop(time_s=100.0))
    first = assemble("fedbuff", world)
    while first.executor.now < 20.0:
        first.coordinator.step()
    for time_s, why in ((10.0, "time"), (50.0, None)):
        second = assemble("fedbuff", replace(world, stop=Stop(time_s=time_s)))
        second.coordinator.restore(through_json(first.coordinator.state()))
        second.coordinator.go_on()
        assert second.coordinator.reason == why


def test_a_stretch_of_refusals_is_saved() -> None:
    world = World(availability=COME_AND_GO, stop=Stop(versions=9))

    def fresh() -> Assembled:
        return assemble(Policies(Once(), Buffered(3, 1), DiscountedMean(reference="base")), world)

    whole, first, second = fresh(), fresh(), fresh()
    while not len(first.coordinator.state().part("dead_ends").arrays["refused"]):
        first.coordinator.step()
    assert first.coordinator.reason is None
    second.coordinator.restore(through_json(first.coordinator.state()))
    assert first.memory.lines + second.run() == whole.run()


def test_an_empty_start_waits_for_those_to_come() -> None:
    late = Sessions({0: [(7.0, math.inf)], 1: [(7.5, math.inf)]})
    lines = simulate("fedavg", replace(PAIR, availability=late, stop=Stop(versions=2)))
    # client 0 alone from 7 to 8; then both, 2 s
    assert [(a["at"], len(a["tasks"])) for a in of_kind(lines, "aggregated")] == [
        (8.0, 1),
        (10.0, 2),
    ]
    assert_lawful(lines, 2)


def test_an_expired_client_is_not_asked_again_before_it_is_heard_from() -> None:
    # Client 2 needs 9 s of the 4 it is given: gone at 4, heard from at 9, asked again then.
    world = World(latencies=[1.0, 1.0, 9.0], deadline_s=4.0, stop=Stop(time_s=10.0))
    lines = [line for line in simulate("fedbuff", world) if line.get("client") == 2]
    assert told(lines) == [
        ("joined", 0.0),
        ("started", 0.0),
        ("left", 4.0),
        ("joined", 9.0),
        ("started", 9.0),
        ("failed", 10.0),
    ]


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "why", "at"),
    [
        # FedAvg over `PAIR`: updates at 1, 2, 3, 4 ...; versions at 2, 4, 6 ...
        (Stop(time_s=5.0), "time", 5.0),
        (Stop(time_s=6.0), "time", 6.0),
        (Stop(versions=3), "versions", 6.0),
        (Stop(updates=3), "updates", 3.0),
        (Stop(versions=3, time_s=5.5), "time", 5.5),
        (Stop(versions=2, time_s=5.5), "versions", 4.0),
        (Stop(updates=3, versions=9), "updates", 3.0),
        (Stop(versions=9, target=0.2), "target", 4.0),  # accuracy is a tenth of the version
        (Stop(versions=2, target=0.3), "versions", 4.0),
        (Stop(versions=9, target=-5.0), "target", 0.0),
        (Stop(versions=9, patience=2, metric="constant"), "patience", 4.0),
        (Stop(versions=9, patience=2), "versions", 18.0),  # always better
    ],
)
def test_stops_at_whichever_limit_comes_first(stop: Stop, why: str, at: float) -> None:
    run = assemble("fedavg", replace(PAIR, stop=stop), evaluator=counting_versions())
    lines = run.run()
    assert (reason(lines), lines[-1]["at"]) == (why, at)
    assert run.coordinator.reason == why
    assert_lawful(lines, 2)


def counting_versions() -> Inline:
    """Evaluates a version by its number: every call is a new one."""
    numbers: Iterator[int] = iter(range(1000))
    return Inline(lambda _version, weights: {"accuracy": next(numbers) / 10, "constant": 1.0})


def test_a_limit_of_time_holds_between_ticks() -> None:
    lines = simulate("fedavg", replace(PAIR, tick_s=5.0, stop=Stop(time_s=7.5)))
    assert (reason(lines), lines[-1]["at"]) == ("time", 7.5)


class Interrupted(VirtualExecutor):
    """Ctrl-C comes in the middle of the third `wait` with news."""

    waits = 0

    def wait(self, until: float) -> list[Event]:
        events = super().wait(until)
        self.waits += bool(events)
        if self.waits == 3:
            raise KeyboardInterrupt
        return events


def interrupted(world: World, trainer: NoopTrainer | None = None) -> VirtualExecutor:
    executor = world.executor(trainer)
    executor.__class__ = Interrupted
    return executor


def test_ctrl_c_ends_the_run_cleanly() -> None:
    # The news of the third `wait` are lost, but the server's books are closed all the same.
    world = World(latencies=[1.0, 2.0, 2.0], stop=Stop(versions=99))
    run = assemble("fedbuff", world, executor=interrupted(world))
    lines = run.run()
    assert reason(lines) == run.coordinator.reason == "interrupted"
    assert_lawful(lines, 3)


def test_ctrl_c_while_training_ends_the_run_cleanly() -> None:
    class Stubborn(NoopTrainer):
        def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
            if len(self.groups) == 1:
                raise KeyboardInterrupt
            return super().train(tasks)

    # At 2 s client 1 goes offline, and the training of what arrives at that instant is broken off:
    # the executor knows that client 1's task has ended, the server never hears of it.
    sessions = Sessions({1: [(0.0, 2.0)]})
    world = World(latencies=[1.0, 9.0], concurrency=2, availability=sessions)
    run = assemble("fedbuff", world, executor=world.executor(Stubborn()), buffer_size=1)
    assert reason(run.run()) == "interrupted"
    assert_lawful(run.memory.lines, 2)


def dismissals(stop: Stop, interrupted_in: int | None = None) -> tuple[FakeExecutor, list[Line]]:
    """A run on an executor that notes what it is told at the end."""
    world = World(stop=stop)

    def answer(task: Task, now: float) -> list[Event]:
        done = outcome(task)
        at = now + 1 + task.client
        return [Arrived(at, task.id, task.client, done.weights, done.report)]

    class Noting(FakeExecutor):
        num_waits = 0

        def wait(self, until: float) -> list[Event]:
            self.num_waits += 1
            if self.num_waits == interrupted_in:
                raise KeyboardInterrupt
            assert not self.is_dismissed
            return super().wait(until)

    executor = Noting([Joined(0.0, client, NUM_EXAMPLES) for client in range(6)], answer)
    return executor, assemble("fedbuff", world, executor=executor).run()


def test_the_end_for_good_calls_everybody_off_and_sends_them_home() -> None:
    executor, lines = dismissals(Stop(versions=2))
    running = {line["task"] for line in of_kind(lines, "failed")}
    assert len(running) > 0
    assert set(executor.cancelled) == running
    assert executor.is_dismissed


def test_an_interruption_is_recorded_and_clients_go_on() -> None:
    executor, lines = dismissals(Stop(versions=9), interrupted_in=4)
    assert reason(lines) == "interrupted"
    assert {line["reason"] for line in of_kind(lines, "failed")} == {"the run stopped"}
    assert len(of_kind(lines, "failed")) == 3  # all that ran
    assert executor.cancelled == []
    assert not executor.is_dismissed


def test_an_interruption_while_deciding_waits_for_the_turn_to_end() -> None:
    # Asked for while task 3 is being handed over: that turn starts everybody it means to.
    run: Assembled

    def respond(task: Task, now: float) -> list[Event]:
        if task.id == 3:
            run.coordinator.interrupt()
        return answer(lambda _: 1.0)(task, now)

    run = assemble("fedavg", World(), executor=FakeExecutor(joins(3), respond))
    lines = run.run()
    assert (reason(lines), lines[-1]["at"]) == ("interrupted", 1.0)
    assert len(of_kind(lines, "started")) == 6
    assert_lawful(lines, 3)


def test_an_interruption_while_waiting_ends_the_run_at_once() -> None:
    class Pressed(FakeExecutor):
        def wait(self, until: float) -> list[Event]:
            if self.submitted:
                run.coordinator.interrupt()
            return super().wait(until)

    run = assemble("fedavg", World(), executor=Pressed(joins(3), answer(lambda task: 1.0)))
    lines = run.run()
    assert (reason(lines), lines[-1]["at"]) == ("interrupted", 0.0)
    assert_lawful(lines, 3)


def test_closing_closes_the_executor() -> None:
    trainer = NoopTrainer()
    world = World(stop=Stop(versions=1))
    run = assemble("fedavg", world, executor=world.executor(trainer))
    run.run()
    assert not trainer.closed
    run.coordinator.close()
    assert trainer.closed


def test_a_bug_is_not_swallowed() -> None:
    class Broken(NoopTrainer):
        def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
            raise ZeroDivisionError

    world = World()
    with pytest.raises(ZeroDivisionError):
        assemble("fedavg", world, executor=world.executor(Broken())).run()


# --- evaluating -----------------------------------------------------------------------------------


def evaluations(schedule: Schedule, stop: Stop, tick_s: float = 0.0) -> list[tuple[float, int]]:
    lines = simulate("fedavg", replace(PAIR, schedule=schedule, stop=stop, tick_s=tick_s))
    return [(line["at"], line["version"]) for line in of_kind(lines, "evaluated")]


def test_without_a_schedule_the_first_and_the_last_version_are_evaluated() -> None:
    assert evaluations(Schedule(), Stop(versions=3)) == [(0.0, 0), (6.0, 3)]


def test_evaluates_on_a_grid_of_time() -> None:
    # versions at 2, 4, 6; what happens at an instant comes before looking at it
    found = evaluations(Schedule(every_s=1.5), Stop(time_s=7.0))
    assert found == [(0.0, 0), (1.5, 0), (3.0, 1), (4.5, 2), (6.0, 3)]


def test_evaluates_the_last_version_at_the_end() -> None:
    assert evaluations(Schedule(every_s=4.0), Stop(time_s=7.0)) == [(0.0, 0), (4.0, 2), (7.0, 3)]


def test_evaluates_every_so_many_versions() -> None:
    found = evaluations(Schedule(every_versions=2), Stop(versions=5))
    assert found == [(0.0, 0), (4.0, 2), (8.0, 4), (10.0, 5)]


def test_evaluates_between_ticks() -> None:
    # versions at 5 and 10
    found = evaluations(Schedule(every_s=3.0), Stop(time_s=10.0), tick_s=5.0)
    assert found == [(0.0, 0), (3.0, 0), (6.0, 1), (9.0, 1), (10.0, 2)]


# AutoFL learns from evaluations, so there they decide; papaya's clients mostly run out of time.
@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "autofl"])
def test_the_schedule_of_evaluations_changes_no_decision(name: str) -> None:
    settings = {"timeout_s": 3.5} if name == "papaya" else {}
    world = World(jitter=0.5, stop=Stop(time_s=30.0), plan=Plan(batch_size=1), deadline_s=20.0)
    logs = [
        simulate(name, replace(world, schedule=schedule), **settings)
        for schedule in (Schedule(), Schedule(every_s=0.7), Schedule(every_versions=1))
    ]
    rest = [[line for line in lines if line["kind"] != "evaluated"] for lines in logs]
    assert rest[0] == rest[1] == rest[2]


def test_who_could_not_be_pulled_is_not_asked_again_by_an_evaluation() -> None:
    # b = 1: at 2 the version is 1 and client 1, of 40 s for ten steps, has done none yet. It would
    # have by 4; but nothing happens before it arrives.
    world = World(latencies=[1.0, 40.0], plan=Plan(batch_size=1), stop=Stop(time_s=50.0))
    logs = [
        simulate(replace(fedavg(2), pacer=Port(2, 1, 1)), replace(world, schedule=schedule))
        for schedule in (Schedule(), Schedule(every_s=0.7))
    ]
    rest = [[line for line in lines if line["kind"] != "evaluated"] for lines in logs]
    assert rest[0] == rest[1]
    assert [line["at"] for line in of_kind(rest[0], "arrived")][:3] == [1.0, 2.0, 40.0]


def test_clients_that_are_called_off_again_and_again_count_as_silent() -> None:
    # Two clients never answer. Both are called off every 2 s: 20 times and once more.
    policies = replace(fedavg(2), pacer=Papaya(2, 1, timeout_s=2.0))
    lines = assemble(policies, World(stop=Stop(versions=1)), executor=FakeExecutor(joins(2))).run()
    assert (reason(lines), lines[-1]["at"]) == ("silent clients", 22.0)


def test_so_do_clients_that_are_always_too_late() -> None:
    # Each would need 10 s and has 2.
    world = World(latencies=[10.0, 10.0], concurrency=2, stop=Stop(versions=1))
    lines = simulate(replace(fedavg(2), pacer=Papaya(2, 1, timeout_s=2.0)), world)
    assert (reason(lines), lines[-1]["at"]) == ("silent clients", 22.0)


def test_the_loop_does_not_wait_for_an_evaluation_in_the_background() -> None:
    # Version 0 is measured until the fourth round has begun. Were the loop to wait, it never would.
    fourth_round, timed_out = threading.Event(), []

    def respond(task: Task, now: float) -> list[Event]:
        if task.version == 3:
            fourth_round.set()
        return answer(lambda _: 1.0)(task, now)

    def slow(_version: int, weights: Weights) -> dict[str, float]:
        timed_out.append(not fourth_round.wait(timeout=20.0))
        return {"accuracy": 0.5}

    executor = FakeExecutor(joins(2), respond, Capabilities(real_time=True))
    world = replace(PAIR, stop=Stop(versions=5))
    lines = assemble("fedavg", world, executor=executor, evaluator=Background(slow)).run()
    assert not any(timed_out)
    versions = [line["version"] for line in of_kind(lines, "evaluated")]
    assert versions == sorted({*versions})
    assert (versions[0], versions[-1]) == (0, 5)
    assert 1 not in versions  # there was a newer one when it could have been its turn
    kinds = [line["kind"] for line in lines]
    assert kinds.index("aggregated") < kinds.index("evaluated")
    assert kinds[-1] == "stopped"


def test_while_a_result_is_to_come_the_loop_looks_for_it_now_and_then() -> None:
    class Late(Inline):
        """The result is there at the third look."""

        looks = 0

        @property
        def busy(self) -> bool:
            return bool(self._done)

        def finished(self) -> list:  # type: ignore[type-arg]
            self.looks += bool(self._done)
            return super().finished() if self.looks > 2 else []

    evaluator = Late(lambda _version, weights: {"accuracy": 1.0})
    executor = FakeExecutor(joins(2), answer(lambda task: 50.0))
    world = replace(PAIR, stop=Stop(target=1.0))
    lines = assemble("fedavg", world, executor=executor, evaluator=evaluator).run()
    # looked at in `_evaluate_if_due` at 0, then once per poll
    assert reason(lines) == "target"
    assert lines[-1]["at"] == pytest.approx(EVALUATION_POLL_S)


# --- what a client may get wrong ------------------------------------------------------------------


def test_answers_nobody_asked_for_are_ignored() -> None:
    def respond(asked: Task, now: float) -> list[Event]:
        done = outcome(asked)

        def arrived(at: float, id: int, client: int) -> Event:
            return Arrived(now + at, id, client, done.weights, done.report)

        stranger = arrived(0.5, asked.id, 1 - asked.client)  # somebody else's task
        unheard = arrived(0.5, 777, asked.client)
        right = arrived(1.0, asked.id, asked.client)
        return [stranger, unheard, right, right]

    executor = FakeExecutor(joins(2), respond)
    run = assemble("fedavg", replace(PAIR, stop=Stop(versions=2)), executor=executor)
    lines = run.run()
    honest = assemble(
        "fedavg",
        replace(PAIR, stop=Stop(versions=2)),
        executor=FakeExecutor(joins(2), answer(lambda task: 1.0)),
    )
    assert [line for line in lines if line["kind"] != "ignored"] == honest.run()
    assert len(of_kind(lines, "ignored")) >= 2 * 4  # of each task started in both rounds
    assert_lawful(lines, 2)
    assert run.coordinator.weights.flat.equal(honest.coordinator.weights.flat)


def test_a_client_that_leaves_takes_its_task_along() -> None:
    # The executor does not say which task it was: the slot must not leak.
    def respond(task: Task, now: float) -> list[Event]:
        return (
            [Left(now + 1.0, 0, "gone")] if task.client == 0 else answer(lambda _: 2.0)(task, now)
        )

    executor = FakeExecutor(joins(2), respond)
    lines = assemble("fedavg", replace(PAIR, stop=Stop(versions=2)), executor=executor).run()
    assert [a["at"] for a in of_kind(lines, "aggregated")] == [2.0, 4.0]
    assert_lawful(lines, 2)


@pytest.mark.parametrize(("guard", "num_dropped"), [("learning", 2), ("clusters", 0)])
def test_outliers_and_the_distrusted_are_noted_and_not_asked_again(
    guard: str, num_dropped: int
) -> None:
    # Client 0 reports a loss of 9, and is left with it, where all others report 1 and are left with
    # a quarter. Its first is one of the first eight, of which nobody is judged; the next two are
    # outliers, and with two credits it is out.
    def respond(task: Task, now: float) -> list[Event]:
        loss, left = (9.0, 9.0) if task.client == 0 else (1.0, 0.25)
        report = Report(NUM_EXAMPLES, loss, loss, loss_left=left)
        return [Arrived(now + 1.0, task.id, task.client, outcome(task).weights, report)]

    world = World(concurrency=8, credits=2, stop=Stop(time_s=20.0))
    executor = FakeExecutor(joins(10), respond)
    lines = assemble("pisces", world, executor=executor, guard=guard).run()
    outliers = of_kind(lines, "outlier")
    assert [line["credits"] for line in outliers] == [1, 0]
    assert [d["task"] for d in of_kind(lines, "dropped")] == [
        line["task"] for line in outliers[:num_dropped]
    ]
    [distrusted] = of_kind(lines, "distrusted")
    assert distrusted["client"] == 0
    after = lines[lines.index(distrusted) :]
    assert 0 not in [line["client"] for line in of_kind(after, "started")]
    assert len(of_kind(after, "started")) > 50  # and the others go on
    assert_lawful(lines, 8)


def test_a_run_with_nobody_left_to_trust_does_not_wait_for_them_to_come_and_go() -> None:
    class Diverging(NoopTrainer):
        def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
            for done in super().train(tasks):
                yield replace(done, weights=Weights(done.weights.flat * math.nan, START.layout))

    world = World(credits=1, availability=Markov(50.0, 5.0, 1), stop=Stop(versions=9))
    lines = assemble("fedbuff", world, executor=world.executor(Diverging())).run()
    assert reason(lines) == "no trusted clients left"
    assert len(of_kind(lines, "distrusted")) == 6
    assert_lawful(lines, 3)


def test_staleness_counts_the_versions_made_meanwhile() -> None:
    # FedBuff, K = 1: client 1 needs 3.5 s; client 0 makes versions at 1, 2 and 3 meanwhile.
    world = World(latencies=[1.0, 3.5], concurrency=2, stop=Stop(time_s=3.5))
    lines = simulate("fedbuff", world, buffer_size=1)
    assert [a["staleness"] for a in of_kind(lines, "aggregated")] == [[0], [0], [0], [3]]
    assert max_staleness(lines) == 3
    # coefficients: (1 + s)^-0.5
    assert of_kind(lines, "aggregated")[-1]["weights"] == [0.5]


def test_tasks_are_handed_over_with_their_deadline() -> None:
    executor = FakeExecutor(joins(2), answer(lambda task: 1.0))
    world = replace(PAIR, deadline_s=60.0, stop=Stop(versions=1))
    assemble("fedavg", world, executor=executor).run()
    assert [t.deadline_s for t in executor.submitted] == [60.0, 60.0]
    assert task(0, 0).deadline_s is None


@pytest.mark.parametrize(
    ("picks", "why"),
    [
        ([0, 0], "up to 2 different clients, not \\[0, 0\\]"),
        ([0, 1, 2], "up to 2 different clients, not \\[0, 1, 2\\]"),
        ([7], "in view.selectable, not \\[7\\]"),
        ([-1], "in view.selectable, not \\[-1\\]"),
    ],
)
def test_a_selector_that_breaks_its_contract_is_told_so(picks: list[int], why: str) -> None:
    class Wrong(Selector):
        def pick(self, view: View, slots: int, rng: object) -> list[Assignment]:
            return [Assignment(client) for client in picks]

    policies = replace(fedavg(2), selector=Wrong())
    with pytest.raises(PolicyError, match=why):
        simulate(policies, World(latencies=[1.0, 2.0, 3.0], concurrency=2))


def test_a_model_that_would_not_be_finite_is_not_made() -> None:
    # Each update passes the checks; their sum overflows. Both are dropped, the model stays.
    def respond(asked: Task, now: float) -> list[Event]:
        size = 3e38 if asked.client else -3e38
        huge = Weights(torch.full_like(START.flat, size), START.layout)
        return [Arrived(now + 1.0, asked.id, asked.client, huge, Report(NUM_EXAMPLES, 1.0, 1.0))]

    policies = replace(fedavg(2), aggregator=DiscountedMean(server_rate=10.0))
    world = replace(PAIR, stop=Stop(time_s=1.5), limits=ANY_NORM)
    run = assemble(policies, world, executor=FakeExecutor(joins(2), respond))
    lines = run.run()
    reasons = {line["reason"] for line in of_kind(lines, "dropped")}
    assert "the model would not be finite" in reasons
    assert of_kind(lines, "aggregated") == []
    assert run.coordinator.weights.flat.equal(START.flat)


def test_what_an_aggregator_made_of_a_model_that_is_not_finite_is_undone() -> None:
    # The first version would be (3e38 - -3e38) x 10; the second is made of ones alone.
    def respond(asked: Task, now: float) -> list[Event]:
        size = (3e38 if asked.client else -3e38) if asked.id < 2 else 1.0
        sent = Weights(torch.full_like(START.flat, size), START.layout)
        return [Arrived(now + 1.0, asked.id, asked.client, sent, Report(NUM_EXAMPLES, 1.0, 1.0))]

    average = Averaged(DiscountedMean(server_rate=10.0), horizon=4.0)
    world = replace(PAIR, stop=Stop(versions=1), limits=ANY_NORM)
    executor = FakeExecutor(joins(2), respond)
    run = assemble(replace(fedavg(2), aggregator=average), world, executor=executor)
    lines = run.run()
    assert len(of_kind(lines, "dropped")) == 2
    assert average.state().values["num_seen"] == 2
    assert bool(average.state().arrays["average"].isfinite().all())


def test_what_is_published_is_evaluated_and_handed_out_but_not_trained_from() -> None:
    class Twice(Aggregator):
        """Every version is one more than the last; what is published is a hundred more."""

        def combine(self, weights: Weights, updates: Sequence[Update], view: View, rng: object):  # type: ignore[no-untyped-def]
            new = Weights(weights.flat + 1, weights.layout)
            shown = Weights(weights.flat + 100, weights.layout)
            return Combination(new, (1.0,) * len(updates), published=shown)

    starts: list[float] = []

    def respond(asked: Task, now: float) -> list[Event]:
        starts.append(float(asked.weights.flat[0]))
        return [Arrived(now + 1.0, asked.id, asked.client, START, Report(NUM_EXAMPLES, 1.0, 1.0))]

    zero = float(START.flat[0])
    policies = replace(fedavg(2), aggregator=Twice())
    world = replace(PAIR, stop=Stop(versions=2), schedule=Schedule(every_versions=1))
    seen: list[float] = []
    evaluator = Inline(lambda _version, w: {"accuracy": seen.append(float(w.flat[0])) or 0.0})  # type: ignore[func-returns-value]
    fake = FakeExecutor(joins(2), respond)
    run = assemble(policies, world, executor=fake, evaluator=evaluator)
    handed_out = run.coordinator.run()
    assert starts == [zero, zero, zero + 1, zero + 1]
    assert seen == [zero, zero + 100, zero + 101]
    assert float(handed_out.flat[0]) == zero + 101
    assert float(run.coordinator.weights.flat[0]) == zero + 2


@pytest.mark.parametrize("junk", [None, [3], [Assignment(1.0)], [Assignment(True)]])  # type: ignore[arg-type]
def test_junk_from_a_selector_is_told_so(junk: object) -> None:
    class Wrong(Selector):
        def pick(self, view: View, slots: int, rng: object):  # type: ignore[no-untyped-def]
            return junk

    with pytest.raises(PolicyError):
        simulate(replace(fedavg(2), selector=Wrong()), PAIR)


def test_a_selector_may_be_a_generator() -> None:
    class Lazy(Selector):
        def pick(self, view: View, slots: int, rng: object):  # type: ignore[no-untyped-def]
            yield Assignment(0)

    lines = simulate(replace(fedavg(2), selector=Lazy()), replace(PAIR, stop=Stop(versions=2)))
    assert num_versions(lines) == 2


def test_a_pace_that_counts_on_pulling_is_refused_where_nobody_can_be_pulled() -> None:
    policies = port(2)
    assert assemble(policies, PAIR, executor=FakeExecutor(joins(2))).coordinator.reason is None
    with pytest.raises(ConfigError, match="this executor cannot: choose another protocol"):
        assemble(policies, PAIR, executor=FakeExecutor(joins(2), None, Capabilities(cancels=True)))


# --- a full buffer --------------------------------------------------------------------------------

UPDATE_BYTES = 4 * START.layout.size


@pytest.mark.parametrize("tick_s", [0.0, 5.0])
@pytest.mark.parametrize("protocol", ["pisces", "fedbuff", "fedavg", "papaya", "port"])
def test_when_no_more_updates_fit_they_are_aggregated(protocol: str, tick_s: float) -> None:
    """As many may wait as would without the limit at some instant, but one."""
    world = World(tick_s=tick_s, deadline_s=60.0, jitter=0.3)  # no two arrive at one instant
    settings = {"buffer_size": 3} if protocol in ("fedbuff", "papaya") else {}
    usual = of_kind(simulate(protocol, world, **settings), "aggregated")
    most = max(len(line["tasks"]) for line in usual) - 1
    assert most >= 1
    limits = Limits(max_buffered_bytes=(most + 1) * UPDATE_BYTES - 1)
    lines = simulate(protocol, replace(world, limits=limits), **settings)
    assert_lawful(lines, world.concurrency)
    versions = of_kind(lines, "aggregated")
    assert max(len(line["tasks"]) for line in versions) == most
    early = [line for line in versions if "reason" in line]
    assert early
    assert {line["reason"] for line in early} == {"no more updates fit in memory"}
    assert all(len(line["tasks"]) == most for line in early)


def test_a_buffer_that_could_never_fill_does_not_stall() -> None:
    limits = Limits(max_buffered_bytes=2 * UPDATE_BYTES)
    world = World(limits=limits, jitter=0.3, stop=Stop(versions=10))
    lines = simulate("fedbuff", world, buffer_size=5)
    assert num_versions(lines) == 10
    assert {len(line["tasks"]) for line in of_kind(lines, "aggregated")} == {2}


def test_without_the_limit_in_sight_nothing_is_other_than_it_was() -> None:
    world = World()
    near = replace(world, limits=Limits(max_buffered_bytes=7 * UPDATE_BYTES))  # for six clients
    assert simulate("pisces", near) == simulate("pisces", world)
    assert not any("reason" in line for line in of_kind(simulate("pisces", near), "aggregated"))
