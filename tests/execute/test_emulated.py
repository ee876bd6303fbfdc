"""Emulated latencies: real clients, and time as a simulation would have it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import pytest
from runs import NUM_EXAMPLES, World, assemble, outcome, task

from pisces.errors import ConfigError
from pisces.execute.base import Capabilities, Handover
from pisces.execute.emulated import Emulated
from pisces.execute.fake import FakeExecutor
from pisces.execute.latency import PerClient
from pisces.stop import Stop
from pisces.types import Arrived, Event, Failed, Joined, Left, Task

LATENCIES = (1.0, 4.0, 6.0)
Respond = Callable[[Task, float], Iterable[Event]]


def result(asked: Task, at: float) -> Arrived:
    done = outcome(asked)
    return Arrived(at, asked.id, asked.client, done.weights, done.report)


def after(seconds: float) -> Respond:
    """Everybody really takes so long."""
    return lambda asked, now: [result(asked, now + seconds)]


def joins(num: int = 3) -> list[Event]:
    return [Joined(0.0, client, NUM_EXAMPLES) for client in range(num)]


def made(
    respond: Respond | None = None, script: Iterable[Event] = ()
) -> tuple[FakeExecutor, Emulated]:
    """Three clients that have joined; they answer after half a second."""
    can = Capabilities(real_time=True, cancels=True, pulls=True, takes_over=True)
    hand_in = after(0.0)
    inner = FakeExecutor([*joins(), *script], respond or after(0.5), can, hand_in=hand_in)
    executor = Emulated(inner, PerClient(LATENCIES))
    assert len(executor.wait(0.0)) == 3
    return inner, executor


def told(executor: Emulated, until: float = math.inf) -> Iterator[tuple[str, float, int]]:
    """Kind, instant and client of all that comes until then."""
    while executor.now < until:
        events = executor.wait(until)
        yield from ((type(event).__name__, event.at, event.client) for event in events)
        if not events:
            return


def test_a_result_counts_when_its_latency_has_passed() -> None:
    _, executor = made()
    for number, client in enumerate((2, 0, 1)):
        executor.submit(task(number, client))
    assert [*told(executor)] == [("Arrived", 1.0, 0), ("Arrived", 4.0, 1), ("Arrived", 6.0, 2)]


def test_who_really_takes_longer_is_as_late_as_it_is() -> None:
    _, executor = made(after(5.0))
    executor.submit(task(0, 0))
    executor.submit(task(1, 2))
    assert [*told(executor)] == [("Arrived", 5.0, 0), ("Arrived", 6.0, 2)]


def test_whose_latency_is_beyond_its_deadline_is_gone_until_it_would_be_done() -> None:
    _, executor = made()
    executor.submit(task(0, 2, deadline_s=2.5))
    assert not executor.quiet
    assert [*told(executor)] == [("Left", 2.5, 2), ("Joined", 6.0, 2)]
    assert executor.quiet
    executor.submit(task(1, 2))  # and it can be asked again
    assert [*told(executor)] == [("Arrived", 12.0, 2)]


def test_a_latency_of_exactly_the_deadline_is_in_time() -> None:
    _, executor = made()
    executor.submit(task(0, 1, deadline_s=4.0))
    assert [*told(executor)] == [("Arrived", 4.0, 1)]


def test_who_really_misses_the_deadline_is_not_back_before_its_time() -> None:
    def late(asked: Task, now: float) -> Iterable[Event]:
        yield Left(now + 2.5, asked.client, "deadline passed", asked.id)
        yield Joined(now + 3.0, asked.client, NUM_EXAMPLES)

    _, executor = made(late)
    executor.submit(task(0, 2, deadline_s=2.5))
    assert [*told(executor)] == [("Left", 2.5, 2), ("Joined", 6.0, 2)]


def test_who_is_gone_when_it_would_be_back_is_not_said_to_be() -> None:
    _, executor = made(script=[Left(3.0, 2, "gone"), Joined(8.0, 2, NUM_EXAMPLES)])
    executor.submit(task(0, 2, deadline_s=2.5))
    assert [*told(executor)] == [("Left", 2.5, 2), ("Joined", 8.0, 2)]


def test_who_leaves_takes_along_what_is_held_of_it() -> None:
    _, executor = made(script=[Left(2.0, 2, "gone")])
    executor.submit(task(7, 2))
    assert executor.wait(math.inf) == [Left(2.0, 2, "gone", 7)]
    assert executor.quiet


def test_a_failure_is_told_at_once() -> None:
    _, executor = made(lambda asked, now: [Failed(now + 0.5, asked.client, "crashed", asked.id)])
    executor.submit(task(0, 2))
    assert executor.wait(math.inf) == [Failed(0.5, 2, "crashed", 0)]
    assert executor.quiet


def test_what_is_held_can_be_called_off() -> None:
    inner, executor = made()
    executor.submit(task(0, 2))
    executor.submit(task(1, 1))
    assert executor.wait(3.0) == []  # both results are here by now
    executor.cancel(0)
    assert inner.cancelled == []  # its client is done: there is nobody to tell
    executor.submit(task(2, 2))
    assert [*told(executor)] == [("Arrived", 4.0, 1), ("Arrived", 9.0, 2)]
    executor.cancel(9)
    assert inner.cancelled == [9]


def test_what_is_pulled_counts_at_once() -> None:
    inner, executor = made(lambda asked, now: [result(asked, now + 1 + asked.client)])
    executor.submit(task(0, 1))
    executor.submit(task(1, 2))
    assert executor.wait(2.5) == []
    executor.pull(0)  # held since 2.0
    executor.pull(1)  # under way
    assert inner.pulled == [1]
    assert [*told(executor, 2.5001)] == [("Arrived", 2.5, 1), ("Arrived", 2.5, 2)]
    executor.pull(9)
    assert inner.pulled == [1]


def test_only_what_was_handed_out_is_acknowledged() -> None:
    inner, executor = made()
    executor.acknowledge()
    assert inner.num_acknowledged == 3  # who joined
    executor.submit(task(0, 0))
    executor.submit(task(1, 1))
    assert len(executor.wait(1.0)) == 1
    executor.acknowledge()
    assert inner.num_acknowledged == 4  # the other one is held
    assert len(executor.wait(4.0)) == 1
    executor.acknowledge()
    assert inner.num_acknowledged == 5


def test_whoever_takes_over_holds_results_back_for_as_long() -> None:
    inner = FakeExecutor((), after(0.5), Capabilities(real_time=True, takes_over=True))
    executor = Emulated(inner, PerClient(LATENCIES))
    running = (task(3, 1), 1.0), (task(4, 2, deadline_s=5.0), 1.5)
    executor.take_over(Handover(2.0, running, (0, 1, 2)))
    assert executor.now == 2.0
    assert [*told(executor)] == [("Arrived", 5.0, 1), ("Left", 6.5, 2), ("Joined", 7.5, 2)]


def test_a_task_takes_as_long_whoever_asks() -> None:
    latency = PerClient(LATENCIES, jitter=0.5, seed=3)
    inner = FakeExecutor(joins(), after(0.0))
    executor = Emulated(inner, latency)
    executor.wait(0.0)
    for number in (5, 6):
        began = executor.now
        executor.submit(task(number, 0))
        (event,) = executor.wait(math.inf)
        assert event.at == began + latency.draw(0, number, task(number, 0))


def test_a_latency_that_makes_no_sense_is_refused() -> None:
    class Wrong(PerClient):
        def draw(self, client: int, turn: int, task: Task) -> float:
            return math.nan

    executor = Emulated(FakeExecutor(joins(), after(0.0)), Wrong(LATENCIES))
    with pytest.raises(ConfigError, match="positive and finite, not nan"):
        executor.submit(task(0, 0))


@pytest.mark.parametrize("deadline_s", [None, 3.5])
@pytest.mark.parametrize("protocol", ["pisces", "fedbuff", "oort", "fedasync"])
def test_a_run_is_that_of_virtual_time(protocol: str, deadline_s: float | None) -> None:
    world = World(deadline_s=deadline_s or 100.0, stop=Stop(time_s=60.0))
    everybody = joins(len(world.latencies))
    can = Capabilities(cancels=True, pulls=True, num_clients=len(world.latencies))
    quick = Emulated(FakeExecutor(everybody, after(0.0), can), PerClient(world.latencies))
    lines = assemble(protocol, world, executor=quick).run()
    assert lines == assemble(protocol, world).run()
    assert any(line["kind"] == "left" for line in lines) == (deadline_s is not None)
