"""Virtual time: who ends when and how, what is trained and when, and going on from saved state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import NUM_EXAMPLES, START, NoopTrainer, Sessions, World, any_world, task, through_json
from torch import nn

from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, RunError
from pisces.execute.availability import Availability, Diurnal
from pisces.execute.failures import Failures, Fate, Kind
from pisces.execute.latency import PerClient
from pisces.execute.virtual import VirtualExecutor
from pisces.models.flat import flatten
from pisces.train.base import Outcome
from pisces.train.sequential import SequentialTrainer
from pisces.types import Arrived, Event, Failed, Joined, Left, Plan, Task


@dataclass(frozen=True)
class Doom(Failures):
    """Failures by hand: clients with a kind of trouble always have it, half way."""

    kinds: Mapping[int, Kind] = field(default_factory=dict)

    def draw(self, client: int, turn: int) -> Fate | None:
        return Fate(self.kinds[client], 0.5) if client in self.kinds else None


def opened(world: World, trainer: NoopTrainer | None = None) -> VirtualExecutor:
    """An executor at time 0, its first joins taken."""
    executor = world.executor(trainer)
    executor.wait(0.0)
    return executor


def doomed(kind: Kind, *, return_after_s: float | None = None) -> VirtualExecutor:
    """One client that needs 10 s and is in trouble after 5."""
    failures = Doom(return_after_s=return_after_s, kinds={0: kind})
    return opened(World(latencies=[10.0], failures=failures))


def rest(executor: VirtualExecutor) -> list[Event]:
    """Everything still to come."""
    events: list[Event] = []
    while not executor.quiet:
        events += executor.wait(math.inf)
    return events


def told(events: list[Event]) -> list[tuple[str, float, int, int | None]]:
    """Kind, instant, client and task of each."""
    return [(type(e).__name__.lower(), e.at, e.client, getattr(e, "task_id", None)) for e in events]


# --- time and order -------------------------------------------------------------------------------


def test_ties_are_settled_in_order_of_submission() -> None:
    executor = opened(World(latencies=[2.0] * 4))
    for number, client in enumerate((2, 0, 3, 1)):
        executor.submit(task(number, client))
    events = executor.wait(math.inf)
    assert told(events) == [("arrived", 2.0, client, i) for i, client in enumerate((2, 0, 3, 1))]


def test_all_of_an_instant_comes_at_once_whatever_its_kind() -> None:
    # At 4: client 0 arrives, 1 crashes (half of 8), 2 goes offline, 3 joins; planned in the order
    # sessions (2, 3), then tasks (0, 1).
    world = World(
        latencies=[4.0, 8.0, 9.0, 1.0],
        failures=Doom(kinds={1: "crash"}),
        availability=Sessions({2: [(0.0, 4.0)], 3: [(4.0, math.inf)]}),
    )
    executor = opened(world)
    for client in range(3):
        executor.submit(task(client, client))
    assert told(executor.wait(math.inf)) == [
        ("left", 4.0, 2, 2),
        ("joined", 4.0, 3, None),
        ("arrived", 4.0, 0, 0),
        ("failed", 4.0, 1, 1),
    ]
    assert executor.now == 4.0


def test_until_is_where_time_stops() -> None:
    executor = opened(World(latencies=[2.0]))
    executor.submit(task(0, 0))
    assert executor.wait(1.5) == []
    assert executor.now == 1.5
    assert told(executor.wait(2.0)) == [("arrived", 2.0, 0, 0)]


def test_a_clients_turns_have_their_own_latencies() -> None:
    # With jitter every turn draws anew; another order of clients does not change that.
    def arrivals(order: list[int]) -> dict[tuple[int, int], float]:
        executor = opened(World(latencies=[3.0, 3.0], jitter=0.5))
        taken = {}
        for turn in range(2):
            began = executor.now
            for client in order:
                executor.submit(task(10 * turn + client, client))
            for event in rest(executor):
                taken[event.client, turn] = event.at - began
        return taken

    there, back = arrivals([0, 1]), arrivals([1, 0])
    assert there == pytest.approx(back)
    assert len({round(s, 9) for s in there.values()}) == 4


# --- training as late as possible -----------------------------------------------------------------


def test_everything_pending_is_trained_in_one_call_when_the_first_result_is_due() -> None:
    trainer = NoopTrainer()
    executor = opened(World(latencies=[1.0, 2.0, 3.0, 4.0]), trainer)
    for client in range(3):
        executor.submit(task(client, client))
    assert trainer.groups == []  # nothing is due yet
    executor.wait(math.inf)
    assert trainer.groups == [[0, 1, 2]]
    executor.submit(task(3, 0))  # due at 2, as task 1 is, whose result is there
    executor.submit(task(4, 3))
    executor.wait(math.inf)
    assert trainer.groups == [[0, 1, 2], [3, 4]]
    assert told(rest(executor)) == [("arrived", 3.0, 2, 2), ("arrived", 5.0, 3, 4)]
    assert trainer.groups == [[0, 1, 2], [3, 4]]  # each exactly once


def test_what_will_not_arrive_is_not_trained() -> None:
    trainer = NoopTrainer()
    kinds: dict[int, Kind] = {0: "crash", 1: "dropout", 2: "vanish"}
    world = World(latencies=[6.0] * 5 + [1.0], failures=Doom(kinds=kinds))
    executor = opened(world, trainer)
    for client in range(3):
        executor.submit(task(client, client))
    executor.submit(task(3, 3, deadline_s=5.0))  # too slow
    executor.submit(task(4, 4))
    executor.submit(task(5, 5))
    executor.cancel(4)
    rest(executor)
    assert trainer.groups == [[5]]


def test_a_cancelled_task_gives_no_event_trained_or_not() -> None:
    executor = opened(World(latencies=[1.0, 2.0, 3.0]))
    for client in range(3):
        executor.submit(task(client, client))
    executor.cancel(1)
    executor.wait(math.inf)  # trains tasks 0 and 2
    executor.cancel(2)
    assert executor.quiet
    executor.submit(task(3, 2))
    assert told(rest(executor)) == [("arrived", 4.0, 2, 3)]


def test_cancelling_one_task_leaves_the_next_of_its_client_alone() -> None:
    executor = opened(World(latencies=[4.0]))
    executor.submit(task(0, 0, deadline_s=9.0))
    executor.wait(1.0)
    executor.cancel(0)
    executor.submit(task(1, 0))
    assert told(rest(executor)) == [("arrived", 5.0, 0, 1)]


# --- trouble --------------------------------------------------------------------------------------


def test_a_crash_ends_the_task_and_the_client_stays() -> None:
    executor = doomed("crash")
    executor.submit(task(0, 0))
    assert rest(executor) == [Failed(5.0, 0, "crashed while training", 0)]
    executor.submit(task(1, 0))  # it may be asked again
    assert told(rest(executor)) == [("failed", 10.0, 0, 1)]


def test_a_drop_out_takes_client_and_task_away() -> None:
    executor = doomed("dropout")
    executor.submit(task(0, 0))
    assert rest(executor) == [Left(5.0, 0, "dropped out", 0)]


def test_a_drop_out_may_return() -> None:
    executor = doomed("dropout", return_after_s=7.0)
    executor.submit(task(0, 0))
    assert rest(executor) == [Left(5.0, 0, "dropped out", 0), Joined(12.0, 0, NUM_EXAMPLES)]


def test_a_silent_client_says_nothing_for_ever() -> None:
    executor = doomed("vanish")
    executor.submit(task(0, 0))
    assert executor.quiet
    assert executor.wait(100.0) == []


def test_a_silent_client_is_given_up_at_its_deadline() -> None:
    executor = doomed("vanish")
    executor.submit(task(0, 0, deadline_s=20.0))
    assert rest(executor) == [Left(20.0, 0, "deadline passed", 0)]


def test_a_silent_client_is_heard_from_again_after_its_deadline() -> None:
    executor = doomed("vanish", return_after_s=30.0)  # silent from 5 to 35
    executor.submit(task(0, 0, deadline_s=20.0))
    assert told(rest(executor)) == [("left", 20.0, 0, 0), ("joined", 35.0, 0, None)]


def test_a_silent_client_that_returns_in_time_has_lost_its_task() -> None:
    executor = doomed("vanish", return_after_s=3.0)
    executor.submit(task(0, 0, deadline_s=20.0))
    assert executor.wait(math.inf) == [Failed(8.0, 0, "came back without its task", 0)]
    assert executor.quiet  # the deadline of a task that ended is nothing to wait for


def test_a_slow_client_is_given_up_and_heard_from_when_it_is_done() -> None:
    executor = opened(World(latencies=[10.0]))
    executor.submit(task(0, 0, deadline_s=4.0))
    assert told(rest(executor)) == [("left", 4.0, 0, 0), ("joined", 10.0, 0, None)]


def test_who_arrives_at_the_deadline_is_in_time() -> None:
    executor = opened(World(latencies=[4.0]))
    executor.submit(task(0, 0, deadline_s=4.0))
    assert told(rest(executor)) == [("arrived", 4.0, 0, 0)]


def test_trouble_after_the_deadline_is_a_deadline_passed() -> None:
    for kind in ("crash", "dropout"):
        executor = doomed(kind, return_after_s=2.0)
        executor.submit(task(0, 0, deadline_s=4.0))
        back_at = 5.0 if kind == "crash" else 7.0  # who dropped out is away 2 s longer
        assert told(rest(executor)) == [("left", 4.0, 0, 0), ("joined", back_at, 0, None)]


# --- sessions -------------------------------------------------------------------------------------


def test_clients_come_and_go_with_their_tasks() -> None:
    sessions = Sessions({0: [(1.0, 3.0), (6.0, math.inf)]})
    executor = World(latencies=[4.0], availability=sessions).executor()
    assert told(executor.wait(math.inf)) == [("joined", 1.0, 0, None)]
    executor.submit(task(0, 0))
    assert executor.wait(math.inf) == [Left(3.0, 0, "went offline", 0)]
    assert told(executor.wait(math.inf)) == [("joined", 6.0, 0, None)]
    executor.submit(task(1, 0))
    assert told(rest(executor)) == [("arrived", 10.0, 0, 1)]


def test_an_idle_client_leaves_without_a_task() -> None:
    executor = opened(World(latencies=[4.0], availability=Sessions({0: [(0.0, 3.0)]})))
    assert rest(executor) == [Left(3.0, 0, "went offline", None)]


def test_sessions_may_touch() -> None:
    executor = opened(World(availability=Sessions({0: [(0.0, 3.0), (3.0, 5.0)]})))
    assert told(executor.wait(math.inf)) == [("left", 3.0, 0, None), ("joined", 3.0, 0, None)]


def test_who_dropped_out_does_not_leave_twice_and_comes_with_its_next_session() -> None:
    sessions = Sessions({0: [(0.0, 8.0), (9.0, math.inf)]})
    failures = Doom(return_after_s=5.0, kinds={0: "dropout"})
    executor = opened(World(latencies=[10.0], failures=failures, availability=sessions))
    executor.submit(task(0, 0))
    # gone at 5; offline at 8; there again at 9; its return at 10 is no news any more
    assert told(rest(executor)) == [("left", 5.0, 0, 0), ("joined", 9.0, 0, None)]


def test_nobody_returns_out_of_session() -> None:
    sessions = Sessions({0: [(0.0, 8.0), (20.0, math.inf)]})
    failures = Doom(return_after_s=5.0, kinds={0: "dropout"})
    executor = opened(World(latencies=[10.0], failures=failures, availability=sessions))
    executor.submit(task(0, 0))
    assert told(rest(executor)) == [("left", 5.0, 0, 0), ("joined", 20.0, 0, None)]


def test_an_old_return_does_not_bring_back_who_has_gone_again() -> None:
    # Half of 10 s: gone at 5 until 35; a new session from 9 on; gone again at 15 until 45.
    sessions = Sessions({0: [(0.0, 8.0), (9.0, math.inf)]})
    failures = Doom(return_after_s=30.0, kinds={0: "dropout"})
    executor = opened(World(latencies=[10.0], failures=failures, availability=sessions))
    executor.submit(task(0, 0))
    assert told(executor.wait(math.inf)) == [("left", 5.0, 0, 0)]
    executor.wait(9.0)
    executor.wait(10.0)
    executor.submit(task(1, 0))
    assert told(rest(executor)) == [("left", 15.0, 0, 1), ("joined", 45.0, 0, None)]


def test_quiet_while_only_news_of_ended_tasks_is_planned() -> None:
    executor = opened(World(latencies=[4.0, 8.0]))
    executor.submit(task(0, 0))
    executor.submit(task(1, 1))
    executor.cancel(0)
    assert not executor.quiet
    executor.cancel(1)
    assert executor.quiet


# --- asked for what there is ----------------------------------------------------------------------

TEN_STEPS = Plan(batch_size=1)  # of a client with ten samples


class Steps(NoopTrainer):
    """Remembers the most steps each task was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.max_steps: list[tuple[int, int | None]] = []

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        self.max_steps += [(task.id, task.plan.max_steps) for task in tasks]
        return super().train(tasks)


