"""The view: whatever a policy does with it, the server does not change."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from worlds import NAN, view

from pisces.clients.table import Changes, Members


@pytest.mark.parametrize(
    ("kind", "verbs"),
    [(Members, {"mask", "nth"}), (Changes, {"mark", "since"})],
    ids=["members", "changes"],
)
def test_what_policies_are_given_has_no_verb_that_writes(kind: type, verbs: set[str]) -> None:
    assert {name for name in vars(kind) if not name.startswith("_")} == verbs


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("free", "mask", np.ones(3, bool)),
        ("changes", "mark", 7),
        ("clients", "loss", np.zeros(3)),
        ("running", "clients", np.zeros(0, int)),
    ],
)
def test_nothing_in_it_can_be_replaced(part: str, name: str, value: Any) -> None:
    seen = view()
    before = getattr(getattr(seen, part), name)
    with pytest.raises((AttributeError, FrozenInstanceError)):
        setattr(getattr(seen, part), name, value)
    assert getattr(getattr(seen, part), name) is before


def test_arrays_are_for_reading() -> None:
    seen = view()
    for array in (seen.selectable, seen.is_selectable, seen.unseen.mask, seen.clients.loss):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_tasks_are_expected_at_the_pace_of_their_clients_last_ones() -> None:
    # 2 s a step: 7 steps from 3.5; without a limit as many as before, 4. Nobody knows client 2, nor
    # the steps of client 3.
    seen = view(
        [10] * 4,
        latency_s=[8.0, 8.0, NAN, 8.0],
        num_steps=[4, 4, 0, 0],
        running=[(0, 0, 3.5), (1, 0, 5.0), (2, 0, 6.0), (3, 0, 6.0)],
        max_steps=[7, -1, 7, 7],
    )
    np.testing.assert_array_equal(seen.expected_at, [17.5, 13.0, NAN, NAN])
    np.testing.assert_array_equal(seen.seconds_per_step(np.array([3, 0])), [NAN, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        seen.expected_at[0] = 0


def test_who_never_joined_is_not_among_the_free() -> None:
    seen = view([10, 10, 10])
    assert [c for c in (-3, -1, 0, 1, 2, 3, 1023, 1024, 10**9) if c in seen.free] == [0, 1, 2]
    assert np.int64(2) in seen.unseen
    assert np.int64(-1) not in seen.unseen
