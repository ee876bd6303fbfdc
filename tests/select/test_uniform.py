"""Uniform selection: fair, without replacement, only among the free."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import random_view, update, view

from pisces.seeds import generator
from pisces.select.uniform import Uniform
from pisces.types import State


def picked(world, slots: int, seed: int = 0) -> list[int]:
    return [a.client for a in Uniform().pick(world, slots, generator(seed, "select"))]


def test_picks_only_the_free() -> None:
    world = view(
        [10] * 6,
        running=[(0, 0, 0.0)],
        buffer=[update(1)],
        present=[True, True, False, True, True, True],
        trusted=[True, True, True, False, True, True],
    )
    assert sorted(picked(world, 6)) == [4, 5]


def test_every_client_is_as_likely() -> None:
    # 2 of 4 clients, 2000 times: each is expected 1000 times, with a standard deviation of 22.
    rng = generator(1, "select")
    world = view([1, 10, 100, 1000])
    counts = Counter(a.client for _ in range(2000) for a in Uniform().pick(world, 2, rng))
    assert sorted(counts) == [0, 1, 2, 3]
    assert all(abs(n - 1000) < 110 for n in counts.values())


def test_nobody_to_pick() -> None:
    assert picked(view([]), 3) == []
    assert picked(view([1, 2], present=[False, False]), 3) == []
    assert picked(view([1, 2]), 0) == []
    assert picked(view([1, 2]), -1) == []


def test_client_ids_are_plain_integers_and_there_is_no_state() -> None:
    # Both end up in JSON, which knows no numpy integers.
    assert all(type(client) is int for client in picked(view([1, 2, 3]), 3))
    assert Uniform().state() == State()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), num=st.integers(0, 40), slots=st.integers(0, 50))
def test_fills_the_slots_with_different_clients(seed: int, num: int, slots: int) -> None:
    world = random_view(seed, num)
    clients = picked(world, slots, seed)
    assert len(set(clients)) == len(clients) == min(slots, len(world.selectable))
    assert set(clients) <= set(world.selectable.tolist())
