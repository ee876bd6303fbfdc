"""The pace of what remains: instants worked out by hand, its bound, and how it meets strangers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import World, any_world, max_staleness, num_versions, of_kind, simulate
from worlds import NAN, Started, update, view

from pisces.aggregate.mean import DiscountedMean
from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.pace.pisces import Adaptive
from pisces.pace.remaining import Remaining
from pisces.policy import Pacer, Policies
from pisces.record.lines import Line
from pisces.select.uniform import Uniform
from pisces.stop import Stop

VERSION = 9


def world(latency_s: Sequence[float], running: Sequence[Started], **more: Any) -> View:
    """Version 9, made at 100, with clients of these known latencies (NaN: not seen yet)."""
    given = {"version": VERSION, "last_aggregated_at": 100.0, **more}
    num = len(latency_s) + 1
    return view(
        [10] * num, latency_s=[*latency_s, 1.0], running=running, buffer=[update(num - 1)], **given
    )


def due_at(bound: int, latency_s: float, behind: int, started_at: float) -> float:
    """With one client running that started so many versions ago."""
    return Remaining(5, bound).due_at(world([latency_s], [(0, VERSION - behind, started_at)]))


# --- one instant ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency_s", "behind", "started_at", "expected"),
    # b = 4.
    [
        (15.0, 0, 100.0, 103.0),  # 15 s to go: 4 versions and its own, 5 intervals
        (15.0, 0, 102.5, 103.5),  # started since: from 100 to 117.5 are 17.5 s
        (15.0, 1, 97.0, 103.0),  # until 112: 12 s, 4 left
        (15.0, 1, 89.0, 101.0),  # the version before came late: 4 s, 4 left
        (15.0, 3, 91.0, 103.0),  # until 106: 6 s, 2 left
    ],
)
def test_what_is_left_of_the_bound_is_spread_over_what_remains(
    latency_s: float, behind: int, started_at: float, expected: float
) -> None:
    assert due_at(4, latency_s, behind, started_at) == expected


def test_whoever_needs_the_longest_interval_sets_it() -> None:
    # b = 3. Client 0 is back at 109, 3 left: 3 s. Client 1 is back at 108, 2 left: 4 s. Client 2
    # takes 60 s, but does not run.
    pacer = Remaining(5, 3)
    now = world([10.0, 10.0, 60.0], [(0, 8, 99.0), (1, 7, 98.0)])
    assert pacer.due_at(now) == pacer.next_check(now) == 104.0
    assert not pacer.ready(replace(now, now=103.999))
    assert pacer.ready(replace(now, now=104.0))


@pytest.mark.parametrize(
    ("latency_s", "behind", "started_at", "expected"),
    # b = 4; what counts is how long it had been running at 100.
    [
        (NAN, 0, 100.0, 100.0),  # not at all: it slows nobody down
        (NAN, 0, 103.0, 100.0),  # started since
        (NAN, 0, 90.0, 102.0),  # 10 s, as long again over 5
        (NAN, 3, 90.0, 105.0),  # over 2
        (NAN, 4, 90.0, 110.0),  # one left: as long again
        (4.0, 3, 90.0, 102.0),  # expected at 94: perhaps 4 s more, over 2
        (10.0, 3, 90.0, 105.0),  # expected at this very instant: 10 s more, over 2
        (11.0, 3, 90.0, 100.5),  # expected at 101: 1 s, 2 left
    ],
)
def test_the_unseen_need_as_long_again_and_the_overdue_as_long_as_ever(
    latency_s: float, behind: int, started_at: float, expected: float
) -> None:
    assert due_at(4, latency_s, behind, started_at) == expected


@pytest.mark.parametrize("latency_s", [NAN, 4.0])
@pytest.mark.parametrize("behind", [5, 6, 9])
def test_who_used_up_the_bound_is_waited_for_no_longer(latency_s: float, behind: int) -> None:
    assert due_at(4, latency_s, behind, 90.0) == 100.0
    assert due_at(1, latency_s, behind, 90.0) == 100.0


@pytest.mark.parametrize("behind", [4, 5])
def test_who_may_see_no_more_versions_is_waited_for_and_an_instant_more(behind: int) -> None:
    # Back at 102, b behind or, by rounding alone, one more: rounding must not make another.
    at = due_at(4, 3.0, behind, 99.0)
    assert 102.0 < at < 102.0 + 1e-6


def test_with_nobody_running_there_is_nothing_to_wait_for() -> None:
    idle = world([12.0], [], now=100.0)
    assert Remaining(5, 2).due_at(idle) == 100.0
    assert Remaining(5, 2).ready(idle)


def test_fills_every_seat_and_wants_every_update() -> None:
    pacer, now = Remaining(5, 2), world([12.0, NAN], [(0, 0, 0.0), (1, 0, 0.0)])
    assert pacer.slots(now) == 3
    assert pacer.accepts(now, update(0, version=0))
    assert pacer.release(now) == ()
    assert not pacer.needs_deadline


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        Remaining(5, 0)


def test_against_the_pace_of_the_paper() -> None:
    # 12 s, b = 4, so the paper's interval is 3 s. Ours for a client started with the version is
    # 12 s / 5, 3 s later 15 s / 5, 8 s later 20 s / 5, which is before that; after a late version
    # it is 3 s / 4.
    started = {100.0: 102.4, 103.0: 103.0, 108.0: 104.0}
    cases = [([(0, 9, at)], ours) for at, ours in started.items()]
    for running, ours in [*cases, ([(0, 8, 91.0)], 100.75)]:
        assert Remaining(5, 4).due_at(world([12.0], running)) == ours
        assert Adaptive(5, 4).due_at(world([12.0], running)) == 103.0


moments = st.floats(0.0, 1e6)


@settings(max_examples=200, deadline=None)
@given(
    bound=st.integers(1, 50),
    latencies=st.lists(st.floats(1e-3, 1e5) | st.just(NAN), min_size=1, max_size=4),
    behind=st.lists(st.integers(0, VERSION), min_size=4, max_size=4),
    starts=st.lists(moments, min_size=4, max_size=4),
    last_at=moments,
)
def test_ready_exactly_from_the_instant_it_asked_for(
    bound: int, latencies: list[float], behind: list[int], starts: list[float], last_at: float
) -> None:
    pacer = Remaining(9, bound)
    running = [(c, VERSION - behind[c], starts[c]) for c in range(len(latencies))]
    now = world(latencies, running, last_aggregated_at=last_at)
    at = pacer.next_check(now)
    assert last_at <= at < math.inf
    assert pacer.ready(replace(now, now=at))
    assert not pacer.ready(replace(now, now=math.nextafter(at, -math.inf)))


# --- whole runs -----------------------------------------------------------------------------------


def play(pacer: Pacer, latencies: Sequence[float], concurrency: int, **more: Any) -> list[Line]:
    """The log of clients picked at random."""
    policies = Policies(Uniform(), pacer, DiscountedMean())
    return simulate(policies, World(latencies=latencies, concurrency=concurrency, **more))


def instants(lines: Sequence[Line]) -> list[float]:
    return [line["at"] for line in of_kind(lines, "aggregated")]


def of_clients_that_had_been_seen(lines: Sequence[Line]) -> Iterator[int]:
    """The staleness of every update but each client's first."""
    client_of = {line["task"]: line["client"] for line in of_kind(lines, "started")}
    seen: set[int] = set()
    for line in of_kind(lines, "aggregated"):
        clients = [client_of[task] for task in line["tasks"]]
        told = zip(clients, line["staleness"], strict=True)
        yield from (staleness for client, staleness in told if client in seen)
        seen |= set(clients)