def test_a_pulled_task_arrives_at_once_with_the_steps_done_by_now() -> None:
    # 20 s for ten steps: 3.5 of them in 7 s, of which 3 are done.
    trainer = Steps()
    executor = opened(World(latencies=[20.0]), trainer)
    executor.submit(task(0, 0, plan=TEN_STEPS))
    executor.wait(7.0)
    executor.pull(0)
    assert executor.now == 7.0
    assert told(rest(executor)) == [("arrived", 7.0, 0, 0)]
    assert trainer.max_steps == [(0, 3)]
    executor.submit(task(1, 0, plan=TEN_STEPS))  # as ever: 20 s
    assert told(rest(executor)) == [("arrived", 27.0, 0, 1)]


def test_the_fewer_steps_a_plan_has_the_fewer_are_done() -> None:
    # Two epochs of batches of four make 6 steps, of which 4 are wanted: 3 in 15 of 20 s.
    trainer = Steps()
    executor = opened(World(latencies=[20.0]), trainer)
    executor.submit(task(0, 0, plan=Plan(epochs=2, batch_size=4, max_steps=4)))
    executor.wait(15.0)
    executor.pull(0)
    rest(executor)
    assert trainer.max_steps == [(0, 3)]


def test_what_was_trained_already_is_trained_anew() -> None:
    trainer = Steps()
    executor = opened(World(latencies=[20.0, 1.0]), trainer)
    for client in range(2):
        executor.submit(task(client, client, plan=TEN_STEPS))
    executor.wait(math.inf)  # client 1 arrives at 1: both are trained
    executor.wait(10.0)
    executor.pull(0)
    assert told(rest(executor)) == [("arrived", 10.0, 0, 0)]
    assert trainer.max_steps == [(0, None), (1, None), (0, 5)]


