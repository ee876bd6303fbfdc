"""The running tasks: columns that outlive what happens next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import task

from pisces.clients.running import RunningColumns
from pisces.types import Plan


def test_what_was_seen_stays_as_it_was() -> None:
    columns = RunningColumns()
    columns.add(task(4, client=2, version=1), 0.5)
    columns.add(task(9, client=3, version=2, plan=Plan(max_steps=7)), 1.5)
    seen = columns.seen()
    columns.remove(4)
    columns.add(task(1, client=0, version=2), 2.5)
    assert seen.task_ids.tolist() == [4, 9]
    assert seen.started_at.tolist() == [0.5, 1.5]
    now = columns.seen()
    assert (now.task_ids.tolist(), now.clients.tolist()) == ([9, 1], [3, 0])
    assert (now.versions.tolist(), now.started_at.tolist()) == ([2, 2], [1.5, 2.5])
    assert (seen.max_steps.tolist(), now.max_steps.tolist()) == ([-1, 7], [7, -1])
    with pytest.raises(ValueError, match="read-only"):
        now.versions[0] = 7


@given(ends=st.lists(st.integers(0, 99), max_size=60))
def test_they_are_in_the_order_of_their_start_whoever_ends(ends: list[int]) -> None:
    columns, running = RunningColumns(), []
    for number, end in enumerate(ends):
        for task_id in (2 * number, 2 * number + 1):
            columns.add(task(task_id, client=task_id % 7, version=number), number / 2)
            running.append(task_id)
        columns.remove(running.pop(end % len(running)))
        if end % 3:  # nobody looks: several end before somebody does
            continue
        seen = columns.seen()
        assert seen.task_ids.tolist() == running
        assert seen.clients.tolist() == [task_id % 7 for task_id in running]
        assert seen.versions.tolist() == [task_id // 2 for task_id in running]
        assert seen.started_at.tolist() == [task_id // 2 / 2 for task_id in running]
        assert len(seen) == len(running)


def test_who_ended_while_nobody_looked_makes_room() -> None:
    columns = RunningColumns()
    for number in range(1000):
        columns.add(task(number, client=number, version=0), 0.0)
        if number >= 3:
            columns.remove(number - 3)
    assert columns._started_at.size == 16
    assert columns.seen().task_ids.tolist() == [997, 998, 999]


def test_an_instant_can_be_looked_at_when_it_has_passed() -> None:
    columns = RunningColumns()
    columns.add(task(4, client=2, version=1), 0.5)
    look = columns.look()
    columns.remove(4)
    assert look().task_ids.tolist() == [4]
    assert columns.look()().task_ids.tolist() == []


def test_columns_are_made_only_where_somebody_may_still_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns, num_made = RunningColumns(), []
    monkeypatch.setattr(columns, "seen", lambda: num_made.append(1))
    for number in range(5):
        columns.look()
        columns.add(task(number, client=number, version=0), 0.0)
    assert num_made == []
    look = columns.look()
    columns.remove(3)
    assert num_made == [1]
    assert look() is None