@settings(max_examples=60, deadline=None)
@given(
    sevenths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    bound=st.integers(1, 6),
    concurrency=st.integers(1, 6),
    tick_s=st.sampled_from([0.0, 0.0, 0.25, 1.0]),
    seed=st.integers(0, 99),
)
def test_whose_latency_is_known_is_never_staler_than_b(
    sevenths: list[int], bound: int, concurrency: int, tick_s: float, seed: int
) -> None:
    """Sevenths are inexact floats; the others, not seen yet, may be as slow as they like."""
    exact = [s / 7 for s in sevenths]
    pacer = Remaining(concurrency, bound)
    lines = play(pacer, exact, concurrency, tick_s=tick_s, seed=seed, stop=Stop(time_s=60.0))
    known = list(of_clients_that_had_been_seen(lines))
    assert known
    assert max(known) <= bound


@settings(max_examples=60, deadline=None)
@given(world=any_world(jitter=st.just(0.0)), bound=st.integers(1, 6))
def test_nor_where_clients_come_and_go_and_fail(world: World, bound: int) -> None:
    lines = simulate("pisces-without-guard", world, staleness_bound=bound)
    assert max(of_clients_that_had_been_seen(lines), default=0) <= bound


class NoSlowerThanThePaper(Remaining):
    """Holds itself against the pace of the paper wherever everybody running has been seen."""

    num_compared = 0

    def ready(self, view: View) -> bool:
        running = view.running
        if len(running) and not np.isnan(view.clients.latency_s[running.clients]).any():
            paper = Adaptive(self._concurrency, self._bound).due_at(view)
            assert self.due_at(view) <= max(paper, view.now) * (1 + 1e-9)
            self.num_compared += 1
        return super().ready(view)