def test_with_less_than_one_step_done_it_goes_on() -> None:
    trainer = Steps()
    executor = opened(World(latencies=[20.0]), trainer)
    executor.submit(task(0, 0, plan=TEN_STEPS))
    executor.wait(1.9)
    executor.pull(0)
    assert told(executor.wait(math.inf)) == [("arrived", 20.0, 0, 0)]
    assert trainer.max_steps == [(0, None)]


def test_pulled_twice_it_arrives_once_and_is_cut_once() -> None:
    trainer = Steps()
    executor = opened(World(latencies=[20.0]), trainer)
    executor.submit(task(0, 0, plan=TEN_STEPS))
    executor.wait(10.0)
    executor.pull(0)
    executor.pull(0)
    assert told(rest(executor)) == [("arrived", 10.0, 0, 0)]
    executor.pull(0)  # the server may not have heard of its end yet
    assert executor.quiet
    assert trainer.max_steps == [(0, 5)]


@pytest.mark.parametrize("kind", ["crash", "dropout", "vanish"])
def test_trouble_planned_for_later_does_not_happen(kind: Kind) -> None:
    # In trouble at 5, were it not pulled at 4; its next task is its own trouble, at 4 + 5.
    executor = doomed(kind, return_after_s=3.0)
    executor.submit(task(0, 0, deadline_s=30.0, plan=TEN_STEPS))
    executor.wait(4.0)
    executor.pull(0)
    assert told(executor.wait(math.inf)) == [("arrived", 4.0, 0, 0)]
    executor.submit(task(1, 0, deadline_s=30.0, plan=TEN_STEPS))
    first = executor.wait(math.inf)
    assert [e.at for e in first] == [12.0 if kind == "vanish" else 9.0]
    assert all(getattr(e, "task_id", 1) == 1 for e in (*first, *rest(executor)))


