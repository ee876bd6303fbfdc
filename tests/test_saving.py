"""Saved tasks, updates and generators come back the same, through JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import update, weights

from pisces.saving import (
    load_generator,
    load_task,
    load_update,
    save_generator,
    save_task,
    save_update,
)
from pisces.seeds import generator
from pisces.types import Plan, State, Task

MODEL = weights([1.0, 2.0])


def through_json(values: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values))


@pytest.mark.parametrize("deadline_s", [None, 12.5])
@pytest.mark.parametrize("plan", [Plan(), Plan(5, 7, 0.1, 0.01, 3)])
def test_a_task_comes_back(plan: Plan, deadline_s: float | None) -> None:
    state = State()
    task = Task(3, 7, 2, MODEL, plan, seed=2**62 + 1, deadline_s=deadline_s)
    back = load_task(through_json(save_task(task, state)), state, MODEL.layout)
    for name in ("id", "client", "version", "plan", "seed", "deadline_s"):
        assert getattr(back, name) == getattr(task, name)
    assert torch.equal(back.weights.flat, MODEL.flat)
    assert back.weights.layout is MODEL.layout


@pytest.mark.parametrize("loss", [None, 0.75])
def test_an_update_comes_back(loss: float | None) -> None:
    state = State()
    one = update(
        4, [5.0, 6.0], base=[1.0, 2.0], version=3, loss=loss, latency_s=0.1 + 0.2, arrived_at=9.5
    )
    back = load_update(through_json(save_update(one, state)), state, MODEL.layout)
    for name in ("task_id", "client", "version", "report", "arrived_at", "latency_s"):
        assert getattr(back, name) == getattr(one, name)
    assert back.weights.flat.tolist() == [5.0, 6.0]
    assert back.base.flat.tolist() == [1.0, 2.0]


def test_the_weights_of_a_version_are_kept_once() -> None:
    state = State()
    save_task(Task(0, 0, 2, MODEL, Plan(), 0), state)
    save_task(Task(1, 1, 2, MODEL, Plan(), 0), state)
    save_update(update(2, [5.0, 6.0], base=[1.0, 2.0], version=2, task_id=9), state)
    assert sorted(state.arrays) == ["update/9", "version/2"]


def test_a_generator_goes_on_where_it_stood() -> None:
    old, new = generator(1, "select"), generator(2, "other")
    old.random(7)
    old.integers(0, 10, dtype=np.int32)  # leaves half a draw in the generator's pocket
    load_generator(new, through_json(save_generator(old)))
    assert np.array_equal(old.integers(0, 1000, 9, dtype=np.int32), new.integers(0, 1000, 9, "i4"))
    assert np.array_equal(old.random(5), new.random(5))


def test_a_saved_generator_does_not_move_with_the_living_one() -> None:
    rng = generator(1, "select")
    saved = save_generator(rng)
    first = rng.random()
    load_generator(rng, saved)
    assert rng.random() == first


@settings(max_examples=30)
@given(names=st.lists(st.text("ab/", min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
def test_states_nest(names: list[str]) -> None:
    """A part put below a name is found there again, whatever the names."""
    whole = State()
    parts = {f"part{i}": State({"i": i}, {n: [i, n] for n in names}) for i in range(3)}
    for name, part in parts.items():
        whole.add(name, part)
    assert {name: whole.part(name) for name in parts} == parts
