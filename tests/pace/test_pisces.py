"""Adaptive pace: intervals worked out by hand, three modes, and the staleness bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import NAN, update, view, weights

from pisces.aggregate.mean import DiscountedMean
from pisces.clients.manager import ClientManager
from pisces.clients.view import View
from pisces.coordinator import Coordinator
from pisces.errors import ConfigError
from pisces.evaluate import Inline, Schedule
from pisces.execute.fake import FakeExecutor
from pisces.pace.pisces import Adaptive, Mode
from pisces.policy import Policies
from pisces.record.lines import Memory
from pisces.seeds import generator
from pisces.select.uniform import Uniform
from pisces.stop import Stop
from pisces.types import Arrived, Event, Joined, Left, Plan, Report, Task

MODES: tuple[Mode, ...] = ("paper", "elapsed", "strict")


def world(
    latency_s: Sequence[float], running: Sequence[tuple[int, int, float]], **more: Any
) -> View:
    """Clients with these known latencies (NaN: not seen yet) and one update in the buffer."""
    num = len(latency_s) + 1
    return view(
        [10] * num,
        latency_s=[*latency_s, 1.0],
        running=running,
        buffer=[update(num - 1)],
        **more,
    )


# --- one instant, mode `paper` --------------------------------------------------------------------


def test_the_interval_is_the_slowest_running_latency_over_b() -> None:
    # Clients 0 and 1 run (12 s and 8 s); 2 takes 60 s but does not run. 12 / 2 = 6, after 100.
    now = world([12.0, 8.0, 60.0], [(0, 0, 99.0), (1, 0, 50.0)], last_aggregated_at=100.0)
    pacer = Adaptive(5, 2)
    assert pacer.due_at(now) == pacer.next_check(now) == 106.0
    assert not pacer.ready(replace(now, now=105.999))
    assert pacer.ready(replace(now, now=106.0))


@pytest.mark.parametrize(("bound", "due_at"), [(1, 12.0), (2, 6.0), (3, 4.0), (24, 0.5)])
def test_a_larger_bound_means_more_versions(bound: int, due_at: float) -> None:
    assert Adaptive(5, bound).due_at(world([12.0], [(0, 0, 0.0)])) == due_at


@pytest.mark.parametrize("mode", MODES)
def test_with_nobody_running_there_is_nothing_to_wait_for(mode: Mode) -> None:
    pacer = Adaptive(5, 2, mode=mode)
    idle = world([12.0], [], now=7.0, last_aggregated_at=7.0, version=3)
    assert pacer.due_at(idle) == 7.0
    assert pacer.ready(idle)


def test_an_unseen_client_counts_with_the_named_guess() -> None:
    # 0 is seen with 8 s, 1 is not: guessed 180 s, so 180 / 20 = 9.
    running = [(0, 0, 0.0), (1, 0, 0.0)]
    pacer = Adaptive(5, 20, unseen_latency_s=180.0)
    assert pacer.due_at(world([8.0, NAN], running)) == 9.0
    # A guess below what is known changes nothing: 8 / 20.
    assert Adaptive(5, 20, unseen_latency_s=2.0).due_at(world([8.0, NAN], running)) == 0.4
    # 0, as none: the slowest seen.
    assert Adaptive(5, 20, unseen_latency_s=0.0).due_at(world([8.0, NAN], running)) == 0.4


def test_without_a_guess_an_unseen_client_is_as_slow_as_the_slowest_seen() -> None:
    # The slowest seen is client 2 with 30 s, though it does not run: 30 / 2 = 15.
    now = world([8.0, NAN, 30.0], [(0, 0, 0.0), (1, 0, 0.0)])
    assert Adaptive(5, 2).due_at(now) == 15.0


def test_before_anybody_was_seen_the_interval_is_empty() -> None:
    now = view([10, 10], latency_s=[NAN, NAN], running=[(0, 0, 1.0)], last_aggregated_at=1.0)
    assert Adaptive(5, 2).due_at(now) == 1.0


@pytest.mark.parametrize("mode", MODES)
def test_fills_every_seat_and_wants_every_update(mode: Mode) -> None:
    pacer = Adaptive(5, 2, mode=mode)
    now = world([12.0, 8.0], [(0, 0, 0.0), (1, 0, 0.0)], version=40)
    assert pacer.slots(now) == 3
    assert pacer.accepts(now, update(0, version=0))
    assert pacer.release(now) == ()
    assert pacer.min_clients == 1


def test_only_strict_needs_a_deadline() -> None:
    assert [Adaptive(5, 2, mode=mode).needs_deadline for mode in MODES] == [False, False, True]


# --- modes `elapsed` and `strict` -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "latency_s", "started_at", "due_at"),
    [
        # The last aggregation was at 6. Believed 4 s, but running since 0: at 12 it has run 12 s,
        # half of which have passed since 6.
        (2, 4.0, 0.0, 12.0),
        # A quarter of 8 s have passed since 6 at 8.
        (4, 4.0, 0.0, 8.0),
        # Believed 20 s: 6 + 20 / 4 = 11 is later than 8.
        (4, 20.0, 0.0, 11.0),
        # Started after the last aggregation: the time it has run is always shorter. 6 + 4 / 2.
        (2, 4.0, 6.5, 8.0),
        # b = 1: started at the last aggregation or later, so its profile decides. 6 + 4.
        (1, 4.0, 6.0, 10.0),
        # b = 1: running since before it; time since 6 never catches up with time since 5.
        (1, 4.0, 5.0, math.inf),
    ],
)
def test_elapsed_counts_the_time_run_so_far(
    bound: int, latency_s: float, started_at: float, due_at: float
) -> None:
    now = world([latency_s], [(0, 3, started_at)], last_aggregated_at=6.0, version=3)
    assert Adaptive(5, bound, mode="elapsed").due_at(now) == due_at
    assert Adaptive(5, bound).due_at(now) == 6.0 + latency_s / bound  # the paper believes it


def test_elapsed_looks_at_the_longest_running_not_the_slowest() -> None:
    # Client 0 is slow (9 s) but fresh; client 1 (1 s) hangs since 0: (3 x 6 - 0) / 2 = 9 = 6 + 3.
    running = [(0, 3, 6.0), (1, 0, 0.0)]
    now = world([9.0, 1.0], running, last_aggregated_at=6.0, version=3)
    assert Adaptive(5, 3, mode="elapsed").due_at(now) == 9.0
    # Since -6 for the second, (18 + 6) / 2 = 12.
    older = world([9.0, 1.0], [(0, 3, 6.0), (1, 0, -6.0)], last_aggregated_at=6.0, version=3)
    assert Adaptive(5, 3, mode="elapsed").due_at(older) == 12.0


@pytest.mark.parametrize(
    ("bound", "trained_from", "blocked"),
    # The version is 5; one more would leave this client so many behind: 2, 3, 1, 2.
    [(2, 4, False), (2, 3, True), (1, 5, False), (1, 4, True)],
)
def test_strict_blocks_while_a_client_is_b_behind(
    bound: int, trained_from: int, blocked: bool
) -> None:
    pacer = Adaptive(5, bound, mode="strict")
    now = world([4.0], [(0, trained_from, 6.0)], last_aggregated_at=6.0, version=5, now=1e6)
    assert (pacer.due_at(now) == math.inf) is blocked
    assert pacer.ready(now) is not blocked


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        Adaptive(5, 0)


def test_strict_also_counts_the_time_run_so_far() -> None:
    now = world([4.0], [(0, 4, 0.0)], last_aggregated_at=6.0, version=5)
    assert Adaptive(5, 2, mode="strict").due_at(now) == 12.0  # as `elapsed` above


moments = st.floats(0.0, 1e6)


@settings(max_examples=200, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    bound=st.integers(1, 50),
    latencies=st.lists(st.one_of(st.floats(1e-3, 1e5), st.just(NAN)), min_size=1, max_size=4),
    starts=st.lists(moments, min_size=4, max_size=4),
    last_at=moments,
)
def test_ready_exactly_from_the_instant_it_asked_for(
    mode: Mode, bound: int, latencies: list[float], starts: list[float], last_at: float
) -> None:
    pacer = Adaptive(9, bound, mode=mode)
    running = [(c, 0, starts[c]) for c in range(len(latencies))]
    now = world(latencies, running, last_aggregated_at=last_at)
    at = pacer.next_check(now)
    if at < math.inf:
        assert pacer.ready(replace(now, now=at))
        assert not pacer.ready(replace(now, now=math.nextafter(at, -math.inf)))


@settings(max_examples=100, deadline=None)
@given(
    bound=st.integers(2, 50),
    latency_s=st.floats(0.1, 1e4),
    started_at=st.floats(0.0, 1e4),
    last_at=st.floats(0.0, 1e4),
)
def test_elapsed_solves_its_own_inequality(
    bound: int, latency_s: float, started_at: float, last_at: float
) -> None:
    """At `due_at`, and not before: time since last >= max(latency, time run) / b."""
    now = world([latency_s], [(0, 0, started_at)], last_aggregated_at=last_at)
    at = Adaptive(5, bound, mode="elapsed").due_at(now)
    needed = max(latency_s, at - started_at) / bound
    assert at - last_at == pytest.approx(needed, abs=1e-6 * (1 + at))


# --- whole runs -----------------------------------------------------------------------------------

Respond = Callable[[Task, float], Iterable[Event]]


def taking(latency_s: Sequence[float]) -> Respond:
    """Every task of client `i` arrives after `latency_s[i]`."""

    def respond(task: Task, now: float) -> Iterable[Event]:
        at = now + latency_s[task.client]
        return [Arrived(at, task.id, task.client, task.weights, Report(10))]

    return respond


def play(
    pacer: Adaptive, joins_at: Sequence[float], respond: Respond, until: float
) -> list[Mapping[str, Any]]:
    """The versions made, as lines of the record."""
    model, memory = weights([0.0]), Memory()
    script = [Joined(at, client, 10) for client, at in enumerate(joins_at)]
    Coordinator(
        policies=Policies(Uniform(), pacer, DiscountedMean()),
        executor=FakeExecutor(script, respond),
        manager=ClientManager(model.layout),
        evaluator=Inline(lambda _version, _weights: {}),
        recorder=memory,
        weights=model,
        plans=lambda _: Plan(),
        stop=Stop(time_s=until),
        schedule=Schedule(),
        seed=1,
    ).run()
    return [x for x in memory.lines if x["kind"] == "aggregated"]


def test_the_toy_of_the_paper_two_versions_while_the_slowest_trains() -> None:
    """Section 5.2's toy: b = 2, client A (12 s, joins at 1) and client B (3 s, joins at 0).

    0 B starts, 1 A starts; 3 B arrives: with A running the interval is 12 / 2 = 6.
    6 version 1 out of B's update; 9 B arrives again; 12 version 2, the second during A's training.
    13 A arrives, trained from version 0; B (3 s) runs: 12 + 3 / 2 = 13.5 makes version 3, to which
    A comes with staleness 2 = b.
    """
    made = play(Adaptive(2, 2, unseen_latency_s=12.0), [1.0, 0.0], taking([12.0, 3.0]), 14.0)
    assert [x["at"] for x in made] == [6.0, 12.0, 13.5]
    assert [x["staleness"] for x in made] == [[0], [0], [2]]
    during_a = [x for x in made if 1.0 < x["at"] <= 13.0]
    assert len(during_a) == 2


def test_with_b_1_the_slowest_is_waited_for() -> None:
    """A (12 s) and B (3 s) start at 0; B waits in the buffer from 3 on.

    12: A arrives, nobody runs, version 1 has both at staleness 0. Then all over again at 24.
    """
    made = play(Adaptive(2, 1, unseen_latency_s=12.0), [0.0, 0.0], taking([12.0, 3.0]), 25.0)
    assert [x["at"] for x in made] == [12.0, 24.0]
    assert [x["staleness"] for x in made] == [[0, 0], [0, 0]]


def second_time_slower(task: Task, now: float) -> Iterable[Event]:
    """B takes 2 s. A takes 4 s the first time and 40 s the second."""
    first_time = task.version == 0
    latency_s = 2.0 if task.client == 1 else 4.0 if first_time else 40.0
    return [Arrived(now + latency_s, task.id, task.client, task.weights, Report(10))]


def test_a_sudden_straggler_in_the_three_modes() -> None:
    """A took 4 s, then takes 40 s; b = 2, no guess, so the first versions come as updates do.

    2: B arrives, A is unseen, the slowest seen is B's 2 s: 0 + 2 / 2 = 1 has passed: version 1.
    B starts from 1. 4: A and B arrive, nobody runs: version 2, staleness 1 - 0 = 1 for A (from 0)
    and 0 for B (from 1). Both start from 2: A until 44.
    From 6 on B arrives every time it is started; what differs is when that makes a version.
    """
    # paper: A is believed to take 4 s, so one version every 4 / 2 = 2 s. Number 21 is made at 42;
    # at 44 A brings what it trained from number 2: staleness 19.
    paper = play(Adaptive(2, 2), [0.0, 0.0], second_time_slower, 45.0)
    assert [x["at"] for x in paper] == [float(t) for t in range(2, 45, 2)]
    assert max(paper[-1]["staleness"]) == 19
    # elapsed: A runs since 4, so the next is due at (2 last - 4) / 1, if later than last + 2:
    # 4 -> 6 -> 8 -> 12 -> 20 -> 36 -> 68, but A comes before that. Number 7 was made at 36.
    elapsed = play(Adaptive(2, 2, mode="elapsed"), [0.0, 0.0], second_time_slower, 45.0)
    assert [x["at"] for x in elapsed] == [2.0, 4.0, 6.0, 8.0, 12.0, 20.0, 36.0, 44.0]
    assert max(elapsed[-1]["staleness"]) == 5
    # strict: version 3 at 6, version 4 at 8, then A is 2 behind and everybody waits for it.
    strict = play(Adaptive(2, 2, mode="strict"), [0.0, 0.0], second_time_slower, 45.0)
    assert [x["at"] for x in strict] == [2.0, 4.0, 6.0, 8.0, 44.0]
    assert max(strict[-1]["staleness"]) == 2


def unsteady(seed: int) -> Respond:
    """Latencies from 0.5 to 8 s at random; one task in ten ends with its client gone for 3 s."""
    rng = generator(seed, "unsteady")

    def respond(task: Task, now: float) -> Iterable[Event]:
        at = now + 0.5 * 16.0 ** rng.random()
        if rng.random() < 0.1:
            gone = Left(at, task.client, "dropped out", task.id)
            return [gone, Joined(at + 3.0, task.client, 10)]
        return [Arrived(at, task.id, task.client, task.weights, Report(10))]

    return respond


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    bound=st.integers(1, 4),
    concurrency=st.integers(1, 5),
    num_clients=st.integers(1, 7),
)
def test_strict_keeps_the_bound_whatever_the_latencies(
    seed: int, bound: int, concurrency: int, num_clients: int
) -> None:
    pacer = Adaptive(concurrency, bound, mode="strict")
    made = play(pacer, [0.0] * num_clients, unsteady(seed), 60.0)
    assert made
    assert max(s for x in made for s in x["staleness"]) <= bound


@settings(max_examples=25, deadline=None)
@given(
    latency_s=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    bound=st.integers(1, 6),
    concurrency=st.integers(1, 6),
)
def test_exact_latencies_keep_the_bound_in_mode_paper(
    latency_s: list[int], bound: int, concurrency: int
) -> None:
    """Theorem 1, with the true maximum as the guess. Sevenths are inexact floats."""
    exact = [s / 7 for s in latency_s]
    pacer = Adaptive(concurrency, bound, unseen_latency_s=max(exact))
    made = play(pacer, [0.0] * len(exact), taking(exact), 40.0)
    assert made
    assert max(s for x in made for s in x["staleness"]) <= bound