def test_who_fell_silent_cannot_be_asked() -> None:
    executor = doomed("vanish")  # at 5
    executor.submit(task(0, 0, deadline_s=20.0, plan=TEN_STEPS))
    executor.wait(5.0)
    executor.pull(0)
    assert told(rest(executor)) == [("left", 20.0, 0, 0)]


def test_who_was_silent_before_has_nothing_to_hand_in() -> None:
    executor = doomed("vanish")
    executor.submit(task(0, 0))
    executor.wait(6.0)
    executor.cancel(0)
    executor.submit(task(1, 0, deadline_s=20.0, plan=TEN_STEPS))
    executor.wait(14.0)
    executor.pull(1)
    assert told(rest(executor)) == [("left", 26.0, 0, 1)]


def test_who_would_miss_its_deadline_can_be_asked_before_it() -> None:
    executor = opened(World(latencies=[20.0]))
    executor.submit(task(0, 0, deadline_s=8.0, plan=TEN_STEPS))
    executor.wait(6.0)
    executor.pull(0)
    assert told(rest(executor)) == [("arrived", 6.0, 0, 0)]  # and neither leaves nor comes back


def test_the_steps_handed_in_are_the_first_of_all_steps() -> None:
    # Trained for real: asked for after 3.5 of 8 steps, the model is that of a plan of 3.
    generator = torch.Generator().manual_seed(0)
    pair = torch.randn(6, 2, generator=generator), torch.randn(6, 1, generator=generator)
    data, model = FederatedData.from_clients([pair], pair), nn.Linear(2, 1)
    start, latency = flatten(model), PerClient([8.0])

    def trained(max_steps: int | None, pull_at: float) -> Arrived:
        trainer = SequentialTrainer(model, data, lambda out, y: (out - y).square().squeeze(1))
        executor = VirtualExecutor(trainer, data.num_examples, latency, layout=start.layout)
        executor.wait(0.0)
        plan = Plan(epochs=4, batch_size=3, learning_rate=0.1, max_steps=max_steps)
        executor.submit(Task(0, 0, 0, start, plan, seed=5))
        executor.wait(pull_at)
        executor.pull(0)
        [event] = executor.wait(math.inf)
        assert isinstance(event, Arrived)
        return event

    pulled, short = trained(None, 3.5), trained(3, 0.0)
    assert (pulled.at, short.at) == (3.5, 8.0)
    assert pulled.weights.flat.equal(short.weights.flat)
    assert pulled.report == short.report
    assert pulled.report.num_steps == 3


