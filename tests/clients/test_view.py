"""The view: whatever a policy does with it, the server does not change."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from worlds import view

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


def test_who_never_joined_is_not_among_the_free() -> None:
    seen = view([10, 10, 10])
    assert [c for c in (-3, -1, 0, 1, 2, 3, 1023, 1024, 10**9) if c in seen.free] == [0, 1, 2]
    assert np.int64(2) in seen.unseen
    assert np.int64(-1) not in seen.unseen
