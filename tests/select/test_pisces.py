"""Guided selection: Eq. 2 by hand, the cold start, and the ranking it rests on."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import NAN, random_view, view

from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.pisces import Guided, utilities
from pisces.select.quality import data_quality
from pisces.select.top import top
from pisces.types import State

NO_EXPLORATION = {"exploration": 0.0, "min_exploration": 0.0}


def known_world():
    """Five clients that reported; their utilities are worked out in `test_utilities_by_hand`."""
    return view(
        [100, 200, 50, 400, 100],
        loss_rms=[2.0, 1.5, 8.0, 0.5, 3.0],
        staleness={0: [0, 0], 2: [3, 3, 3], 3: [0], 4: [7, 9]},
    )


def clients(assignments) -> list[int]:
    return [a.client for a in assignments]


def test_utilities_by_hand() -> None:
    # samples x RMS loss x (staleness + 1)^-1/2
    # 0: 100 x 2.0 / sqrt(1) = 200      1: 200 x 1.5 / sqrt(1) = 300 (no staleness known: 0)
    # 2:  50 x 8.0 / sqrt(4) = 200      3: 400 x 0.5 / sqrt(1) = 200
    # 4: 100 x 3.0 / sqrt(9) = 100 (mean staleness (7 + 9) / 2 = 8)
    found = utilities(known_world(), np.arange(5), 0.5)
    assert found == pytest.approx([200, 300, 200, 200, 100])


def test_without_penalty_staleness_does_not_count() -> None:
    found = utilities(known_world(), np.array([4, 2]), 0.0)
    assert found == pytest.approx([300, 400])  # 100 x 3, 50 x 8
    pick = Guided(staleness_penalty=0.0, **NO_EXPLORATION).pick(
        known_world(), 1, generator(0, "select")
    )
    assert clients(pick) == [2]


def test_takes_the_highest_and_draws_among_ties() -> None:
    # 300 (client 1) is always in, 100 (client 4) never; 0, 2 and 3 tie at 200 for the other place:
    # of 600 draws each is expected 200 times, with a standard deviation of 12.
    rng = generator(2, "select")
    selector = Guided(**NO_EXPLORATION)
    counts = Counter(c for _ in range(600) for c in clients(selector.pick(known_world(), 2, rng)))
    assert counts[1] == 600
    assert counts[4] == 0
    assert all(abs(counts[c] - 200) < 60 for c in (0, 2, 3))


def test_untold_losses_are_guessed() -> None:
    # Known: 1, 2 and 6, median 2. Client 3 reported without a loss: 10 x 2 = 20.
    world = view([10] * 4, loss_rms=[1.0, 2.0, 6.0, NAN], num_reports=[1, 1, 1, 1])
    assert data_quality(world, np.arange(4)) == pytest.approx([10, 20, 60, 20])
    assert data_quality(world, np.array([3])) == pytest.approx([10])  # nobody told: 1
    assert data_quality(world, np.array([], np.int64)).shape == (0,)


def test_explores_a_binomial_number_of_newcomers() -> None:
    # 20 newcomers, 20 known, 10 slots at a steady share of 0.3: Binomial(10, 0.3) has mean 3 and
    # variance 2.1, so the mean of 500 picks has a standard deviation of 0.065.
    world = view([10] * 40, loss_rms=[1.0] * 20 + [NAN] * 20)
    selector = Guided(exploration=0.3, min_exploration=0.3)
    rng = generator(3, "select")
    numbers = [sum(c >= 20 for c in clients(selector.pick(world, 10, rng))) for _ in range(500)]
    assert abs(np.mean(numbers) - 3.0) < 0.3
    assert abs(np.var(numbers) - 2.1) < 0.6


def test_newcomers_are_drawn_whatever_their_size() -> None:
    # All but certain exploration, 1 slot, sizes 1 and 1000: half of 400 each, deviation 10.
    world = view([1, 1000, 5], loss_rms=[NAN, NAN, 9.0])
    selector = Guided(exploration=1.0, exploration_decay=1.0)
    rng = generator(4, "select")
    counts = Counter(c for _ in range(400) for c in clients(selector.pick(world, 1, rng)))
    assert abs(counts[0] - 200) < 50
    assert counts[2] == 0


def test_one_kind_fills_in_for_the_other() -> None:
    rng = generator(5, "select")
    only_new = view([10] * 4)
    assert len(clients(Guided(**NO_EXPLORATION).pick(only_new, 3, rng))) == 3
    only_known = view([10] * 4, loss_rms=[1.0, 2.0, 3.0, 4.0])
    assert sorted(clients(Guided(exploration=1.0).pick(only_known, 3, rng))) == [1, 2, 3]
    one_new = view([10] * 4, loss_rms=[1.0, NAN, 3.0, 4.0])
    assert sorted(clients(Guided(exploration=1.0).pick(one_new, 3, rng))) == [1, 2, 3]


def test_exploration_shrinks_with_each_selection_down_to_the_floor() -> None:
    selector = Guided(exploration=0.9, exploration_decay=0.5, min_exploration=0.3)
    rng = generator(6, "select")
    seen = []
    for _ in range(4):
        seen.append(selector.state().values["share"])
        selector.pick(known_world(), 1, rng)
    assert seen == pytest.approx([0.9, 0.45, 0.3, 0.3])


def test_who_explores_little_goes_on_so() -> None:
    # The floor of 0.3 is for those who begin above it.
    selector = Guided(exploration=0.1)
    selector.pick(random_view(8, 60), 4, generator(8, "select"))
    assert selector.state().values == {"share": 0.1}


def test_asking_in_vain_does_not_shrink_the_share() -> None:
    selector = Guided()
    rng = generator(7, "select")
    assert selector.pick(known_world(), 0, rng) == []
    assert selector.pick(view([]), 3, rng) == []
    assert selector.pick(view([5, 5], present=[False, False]), 3, rng) == []
    assert selector.state().values["share"] == 0.9


def test_state_survives_json() -> None:
    world = random_view(8, 60)
    first = Guided(exploration_decay=0.7)
    for _ in range(3):
        first.pick(world, 4, generator(8, "before"))
    second = Guided(exploration_decay=0.7)
    second.restore(State(json.loads(json.dumps(first.state().values))))
    assert second.state() == first.state()
    assert second.pick(world, 9, generator(8, "on")) == first.pick(world, 9, generator(8, "on"))


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        (
            {"staleness_penalty": -0.1},
            "staleness_penalty: must be greater than or equal to 0",
        ),
        (
            {"staleness_penalty": float("inf")},
            "must be less than or equal to 10, not inf",
        ),
        ({"exploration": 1.5}, "exploration: must be less than or equal to 1, not 1.5"),
        (
            {"exploration_decay": NAN},
            "exploration_decay: must be less than or equal to 1",
        ),
        ({"loss_term": "roots"}, "loss_term: must be 'rms' or 'root', not 'roots'"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Guided(**settings_)


def test_top_by_hand() -> None:
    rng = generator(9, "top")
    scores = np.array([3.0, 9.0, 1.0, 7.0])
    assert sorted(top(scores, 2, rng)) == [1, 3]
    assert sorted(top(scores, 9, rng)) == [0, 1, 2, 3]
    assert len(top(scores, 0, rng)) == len(top(scores, -2, rng)) == 0
    assert len(top(np.array([]), 3, rng)) == 0


@settings(max_examples=60, deadline=None)
@given(scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0]), max_size=30), num=st.integers(0, 35))
def test_top_takes_nothing_worse_than_what_it_leaves(scores: list[float], num: int) -> None:
    taken = top(np.array(scores), num, generator(num, "top")).tolist()
    assert len(set(taken)) == len(taken) == min(num, len(scores))
    left = [s for i, s in enumerate(scores) if i not in taken]
    assert not left or not taken or max(left) <= min(scores[i] for i in taken)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), num=st.integers(0, 40), slots=st.integers(-1, 50))
def test_fills_the_slots_with_different_clients(seed: int, num: int, slots: int) -> None:
    world = random_view(seed, num)
    found = clients(Guided().pick(world, slots, generator(seed, "select")))
    assert len(set(found)) == len(found) == max(0, min(slots, len(world.selectable)))
    assert set(found) <= set(world.selectable.tolist())
