"""Comings and goings: in order of time, each taken once, however they are planned."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.execute.availability import Diurnal
from pisces.execute.comings import Comings
from pisces.execute.timetable import Daily, Firsts


def taken(comings: Comings, until: float = math.inf) -> list[tuple[float, list[tuple[int, bool]]]]:
    """Everything still to come before an instant: when, and who comes (or goes)."""
    found = []
    while comings.next_at < until:
        at = comings.next_at
        clients, come = comings.take()
        found.append((at, list(zip(clients.tolist(), come.tolist(), strict=True))))
    return found


def test_comings_are_taken_instant_by_instant_the_lower_id_first() -> None:
    never = math.inf
    comings = Comings(Firsts(np.array([[2.0, 5.0], [0.0, 2.0], [never, never], [0.0, never]])))
    assert comings.next_at == 0.0
    clients, come = comings.take()
    assert (clients.tolist(), come.tolist()) == ([1, 3], [True, True])
    other = Comings(Firsts(np.empty((0, 2))))
    assert other.next_at == math.inf
    other.restore(*comings.left(), comings.num_stretches)
    rest = [(2.0, [(0, True), (1, False)]), (5.0, [(0, False)])]
    assert taken(comings) == taken(other) == rest
    assert [len(part) for part in comings.left()] == [0, 0]


def expected(world: Diurnal, num_clients: int, until: float) -> list[tuple[float, int, bool]]:
    """The same as each client's own sessions say."""
    found = []
    for client in range(num_clients):
        for joins_at, leaves_at in world.sessions(client):
            if joins_at >= until:
                break
            found += [(joins_at, client, True), (leaves_at, client, False)]
    return sorted(one for one in found if one[0] < until)


@given(
    st.floats(1e-3, 1e6),
    st.floats(1e-6, 1, exclude_max=True),
    st.integers(0, 99),
    st.integers(0, 9),
    st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_a_timetable_is_what_all_sessions_say(
    period_s: float, share: float, seed: int, num_clients: int, per_stretch: int
) -> None:
    world = Diurnal(period_s, share, seed)
    until = 3.3 * period_s
    hours = world._hours(num_clients)
    comings = Comings(Daily(hours, period_s, share * period_s, per_stretch))
    found = [(at, *one) for at, ones in taken(comings, until) for one in ones]
    assert sorted(found) == expected(world, num_clients, until)
    assert [at for at, _, _ in found] == sorted(at for at, _, _ in found)


def test_a_timetable_is_taken_up_where_it_was_left() -> None:
    def comings() -> Comings:
        world = Diurnal(100.0, 0.3, seed=4)
        return Comings(Daily(world._hours(50), 100.0, 30.0, per_stretch=7))

    one, other = comings(), comings()
    before = taken(one, 130.0)
    other.restore(*one.left(), one.num_stretches)
    assert 0 < len(one.left()[0]) <= 20  # of a stretch, not of all
    assert taken(other, 300.0) == taken(one, 300.0)
    assert before + taken(comings(), 300.0)[len(before) :] == taken(comings(), 300.0)


def test_who_goes_and_comes_at_one_instant_goes_first() -> None:
    # a session ends where the next one begins: there all day long
    found = taken(Comings(Daily(np.array([50.0, 25.0]), 100.0, 100.0)), 200.0)
    assert found[0] == (0.0, [(0, True), (1, True)])
    for at, ones in found[1:]:
        clients = [client for client, _ in ones]
        assert [come for _, come in ones] == [False, True], (at, ones)
        assert clients[0] == clients[1]