# --- the rest -------------------------------------------------------------------------------------


def test_closing_closes_the_trainer() -> None:
    trainer = NoopTrainer()
    World().executor(trainer).close()
    assert trainer.closed


def drive(executor: VirtualExecutor, num_steps: int, next_id: int) -> list[Event]:
    """Give everybody who is free a task, wait, and again; returns what happened.

    One task in three is asked for what there is, as long as it runs.
    """
    happened: list[Event] = []
    for _ in range(num_steps):
        events = executor.wait(executor.now + 2.0)
        for event in events:
            if not isinstance(event, Left):
                asked = task(next_id, event.client, deadline_s=8.0, seed=next_id, plan=TEN_STEPS)
                executor.submit(asked)
                next_id += 1
        for task_id in range(0, next_id, 3):
            executor.pull(task_id)
        happened += events
    return happened


def facts(events: list[Event]) -> list[object]:
    """Events to compare: results by their very numbers."""
    return [
        (told([e]), e.weights.flat.tolist(), e.report) if isinstance(e, Arrived) else e
        for e in events
    ]


@settings(max_examples=40)
@given(world=any_world(), before=st.integers(0, 30))
def test_goes_on_from_saved_state_as_if_nothing_had_happened(world: World, before: int) -> None:
    trainers = NoopTrainer(), NoopTrainer()
    executor, restored = (world.executor(trainer) for trainer in trainers)
    num = sum(not isinstance(e, Left) for e in drive(executor, before, 0))
    num_calls = len(trainers[0].groups)
    restored.restore(through_json(executor.state()))
    assert restored.now == executor.now
    assert facts(drive(restored, 10, num)) == facts(drive(executor, 10, num))
    assert trainers[1].groups == trainers[0].groups[num_calls:]  # grouped alike, so bit-equal


