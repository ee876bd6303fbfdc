"""The scripted executor: what it plays, when, and what it remembers of what was asked."""

from __future__ import annotations

import math

from runs import task

from pisces.execute.base import Capabilities
from pisces.execute.fake import FakeExecutor
from pisces.types import Event, Failed, Joined, Left, Task


def crash(task: Task, now: float) -> list[Event]:
    return [Failed(now + 2.0, task.client, "crashed", task.id)]


def test_plays_the_script_in_order_of_time_then_of_writing() -> None:
    late, first, second = Left(5.0, 1, "gone"), Joined(1.0, 1, 10), Joined(1.0, 0, 10)
    executor = FakeExecutor([late, first, second])
    assert executor.wait(math.inf) == [first, second]
    assert executor.now == 1.0
    assert executor.wait(math.inf) == [late]
    assert executor.now == 5.0


def test_waits_until_then_when_nothing_is_written_for_before() -> None:
    executor = FakeExecutor([Joined(5.0, 0, 10)])
    assert executor.wait(3.0) == []
    assert executor.now == 3.0
    assert len(executor.wait(5.0)) == 1


def test_time_stands_still_when_nothing_is_to_come() -> None:
    executor = FakeExecutor([Joined(5.0, 0, 10)])
    executor.wait(math.inf)
    assert executor.quiet
    assert executor.wait(math.inf) == []
    assert executor.now == 5.0


def test_responds_to_tasks_as_told() -> None:
    executor = FakeExecutor([Joined(1.0, 0, 10)], crash)
    executor.wait(math.inf)
    executor.submit(task(7, 0))
    assert not executor.quiet
    assert executor.wait(math.inf) == [Failed(3.0, 0, "crashed", 7)]  # 1 s, and 2 s after


def test_without_a_response_a_task_is_met_with_silence() -> None:
    executor = FakeExecutor()
    executor.submit(task(0, 0))
    assert executor.quiet
    assert executor.wait(math.inf) == []


def test_remembers_what_was_asked_of_it() -> None:
    executor = FakeExecutor()
    asked = task(3, 1)
    executor.submit(asked)
    executor.cancel(3)
    assert executor.submitted == [asked]
    assert executor.cancelled == [3]


def test_hands_in_what_there_is_as_told() -> None:
    executor = FakeExecutor(
        [Joined(1.0, 0, 10)],
        crash,
        hand_in=lambda task, now: [Left(now, task.client, "gave up", task.id)],
    )
    executor.wait(math.inf)
    executor.submit(task(7, 0))
    executor.pull(7)
    executor.pull(8)  # never sent: noted, no more
    assert executor.pulled == [7, 8]
    assert executor.wait(math.inf) == [Left(1.0, 0, "gave up", 7)]
    assert len(executor.wait(math.inf)) == 1  # what was planned before comes as well


def test_asked_for_what_there_is_it_may_stay_silent() -> None:
    executor = FakeExecutor()
    executor.submit(task(0, 0))
    executor.pull(0)
    assert executor.pulled == [0]
    assert executor.quiet


def test_a_wish_to_cancel_may_cross_with_the_answer() -> None:
    executor = FakeExecutor(respond=crash)
    executor.submit(task(0, 0))
    executor.cancel(0)
    assert len(executor.wait(math.inf)) == 1


def test_an_overdue_event_comes_at_once_and_time_does_not_run_backwards() -> None:
    executor = FakeExecutor([Joined(5.0, 0, 10)], lambda task, now: [Left(now - 4.0, 0, "gone")])
    executor.wait(math.inf)
    executor.submit(task(0, 0))
    assert executor.wait(9.0) == [Left(1.0, 0, "gone")]
    assert executor.now == 5.0
    executor.wait(2.0)
    assert executor.now == 5.0


def test_can_do_what_it_is_said_to() -> None:
    assert FakeExecutor().capabilities == Capabilities(cancels=True, pulls=True)
    network = Capabilities(real_time=True)
    assert FakeExecutor(capabilities=network).capabilities == network
