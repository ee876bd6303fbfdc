"""TiFL: tiers, their ranks and credits by hand; with one tier it is uniform selection."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import NAN, random_view, view

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.tifl import Tiers
from pisces.select.uniform import Uniform
from pisces.types import State

LATENCIES = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]  # three tiers: {0, 1}, {2, 3}, {4, 5}


def six(loss: list[float] | None = None, **columns: Any) -> View:
    return view([10] * 6, latency_s=LATENCIES, loss_rms=loss, **columns)


def picked(selector: Tiers, world: View, slots: int, seed: int = 0) -> list[int]:
    return [a.client for a in selector.pick(world, slots, generator(seed, "select"))]


def only(tier: int) -> Tiers:
    """Three tiers, of which only one is ever drawn first."""
    selector = Tiers(num_tiers=3)
    weights = [float(t == tier) for t in range(3)]
    selector.restore(State({"weights": weights, "num_drawn": [0, 0, 0]}))
    return selector


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), num=st.integers(0, 40), slots=st.integers(-1, 50))
def test_one_tier_is_uniform_selection_draw_by_draw(seed: int, num: int, slots: int) -> None:
    world = random_view(seed, num)
    ours, theirs = generator(seed, "select"), generator(seed, "select")
    tiers = Tiers(num_tiers=1, profile_share=0.0)
    for _ in range(3):
        assert tiers.pick(world, slots, ours) == Uniform().pick(world, slots, theirs)
    assert ours.random() == theirs.random()


def test_profiling_everybody_begins_as_uniform_selection_does() -> None:
    world = view([10] * 30)
    ours, theirs = generator(1, "select"), generator(1, "select")
    assert Tiers().pick(world, 7, ours) == Uniform().pick(world, 7, theirs)


def test_a_cohort_is_of_one_tier() -> None:
    cohorts = [tuple(sorted(picked(Tiers(num_tiers=3), six(), 2, s))) for s in range(60)]
    assert set(cohorts) == {(0, 1), (2, 3), (4, 5)}


def test_tiers_are_as_likely_as_each_other_at_first_then_by_loss() -> None:
    # Losses 1, 3, 2 put the tiers into the places 2, 0, 1: with n = 3, D = 3 x 4 / 2 = 6 they are
    # drawn with probabilities 1/6, 3/6, 2/6: of 1200 draws 200, 600 and 400, deviations up to 17.
    selector, world = Tiers(num_tiers=3, every=2), six([1.0, 1.0, 2.0, 4.0, 2.0, 2.0])
    rng = generator(2, "select")
    selector.pick(world, 1, rng), selector.pick(world, 1, rng)
    assert selector.state().values["weights"] == [1, 1, 1]
    firsts = [selector.pick(world, 1, rng)[0].client // 2 for _ in range(1200)]
    assert selector.state().values["weights"] == [1, 3, 2]
    counts = Counter(firsts)
    assert all(abs(counts[t] - n) < 80 for t, n in enumerate((200, 600, 400)))


def test_a_tier_that_told_no_loss_comes_first_and_the_distrusted_do_not_count() -> None:
    # Means: 3; 2 (the 90 is of a client that is not trusted); untold.
    world = six([3.0, 3.0, 2.0, 90.0, NAN, NAN], trusted=[True, True, True, False, True, True])
    selector = Tiers(num_tiers=3, every=1)
    for seed in range(2):
        picked(selector, world, 1, seed)
    assert selector.state().values["weights"] == [2, 1, 3]


def test_credits_run_out_tier_by_tier() -> None:
    # 3 tiers x 2 credits: 6 draws, two of each tier, whatever the dice say; then anyone again.
    for seed in range(10):
        selector, rng = Tiers(num_tiers=3, credits_per_tier=2), generator(seed, "select")
        tiers = [selector.pick(six(), 1, rng)[0].client // 2 for _ in range(6)]
        assert sorted(tiers) == [0, 0, 1, 1, 2, 2]
        assert len(selector.pick(six(), 2, rng)) == 2


def test_a_tier_without_credits_is_left_out_of_the_ranks() -> None:
    # Tier 1 (loss 3) has used its credit: of the n = 2 left, tier 2 (loss 2) is first.
    selector = Tiers(num_tiers=3, every=1, credits_per_tier=1)
    selector.restore(State({"weights": [1.0, 1.0, 1.0], "num_drawn": [0, 1, 0]}))
    picked(selector, six([1.0, 1.0, 3.0, 3.0, 2.0, 2.0]), 1)
    assert selector.state().values["weights"] == [1, 0, 2]


def test_a_small_tier_is_filled_up_from_the_slower_then_from_the_faster() -> None:
    assert sorted(picked(only(1), six(), 2)) == [2, 3]
    three = picked(only(1), six(), 3)
    assert sorted(three[:2]) == [2, 3]
    assert three[2] in (4, 5)
    five = picked(only(1), six(), 5)
    assert set(five[2:4]) == {4, 5}
    assert five[4] in (0, 1)
    four = picked(only(2), six(), 4)  # behind the slowest: the nearest of the faster
    assert set(four[2:]) == {2, 3}


def test_a_tier_without_free_clients_is_not_drawn() -> None:
    world = six(present=[True, True, False, False, True, True])
    assert {picked(Tiers(num_tiers=3), world, 1, s)[0] // 2 for s in range(40)} == {0, 2}
    assert picked(only(1), world, 1)[0] // 2 in (0, 2)


def test_newcomers_are_profiled_up_to_a_share() -> None:
    # Half of 8 clients: 2 have a latency, 1 runs, so there is room for 1 newcomer; the other two
    # slots go to the tier of those known. With 4 known there is room for none.
    world = view([10] * 8, latency_s=[1.0, 2.0, *[NAN] * 6], running=[(2, 0, 0.0)])
    selector = Tiers(num_tiers=2, profile_share=0.5)
    selector.restore(State({"weights": [1.0, 0.0], "num_drawn": [0, 0]}))
    found = picked(selector, world, 2)
    assert found[0] > 2
    assert found[1] == 0
    known = view([10] * 8, latency_s=[1.0, 2.0, 3.0, 4.0, *[NAN] * 4])
    assert set(picked(selector, known, 2)) == {0, 1}


def test_who_comes_to_nothing_too_often_is_not_profiled_any_more() -> None:
    world = view([10] * 4, latency_s=[1.0, NAN, NAN, 2.0], num_picks=[1, 2, 3, 1])
    selector = Tiers(num_tiers=2)
    assert [picked(selector, world, 1, s) for s in range(5)] == [[1]] * 5


def test_who_has_no_latency_counts_to_the_slowest_tier() -> None:
    world = view([10] * 5, latency_s=[1.0, 2.0, NAN, 3.0, 4.0])
    selector = Tiers(num_tiers=2, profile_share=0.0)
    selector.restore(State({"weights": [0.0, 1.0], "num_drawn": [0, 0]}))
    assert sorted(picked(selector, world, 3)) == [2, 3, 4]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations(range(12)), slots=st.integers(1, 12))
def test_names_do_not_matter(seed: int, order: list[int], slots: int) -> None:
    # With equal draws the tiers are the same, and as many of each are picked.
    seconds, losses = np.arange(12.0) + 1, np.arange(12.0) % 5
    world = view([10] * 12, latency_s=seconds.tolist(), loss_rms=losses.tolist())
    renamed = view([10] * 12, latency_s=seconds[order].tolist(), loss_rms=losses[order].tolist())
    first, second = Tiers(num_tiers=4, every=1), Tiers(num_tiers=4, every=1)
    for turn in range(4):
        ours = [c // 3 for c in picked(first, world, slots, seed + turn)]
        assert ours == [order[c] // 3 for c in picked(second, renamed, slots, seed + turn)]
    assert first.state() == second.state()


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"num_tiers": 0}, "num_tiers: must be greater than or equal to 1, not 0"),
        ({"every": 0}, "every: must be greater than or equal to 1"),
        ({"credits_per_tier": 0}, "credits_per_tier: must be greater than or equal to 1"),
        ({"profile_share": 1.5}, "profile_share: must be less than or equal to 1, not 1.5"),
        ({"profile_tries": 0}, "profile_tries: must be greater than or equal to 1"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Tiers(**settings_)
