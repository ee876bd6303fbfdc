"""Sessions: increasing, disjoint, the same each time they are asked for."""

from __future__ import annotations

import json
import math
from itertools import islice, pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.errors import ConfigError, DataError
from pisces.execute.availability import Always, Availability, Diurnal, Late, Markov, Trace

CSV = "client,joins_at,leaves_at\n"


def first(world: Availability, client: int, num: int = 50) -> list[tuple[float, float]]:
    return list(islice(world.sessions(client), num))


def online_s(world: Availability, client: int, until: float) -> float:
    sessions = takewhile(lambda s: s[0] < until, world.sessions(client))
    return sum(min(leaves, until) - joins for joins, leaves in sessions)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


worlds = st.one_of(
    st.just(Always()),
    st.builds(Markov, st.floats(1e-3, 1e5), st.floats(1e-3, 1e5), st.integers(0, 99)),
    st.builds(Diurnal, st.floats(1e-3, 1e6), st.floats(1e-6, 1), st.integers(0, 99)),
)
late_worlds = st.builds(Late, worlds, st.floats(1e-3, 50), st.floats(0, 1), st.integers(0, 99))


@given(worlds | late_worlds, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_sessions_increase_are_disjoint_and_start_again(world: Availability, client: int) -> None:
    sessions = first(world, client, 20)
    assert sessions
    assert sessions[0][0] >= 0
    assert all(joins < leaves for joins, leaves in sessions)
    assert all(one[1] <= other[0] for one, other in pairwise(sessions))
    assert len(sessions) == 20 or sessions[-1][1] == math.inf
    assert first(world, client, 20) == sessions


def test_always() -> None:
    assert first(Always(), 3) == [(0.0, math.inf)]


def test_markov_keeps_its_share_and_its_means() -> None:
    world = Markov(30.0, 10.0, seed=1)
    # share 30 / 40; at the start 75 % of 400 clients, sd of the share 2.2 %
    starts = [first(world, client, 1)[0][0] for client in range(400)]
    assert sum(at == 0 for at in starts) / 400 == pytest.approx(0.75, abs=0.07)
    spells = first(world, 0, 2000)
    lengths = [leaves - joins for joins, leaves in spells]
    gaps = [other[0] - one[1] for one, other in pairwise(spells)]
    assert sum(lengths) / len(lengths) == pytest.approx(30.0, rel=0.1)
    assert sum(gaps) / len(gaps) == pytest.approx(10.0, rel=0.1)


def test_markov_differs_between_clients_and_seeds() -> None:
    spells = [first(Markov(3.0, 1.0, seed), client, 3) for seed in (0, 1) for client in (0, 1)]
    assert all(spells.count(one) == 1 for one in spells)


def test_spells_lost_in_rounding_still_make_progress() -> None:
    # offline ends near 1e6 s, where 1e-300 s is far below the spacing of floats
    sessions = first(Markov(1e-300, 1e6), 0, 5)
    assert all(joins < leaves for joins, leaves in sessions)


def test_diurnal_is_there_for_its_share_of_every_period() -> None:
    world = Diurnal(100.0, 0.25, seed=2)
    for client in range(20):
        # any 4 whole periods hold 4 x 25 s online, wherever the phase lies
        assert online_s(world, client, 400.0) == pytest.approx(100.0)
        joins = [at for at, _ in first(world, client, 6)][1:]
        assert all(b - a == pytest.approx(100.0) for a, b in pairwise(joins))
    assert len({first(world, client, 2)[1][0] for client in range(20)}) == 20


def test_diurnal_clients_may_begin_in_the_middle_of_a_session() -> None:
    world = Diurnal(100.0, 0.25, seed=2)
    starts = [first(world, client, 1)[0] for client in range(400)]
    there = [leaves for joins, leaves in starts if joins == 0]
    assert len(there) / 400 == pytest.approx(0.25, abs=0.07)
    assert max(there) < 25.0
    assert max(joins for joins, _ in starts) < 100.0


def test_a_share_of_one_is_always() -> None:
    assert first(Diurnal(100.0, 1.0), 0) == [(0.0, math.inf)]


def test_late_cuts_what_comes_before_the_first_instant() -> None:
    late = Late(Always(), over_s=60.0, share=1.0, seed=5)
    starts = [first(late, client)[0] for client in range(200)]
    assert all(0 < joins <= 60 and leaves == math.inf for joins, leaves in starts)
    # uniform: mean 30, sd of the mean of 200 is 17.3 / sqrt(200) = 1.2
    assert sum(joins for joins, _ in starts) / 200 == pytest.approx(30.0, abs=5.0)


def test_late_keeps_later_sessions_whole() -> None:
    inner = Diurnal(10.0, 0.5, seed=1)
    for client in range(20):
        (joins, leaves), *rest = first(Late(inner, 35.0, 1.0, seed=3), client, 5)
        whole = [s for s in first(inner, client, 20) if s[1] >= leaves]
        assert rest == whole[1:5]
        assert leaves == whole[0][1]
        assert joins >= whole[0][0]


def test_a_larger_share_adds_late_clients_and_moves_none() -> None:
    few = [first(Late(Always(), 60.0, 0.2, 5), c)[0][0] for c in range(300)]
    many = [first(Late(Always(), 60.0, 0.6, 5), c)[0][0] for c in range(300)]
    assert all(a in (0.0, b) for a, b in zip(few, many, strict=True))
    assert sum(at > 0 for at in few) / 300 == pytest.approx(0.2, abs=0.08)
    assert sum(at > 0 for at in many) / 300 == pytest.approx(0.6, abs=0.08)
    assert first(Late(Always(), 60.0, 0.0), 0) == [(0.0, math.inf)]


# --- traces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", CSV + "0,50,\n2,1,2\n0,0,10\n0,10,20\n"),
        ("a.json", json.dumps([[[0, 10], [10, 20], [50, None]], [], [[1, 2]]])),
        ("a.json", json.dumps({"2": [[1, 2]], "0": [[50, None], [10, 20], [0, 10]]})),
    ],
)
def test_a_trace_gives_its_sessions_in_order(tmp_path: Path, name: str, text: str) -> None:
    world = Trace(written(tmp_path, name, text))
    assert first(world, 0) == [(0.0, 10.0), (10.0, 20.0), (50.0, math.inf)]
    assert first(world, 0) == first(world, 0)
    assert first(world, 2) == [(1.0, 2.0)]
    assert first(world, 1) == first(world, 99) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "holds no session"),
        ("0,5\n", "line 2: there must be 3 values"),
        ("0,soon,9\n", "line 2: joins_at must be a number, not 'soon'"),
        ("0,,9\n", "line 2: joins_at must be a number, not ''"),
        ("0,1,later\n", "line 2: leaves_at must be a number, not 'later'"),
        ("0,-1,5\n", "line 2: a session must start at 0 or later"),
        ("0,5,5\n", "line 2: .* not last from 5.0 to 5.0"),
        ("0,nan,5\n", "line 2: a session must start at 0 or later"),
        ("0,inf,\n", "line 2: a session must start at 0 or later"),
        ("0,5,9\n0,0,6\n", r"line 2: .* client 0 starts at 5.0, before .*line 3 ends \(6.0\)"),
        ("0,0,\n0,7,9\n", r"line 3: .*line 2 ends \(inf\)"),
    ],
)
def test_a_wrong_trace_is_named(tmp_path: Path, rows: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Trace(written(tmp_path, "a.csv", CSV + rows))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Markov(0.0, 1.0), "mean_online_s .* not 0.0"),
        (lambda: Markov(1.0, 0.0), "mean_offline_s .* not 0.0"),
        (lambda: Markov(math.inf, 1.0), "mean_online_s"),
        (lambda: Markov(1.0, math.nan), "mean_offline_s"),
        (lambda: Diurnal(0.0, 0.5), "period_s"),
        (lambda: Diurnal(math.inf, 0.5), "period_s"),
        (lambda: Diurnal(10.0, 0.0), "online_share .* not 0.0"),
        (lambda: Diurnal(10.0, 1.1), "online_share"),
        (lambda: Late(Always(), 0.0, 0.5), "over_s"),
        (lambda: Late(Always(), math.inf, 0.5), "over_s"),
        (lambda: Late(Always(), 1.0, -0.1), "share of late clients"),
        (lambda: Late(Always(), 1.0, math.nan), "share of late clients"),
    ],
)
def test_impossible_worlds_are_refused(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=words):
        make()


# --- all first sessions at once -------------------------------------------------------------------


@given(worlds | late_worlds)
@settings(max_examples=30, deadline=None)
def test_the_first_sessions_of_all_are_those_of_each(world: Availability) -> None:
    expected = [next(world.sessions(client)) for client in range(5)]
    assert [tuple(row) for row in world.first_sessions(5).tolist()] == expected


def test_who_has_no_session_never_comes(tmp_path: Path) -> None:
    world = Trace(written(tmp_path, "t.csv", CSV + "1,2.0,3.0\n"))
    assert world.first_sessions(2).tolist() == [[math.inf, math.inf], [2.0, 3.0]]
    assert world.first_sessions(0).shape == (0, 2)


def test_diurnal_hours_are_drawn_by_client_however_many_there_are() -> None:
    world = Diurnal(86400.0, 0.3, seed=7)
    many = world.first_sessions(5000)
    assert np.array_equal(world.first_sessions(5000), many)
    assert np.array_equal(world.first_sessions(17), many[:17])
    for client in (0, 1, 63, 64, 4999):
        assert next(world.sessions(client)) == tuple(many[client].tolist())