@settings(max_examples=40, deadline=None)
@given(
    latencies=st.lists(st.floats(0.25, 4.0), max_size=6),
    bound=st.integers(1, 6),
    concurrency=st.integers(2, 6),
    seed=st.integers(0, 99),
)
def test_where_latencies_are_known_it_is_never_slower_than_the_paper(
    latencies: list[float], bound: int, concurrency: int, seed: int
) -> None:
    pacer = NoSlowerThanThePaper(concurrency, bound)
    play(pacer, [1.0, 2.5, *latencies], concurrency, seed=seed, stop=Stop(time_s=40.0))
    assert pacer.num_compared


SLOW_AND_FAST = [18.0, 1.0]  # both at a time, b = 8


def test_an_unseen_slow_client_is_survived_within_the_bound() -> None:
    """The fast one arrives a second after every version; the slow one is not seen before 18.

    Version t is made at t up to 5, where the slow one has run 5 s and 4 are left: 5 + 5/4 = 6.25.
    Then 3 are left: 6.25 x 4/3 = 25/3, 2: 25/3 x 3/2 = 12.5, and one: 12.5 x 2 = 25. It comes at
    18, 8 behind. (left + 1) x time: 5 x 5, 4 x 6.25, 3 x 25/3, 2 x 12.5. Now it is known, and 8
    versions and its own are made in 18 s.
    """
    lines = play(Remaining(2, 8), SLOW_AND_FAST, 2, stop=Stop(time_s=36.0))
    expected = [1, 2, 3, 4, 5, 6.25, 25 / 3, 12.5, 18, *[18 + 2 * k for k in range(1, 10)]]
    assert instants(lines) == pytest.approx(expected)
    assert [max(line["staleness"]) for line in of_kind(lines, "aggregated")][8::9] == [8, 8]


def test_one_that_stays_away_for_longer_is_not_waited_for() -> None:
    # As above up to 25, a ninth version and one too many; then one with every update of the fast
    # one, until 40 comes: 9 and 14 more are made by then.
    lines = play(Remaining(2, 8), [40.0, 1.0], 2, stop=Stop(time_s=40.0))
    expected = [1, 2, 3, 4, 5, 6.25, 25 / 3, 12.5, *range(25, 41)]
    assert instants(lines) == pytest.approx(expected)
    assert max_staleness(lines) == 23


@pytest.mark.parametrize(
    ("guess_s", "versions"),
    # 180 s / 8 is more than 18 s: one version, at 18, then one every 18 s / 8. Guessed right it is
    # as many in both halves. Ours makes 9 in either.
    [(180.0, 1 + 8), (18.0, 8 + 8)],
)
def test_it_makes_more_versions_than_a_wrong_guess_and_than_a_right_one(
    guess_s: float, versions: int
) -> None:
    stop = Stop(time_s=36.0)
    paper = play(Adaptive(2, 8, unseen_latency_s=guess_s), SLOW_AND_FAST, 2, stop=stop)
    ours = play(Remaining(2, 8), SLOW_AND_FAST, 2, stop=stop)
    assert (num_versions(paper), num_versions(ours)) == (versions, 9 + 9)