def test_the_return_of_a_called_off_task_brings_nobody_back_early() -> None:
    # Task 0 would drop out at 5 and be back at 105, but is called off at 1. Task 1, begun at 50,
    # drops out at 55: the client is back at 155, not at 105.
    executor = doomed("dropout", return_after_s=100.0)
    executor.submit(task(0, 0))
    executor.wait(1.0)
    executor.cancel(0)
    executor.wait(50.0)
    executor.submit(task(1, 0))
    assert told(rest(executor)) == [("left", 55.0, 0, 1), ("joined", 155.0, 0, None)]


def test_a_silent_client_stays_silent_when_its_task_is_called_off() -> None:
    executor = doomed("vanish")
    executor.submit(task(0, 0))
    executor.wait(6.0)
    executor.cancel(0)
    executor.submit(task(1, 0, deadline_s=20.0))  # the server cannot know
    assert told(rest(executor)) == [("left", 26.0, 0, 1)]


def test_a_silent_client_comes_back_without_the_task_it_never_heard_of() -> None:
    executor = doomed("vanish", return_after_s=100.0)  # silent at 5, back at 105
    executor.submit(task(0, 0))
    executor.wait(6.0)
    executor.cancel(0)
    executor.submit(task(1, 0))
    assert told(rest(executor)) == [("failed", 105.0, 0, 1)]


@pytest.mark.parametrize("seconds", [-1.0, 0.0, math.nan, math.inf])
def test_a_latency_that_is_none_is_refused(seconds: float) -> None:
    class Odd(PerClient):
        def draw(self, client: int, turn: int, task: Task) -> float:
            return seconds

    executor = VirtualExecutor(NoopTrainer(), np.full(1, 10), Odd([1.0]), layout=START.layout)
    executor.wait(0.0)
    with pytest.raises(ConfigError, match="positive and finite"):
        executor.submit(task(0, 0))


def test_a_task_called_off_before_its_client_falls_silent_silences_nobody() -> None:
    executor = opened(World(latencies=[10.0], failures=Doom(kinds={0: "vanish"})))
    executor.submit(task(0, 0))
    executor.wait(1.0)  # it would fall silent at 5
    executor.cancel(0)
    executor._failures = Failures()
    executor.submit(task(1, 0))
    assert told(rest(executor)) == [("arrived", 11.0, 0, 1)]


class OneByOne(Availability):
    """The sessions of another, which has to be asked client by client."""

    def __init__(self, inner: Availability) -> None:
        self._inner = inner

    def sessions(self, client: int) -> Iterator[tuple[float, float]]:
        return self._inner.sessions(client)


@settings(max_examples=30, deadline=None)
@given(
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 99),
    chances=st.tuples(*[st.floats(0, 0.3)] * 3),
    before=st.integers(0, 40),
)
def test_a_timetable_makes_the_same_run_as_asking_each_client(
    share: float, seed: int, chances: tuple[float, float, float], before: int
) -> None:
    def executor(availability: Availability) -> VirtualExecutor:
        latency = PerClient(np.linspace(1.0, 7.0, 6), jitter=0.5, seed=seed)
        failures = Failures(*chances, return_after_s=3.3, seed=seed)
        more = {"layout": START.layout, "availability": availability, "failures": failures}
        return VirtualExecutor(NoopTrainer(), np.full(6, 40), latency, **more)  # type: ignore[arg-type]

    world = Diurnal(20.0, share, seed)
    one, other = executor(world), executor(OneByOne(world))
    events = drive(one, before, 0)
    assert facts(events) == facts(drive(other, before, 0))
    num = sum(not isinstance(e, Left) for e in events)
    restored = executor(world)
    restored.restore(through_json(one.state()))
    assert facts(drive(restored, 40, num)) == facts(drive(other, 40, num))
    assert not one._sessions  # no generator of anybody


def test_a_checkpoint_with_other_hours_of_the_day_is_refused() -> None:
    world = World(availability=Diurnal(20.0, 0.5))
    state = world.executor().state()
    del state.values["num_stretches"]  # as before there were timetables
    with pytest.raises(RunError, match="other hours"):
        world.executor().restore(state)
