"""FedCompass' steps: who joins whom, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import NAN, random_view, view

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.fedcompass import Compass
from pisces.train.shuffle import num_steps
from pisces.types import Plan

PLAN = Plan(epochs=2, batch_size=10, learning_rate=0.3)  # 20 steps for 100 samples


def steps(selector: Compass, seen: View) -> list[tuple[int, int | None]]:
    """Whom it starts, in this order, and the steps of each."""
    picks = selector.pick(replace(seen, plans=lambda _version: PLAN), 9, generator(0, "select"))
    return [(a.client, None if a.plan is None else a.plan.max_steps) for a in picks]


def compass(min_steps: int | None = 4, max_steps: int | None = None) -> Compass:
    return Compass(min_steps=min_steps, max_steps=max_steps)


def test_joins_those_who_leave_it_the_most_steps() -> None:
    # Client 0 takes 2 s per step. At 100: client 1 (1 s, 25 steps from 95) is expected at 120, 10
    # steps away; client 2 (3 s, 10 steps from 80) at 110, 5 steps; client 3 (5 s, 20 steps
    # from 90) at 190, 45 steps, too many.
    seen = view(
        [100] * 4,
        latency_s=[20.0, 7.0, 30.0, 50.0],
        num_steps=[10, 7, 10, 10],
        running=[(1, 3, 95.0), (2, 2, 80.0), (3, 3, 90.0)],
        max_steps=[25, 10, 20],
        now=100.0,
    )
    assert seen.expected_at.tolist() == [120.0, 110.0, 190.0]
    assert steps(compass(), seen) == [(0, 10)]
    assert steps(compass(max_steps=8), seen) == [(0, 5)]
    assert steps(compass(min_steps=6, max_steps=8), seen) == [(0, 8)]  # none fits: its own group


def test_those_who_start_together_arrive_together_with_the_fastest() -> None:
    # 1, 2 and 4 s per step: the fastest takes its 20 steps, the others half and a quarter of them.
    # Client 3, of 7 s, could do 2 in that time, fewer than 4: it opens a group, as client 4 (18 s),
    # for whom 140 s are 7 steps, does not have to.
    seen = view([100] * 5, latency_s=[20.0, 10.0, 40.0, 70.0, 180.0], num_steps=[10] * 5)
    assert steps(compass(), seen) == [(1, 20), (0, 10), (2, 5), (3, 20), (4, 7)]


def test_a_newcomer_does_the_fewest_steps_and_nobody_joins_it() -> None:
    seen = view([100] * 2, latency_s=[20.0, NAN], num_steps=[10, 0])
    assert steps(compass(), seen) == [(0, 20), (1, 4)]
    alone = view([100] * 2, latency_s=[20.0, NAN], num_steps=[10, 0], running=[(1, 0, 0.0)])
    assert steps(compass(), alone) == [(0, 20)]


def test_who_should_have_arrived_by_now_cannot_be_joined() -> None:
    seen = view(
        [100] * 2,
        latency_s=[20.0, 20.0],
        num_steps=[10, 10],
        running=[(1, 0, 0.0)],
        max_steps=[10],
        now=30.0,
    )
    assert steps(compass(), seen) == [(0, 20)]


def test_nobody_does_more_than_its_plan_and_the_fewest_are_a_fifth_of_that() -> None:
    newcomers = view([100, 21, 5])  # 10, 2 and 1 batches of 10, twice: the single sample joins
    few = compass(min_steps=None)
    assert sorted(steps(few, newcomers)) == [(0, 4), (1, 1), (2, 1)]
    assert sorted(steps(compass(min_steps=3, max_steps=99), newcomers)) == [(0, 3), (1, 3), (2, 2)]


def test_the_rest_of_the_plan_is_the_runs_own() -> None:
    seen = replace(view([100]), plans=lambda _version: replace(PLAN, proximal=0.25))
    [picked] = Compass().pick(seen, 1, generator(0, "select"))
    assert picked.plan == replace(PLAN, proximal=0.25, max_steps=4)


@given(
    seed=st.integers(0, 10**6),
    plan=st.builds(
        Plan, st.integers(1, 3), st.integers(1, 40), max_steps=st.none() | st.integers(1, 9)
    ),
)
def test_steps_are_within_their_bounds(seed: int, plan: Plan) -> None:
    seen = replace(random_view(seed, 12), plans=lambda _version: plan)
    for picked in Compass().pick(seen, 12, generator(seed, "select")):
        most, _ = num_steps(int(seen.clients.num_examples[picked.client]), plan)
        assert picked.plan is not None
        assert picked.plan.max_steps is not None
        assert max(1, most // 5) <= picked.plan.max_steps <= most
        assert replace(picked.plan, max_steps=plan.max_steps) == plan


@pytest.mark.parametrize(("least", "most"), [(0, None), (None, 0), (9, 8)])
def test_bounds_that_are_none_are_refused(least: int | None, most: int | None) -> None:
    with pytest.raises(ConfigError, match=r"_steps: must be (at most|greater than or equal to)"):
        compass(least, most)
