"""What holds of every executor: add yours to the table and it is held to all of it.

A row is a function that makes an executor over three clients, there from the start, which need
1, 2 and 2 seconds for every task and then answer it. Pulled before that, they hand in what they
would have answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from runs import NUM_EXAMPLES, START, World, implementations, outcome, task, through_json

import pisces.execute
from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.emulated import Emulated
from pisces.execute.fake import FakeExecutor
from pisces.execute.faulty import FaultyExecutor
from pisces.execute.journal import Journaled
from pisces.execute.latency import PerClient
from pisces.execute.realtime import RealTime
from pisces.execute.tape import Tape
from pisces.execute.virtual import VirtualExecutor
from pisces.record.journal import Journal
from pisces.types import Arrived, Event, Joined, Plan, Task

FOLDER = TemporaryDirectory()
LATENCIES = (1.0, 2.0, 2.0)


def answer(task: Task, now: float) -> Iterable[Event]:
    done = outcome(task)
    yield Arrived(now + LATENCIES[task.client], task.id, task.client, done.weights, done.report)


def hand_in(task: Task, now: float) -> Iterable[Event]:
    done = outcome(task)
    yield Arrived(now, task.id, task.client, done.weights, done.report)


def fake() -> FakeExecutor:
    joins = [Joined(0.0, client, NUM_EXAMPLES) for client in range(3)]
    return FakeExecutor(joins, answer, Capabilities(pulls=True, takes_over=True), hand_in=hand_in)


def journaled() -> Journaled:
    folder = Path(mkdtemp(dir=FOLDER.name))
    return Journaled(fake(), Tape(Journal(folder, {})), START)


def emulated() -> Emulated:
    return Emulated(fake(), PerClient(LATENCIES))


def virtual() -> VirtualExecutor:
    return World(latencies=LATENCIES).executor()


EXECUTORS: dict[str, Callable[[], Executor]] = {
    "virtual": virtual,
    "fake": fake,
    "faulty, without faults": lambda: FaultyExecutor(virtual(), layout=START.layout),
    "journaled": journaled,
    "emulated": emulated,
}
every_executor = pytest.mark.parametrize("name", EXECUTORS)


def opened(name: str) -> Executor:
    """An executor whose clients have joined."""
    executor = EXECUTORS[name]()
    executor.wait(0.0)
    return executor


def arrivals(events: Iterable[Event]) -> list[tuple[float, int]]:
    return [(e.at, e.task_id) for e in events if isinstance(e, Arrived)]


def test_every_executor_has_a_row() -> None:
    found = implementations(pisces.execute, "submit")
    # Those in real time cannot be asked what happens at 1.0 s: they have a table of their own.
    found = {kind for kind in found if not issubclass(kind, RealTime)}
    assert found == {type(make()) for make in EXECUTORS.values()}
    assert found >= {VirtualExecutor, FakeExecutor, Journaled}


@every_executor
def test_clients_join_at_the_start(name: str) -> None:
    executor = EXECUTORS[name]()
    assert executor.now == 0.0
    assert executor.wait(0.0) == [Joined(0.0, client, NUM_EXAMPLES) for client in range(3)]
    assert executor.now == 0.0


@every_executor
def test_waits_until_then_and_no_longer(name: str) -> None:
    executor = opened(name)
    executor.submit(task(0, 0))
    assert executor.wait(0.75) == []
    assert executor.now == 0.75
    assert arrivals(executor.wait(1.0)) == [(1.0, 0)]  # `until` itself still counts
    assert executor.now == 1.0


@every_executor
def test_time_never_runs_backwards(name: str) -> None:
    executor = opened(name)
    executor.submit(task(0, 1))
    for until in (1.5, 0.5):
        assert executor.wait(until) == []
        assert executor.now == 1.5
    assert arrivals(executor.wait(math.inf)) == [(2.0, 0)]


@every_executor
def test_hands_out_one_instant_at_a_time_and_all_of_it(name: str) -> None:
    executor = opened(name)
    for number, client in enumerate((2, 0, 1)):
        executor.submit(task(number, client))
    assert arrivals(executor.wait(math.inf)) == [(1.0, 1)]
    assert arrivals(executor.wait(math.inf)) == [(2.0, 0), (2.0, 2)]  # ties: first come, first out


@every_executor
def test_every_task_ends_once(name: str) -> None:
    executor = opened(name)
    for client in range(3):
        executor.submit(task(client, client))
    ended: list[tuple[float, int]] = []
    while not executor.quiet:
        ended += arrivals(executor.wait(math.inf))
    assert ended == [(1.0, 0), (2.0, 1), (2.0, 2)]


@every_executor
def test_quiet_means_that_nothing_will_come(name: str) -> None:
    executor = EXECUTORS[name]()
    assert not executor.quiet  # clients are to join
    executor.wait(0.0)
    assert executor.quiet
    executor.submit(task(0, 0))
    assert not executor.quiet  # neither before it is sent
    executor.send()
    assert not executor.quiet
    executor.wait(math.inf)
    assert executor.quiet
    assert executor.wait(math.inf) == []
    assert executor.now == 1.0  # nothing happened, so no time passed


@every_executor
def test_what_was_said_goes_out_once_however_often_that_is_said(name: str) -> None:
    executor = opened(name)
    executor.send()
    executor.submit(task(0, 0))
    executor.send()
    executor.send()
    assert arrivals(executor.wait(math.inf)) == [(1.0, 0)]
    executor.send()
    assert executor.quiet


@every_executor
def test_a_client_can_be_asked_again(name: str) -> None:
    executor = opened(name)
    executor.submit(task(0, 0))
    executor.wait(math.inf)
    executor.submit(task(1, 0))
    assert arrivals(executor.wait(math.inf)) == [(2.0, 1)]


@every_executor
def test_the_result_is_the_tasks_own(name: str) -> None:
    executor = opened(name)
    executor.submit(asked := task(0, 1, seed=5))
    [event] = executor.wait(math.inf)
    assert isinstance(event, Arrived)
    assert event.client == 1
    assert event.weights.flat.equal(outcome(asked).weights.flat)
    assert event.report == outcome(asked).report


@every_executor
def test_a_cancelled_task_gives_no_event_and_frees_its_client(name: str) -> None:
    executor = opened(name)
    if not executor.capabilities.cancels:
        pytest.skip("it cannot call tasks off")
    executor.submit(task(0, 0))
    executor.cancel(0)
    executor.send()
    assert executor.quiet
    executor.submit(task(1, 0))
    assert arrivals(executor.wait(math.inf)) == [(1.0, 1)]
    assert executor.quiet


@every_executor
def test_what_ended_can_be_cancelled_in_vain(name: str) -> None:
    # The server may not have heard of the end yet: an interrupted `wait` takes its events along.
    executor = opened(name)
    executor.submit(task(0, 0))
    executor.wait(math.inf)
    executor.cancel(0)
    executor.send()
    assert executor.quiet


@every_executor
def test_a_pulled_task_arrives_at_once(name: str) -> None:
    # Ten samples in batches of one: after 1.5 of 2 s something is done.
    executor = opened(name)
    executor.submit(task(0, 1, plan=Plan(batch_size=1)))
    executor.wait(1.5)
    executor.pull(0)
    assert not executor.quiet
    assert arrivals(executor.wait(math.inf)) == [(1.5, 0)]


@every_executor
def test_state_is_a_snapshot(name: str) -> None:
    executor = opened(name)
    executor.submit(task(0, 0))
    before = through_json(executor.state()).values
    assert through_json(executor.state()).values == before  # asking changes nothing
    executor.restore(through_json(executor.state()))
    assert arrivals(executor.wait(math.inf)) == [(1.0, 0)]


@every_executor
def test_what_another_process_began_ends_once(name: str) -> None:
    executor = EXECUTORS[name]()
    if not executor.capabilities.takes_over:
        pytest.skip("it cannot take over")
    executor.take_over(Handover(5.0, ((task(7, 1), 4.5),), (0, 1, 2)))
    assert executor.now == 5.0
    ended: list[tuple[float, int]] = []
    while not executor.quiet:
        ended += arrivals(executor.wait(math.inf))
    assert ended == [(7.0, 7)]


@every_executor
def test_word_that_all_is_written_down_is_taken_at_any_time(name: str) -> None:
    executor = opened(name)
    executor.acknowledge()
    executor.submit(task(0, 0))
    executor.acknowledge()
    assert arrivals(executor.wait(math.inf)) == [(1.0, 0)]


@every_executor
def test_can_be_closed(name: str) -> None:
    executor = opened(name)
    executor.submit(task(0, 0))
    executor.close()


def test_those_around_another_pass_on_that_nobody_is_needed(tmp_path: Path) -> None:
    inner = fake()
    FaultyExecutor(inner, layout=START.layout).dismiss()
    assert inner.is_dismissed
    inner = fake()
    Emulated(inner, PerClient(LATENCIES)).dismiss()
    assert inner.is_dismissed
    inner = fake()
    journaled = Journaled(inner, Tape(Journal(tmp_path, {})), START)
    journaled.wait(0.0)
    assert inner.num_acknowledged == 0
    journaled.dismiss()
    assert inner.is_dismissed
    assert inner.num_acknowledged == 3  # what is safe is said before
