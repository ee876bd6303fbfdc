"""Shared values: they stay light to import, frozen, and count as they say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest
from worlds import update, weights

from pisces import types
from pisces.types import Layout, Plan, Slice, State

LIGHT = ["pisces", "pisces.types", "pisces.policy", "pisces.errors", "pisces.seeds"]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_shared_value_is_frozen() -> None:
    for name in (*EVENTS, *ENTRIES, "Task", "Plan", "Report", "Layout", "Slice", "Weights"):
        assert getattr(types, name).__dataclass_params__.frozen, name
    with pytest.raises(FrozenInstanceError):
        Plan().epochs = 2  # type: ignore[misc]


EVENTS = ("Joined", "Arrived", "Failed", "Left")
ENTRIES = ("Started", "Update", "Dropped", "Aggregated", "Evaluated", "Outlier", "Distrusted")


def test_every_event_and_entry_says_when() -> None:
    for name in (*EVENTS, *ENTRIES, "Stopped"):
        names = {f.name for f in fields(getattr(types, name))}
        assert names & {"at", "arrived_at"}, name


def test_a_layout_counts_parameters_and_everything() -> None:
    layout = Layout(
        (
            Slice("w", (2, 3), "float32", "parameter", 0, 6),
            Slice("b", (2,), "float32", "parameter", 6, 8),
            Slice("mean", (2,), "float32", "buffer", 8, 10),
        )
    )
    assert (layout.size, layout.num_parameters) == (10, 8)
    assert (Layout(()).size, Layout(()).num_parameters) == (0, 0)


def test_staleness_is_versions_made_since() -> None:
    assert update(0, version=3).staleness(3) == 0
    assert update(0, version=3).staleness(7) == 4


def test_weights_are_compared_by_identity() -> None:
    # Comparing tensors for equality would be slow and ambiguous.
    assert weights([1.0]) != weights([1.0])


def test_a_part_with_the_name_of_anothers_beginning_stays_apart() -> None:
    whole = State()
    whole.add("a", State({"x": 1}, {"w": [1]}))
    whole.add("ab", State({"x": 2}, {"w": [2]}))
    assert whole.part("a") == State({"x": 1}, {"w": [1]})
    assert whole.part("ab") == State({"x": 2}, {"w": [2]})
