"""Buffered pace: K updates make a version, very stale ones do not count."""

from __future__ import annotations

import math

import pytest
from worlds import update, view

from pisces.pace.fedbuff import Buffered


@pytest.mark.parametrize(("num", "ready"), [(1, False), (2, True), (3, True)])
def test_ready_with_k_in_the_buffer(num: int, ready: bool) -> None:
    world = view([1] * 4, buffer=[update(c) for c in range(num)], running=[(3, 0, 0.0)])
    assert Buffered(4, size=2).ready(world) is ready


def test_free_seats_are_filled_at_once() -> None:
    pacer = Buffered(3, size=2)
    assert pacer.slots(view()) == 3
    # Two run; the one in the buffer holds no seat.
    world = view([1] * 4, running=[(0, 0, 0.0), (1, 0, 0.0)], buffer=[update(2)])
    assert pacer.slots(world) == 1


@pytest.mark.parametrize(
    ("max_staleness", "trained_from", "wanted"),
    # The version is 7.
    [(None, 0, True), (3, 4, True), (3, 3, False), (0, 7, True), (0, 6, False)],
)
def test_accepts_up_to_the_greatest_staleness(
    max_staleness: int | None, trained_from: int, wanted: bool
) -> None:
    pacer = Buffered(3, size=2, max_staleness=max_staleness)
    assert pacer.accepts(view(version=7), update(0, version=trained_from)) is wanted


def test_time_does_not_matter_and_nobody_is_let_go() -> None:
    pacer = Buffered(3, size=2)
    late = view(running=[(0, 0, 0.0)], buffer=[update(1)], now=1e9, version=50)
    assert not pacer.ready(late)
    assert pacer.next_check(late) == math.inf
    assert pacer.release(late) == ()


def test_fewer_clients_than_k_could_never_fill_the_buffer() -> None:
    assert Buffered(20, size=7).min_clients == 7
    assert not Buffered(20, size=7).needs_deadline
