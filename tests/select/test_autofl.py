"""AutoFL: states, energies and what a task teaches, by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from worlds import NAN, random_view, update, view

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.autofl import NUM_STATES, QLearning
from pisces.types import Evaluated, State

GREEDY = {"epsilon": 0.0}


def picked(selector: QLearning, world: View, slots: int, seed: int = 0) -> list[int]:
    return [a.client for a in selector.pick(world, slots, generator(seed, "select"))]


def three(version: int, accuracy: float, **more: Any) -> View:
    """A fast, a middle and a slow client, with little, middling and much data."""
    history = [Evaluated(float(version), version, {"accuracy": accuracy, "loss": 1 - accuracy})]
    return view(
        [1, 2, 3], latency_s=[10.0, 20.0, 30.0], version=version, **{"history": history, **more}
    )


def values(selector: QLearning) -> dict[int, float]:
    """The states that are worth something."""
    found = enumerate(selector.state().values["values"])
    return {state: value for state, value in found if value}


# (speed x 3 + size) x 2 + long ago: 0, (3 + 1) x 2 = 8 and (6 + 2) x 2 = 16
FAST, MIDDLE, SLOW = 0, 8, 16


def test_states_by_hand() -> None:
    assert QLearning().states(three(0, 0.1)).tolist() == [FAST, MIDDLE, SLOW]
    # Version 11 is more than 10 after version 0, but not after version 1.
    rested = three(11, 0.1, last_version=[0, 1, 0])
    assert QLearning().states(rested).tolist() == [FAST + 1, MIDDLE, SLOW + 1]
    # Nobody knows the speed: class 3, sizes 0 and 1 (of two, the first third ends at place
    # ceil(2/3) = 1, the second at ceil(4/3) = 2); and nobody waits for who never came.
    new = view([1, 2], version=50)
    assert QLearning().states(new).tolist() == [(9 + 0) * 2, (9 + 1) * 2]


def test_energies_by_hand() -> None:
    # 3 W x 10 s = 30 J, 2 W x 20 s = 40 J, 1 W x 30 s = 30 J: the mean is 100/3 J.
    assert QLearning().energies(three(0, 0.1)) == pytest.approx([0.9, 1.2, 0.9])
    some = view([1] * 3, latency_s=[10.0, NAN, 10.0])  # both are in the fastest third
    assert QLearning().energies(some) == pytest.approx([1, 1, 1])
    assert QLearning().energies(view([1] * 2)) == pytest.approx([1, 1])
    assert QLearning().energies(view([1] * 2, latency_s=[0.0, 0.0])) == pytest.approx([1, 1])


def test_two_steps_by_hand() -> None:
    # Picked at accuracy 0.1; then it is 0.3: a gain of 0.2. Clients 0 and 1 are back, 2 is not.
    # Rewards 0.2 - 0.009 = 0.191, 0.2 - 0.012 = 0.188, 0 - 0.009 = -0.009; all next values are 0.
    # Q: 0.9 x 0.191 = 0.1719, 0.9 x 0.188 = 0.1692, 0.9 x -0.009 = -0.0081.
    selector = QLearning(**GREEDY)
    assert sorted(picked(selector, three(0, 0.1), 3)) == [0, 1, 2]
    assert picked(selector, three(1, 0.3, num_reports=[2, 2, 1]), 1) == [0]
    taught = {FAST: 0.1719, MIDDLE: 0.1692, SLOW: -0.0081}
    assert values(selector) == pytest.approx(taught)
    # Client 0 alone is back at 0.25, a gain of -0.05: its target is -0.05 - 0.009 + 0.1 x 0.1719
    # = -0.04181, so Q = 0.1719 + 0.9 x (-0.04181 - 0.1719) = -0.020439; now client 1 is best.
    assert picked(selector, three(2, 0.25, num_reports=[3, 2, 1]), 1) == [1]
    assert values(selector) == pytest.approx(taught | {FAST: -0.020439})


def test_what_comes_later_is_the_value_of_the_state_a_client_is_in_by_then() -> None:
    # As above, but client 0 is the slowest when it is back, of 40 s: state (6 + 0) x 2 = 12, worth
    # nothing yet. Energies 1 x 40, 3 x 20 and 2 x 30 J, mean 160/3: 0.75 of client 0. Its target is
    # -0.05 - 0.0075 + 0.1 x 0, and FAST, in which it was picked, 0.1719 - 0.9 x 0.2294 = -0.03456.
    selector = QLearning(**GREEDY)
    picked(selector, three(0, 0.1), 3)
    assert picked(selector, three(1, 0.3, num_reports=[2, 2, 1]), 1) == [0]
    history = [Evaluated(2.0, 2, {"accuracy": 0.25})]
    slow = view(
        [1, 2, 3], latency_s=[40.0, 20.0, 30.0], version=2, history=history, num_reports=[3, 2, 1]
    )
    assert selector.states(slow)[0] == 12
    picked(selector, slow, 1)
    assert values(selector)[FAST] == pytest.approx(-0.03456)


def test_a_task_that_came_to_nothing_shares_in_a_loss() -> None:
    # -0.05 - 0.01 x 0.9 = -0.059, 0.9 of it -0.0531; also for a gain of the loss it is.
    for settings_ in ({}, {"metric": "loss", "lower_is_better": True}):
        selector = QLearning(**GREEDY, **settings_)
        selector.pick(three(0, 0.3), 3, generator(0, "select"))
        picked(selector, three(1, 0.25), 1)
        assert values(selector)[SLOW] == pytest.approx(-0.0531)


def test_clients_of_one_state_teach_it_their_mean() -> None:
    # Both are fast and small. Energies 30 and 30 J over their mean: 1. One is back, one is not:
    # targets 0.2 - 0.01 and 0 - 0.01, mean 0.09, 0.9 of it 0.081.
    def pair(version: int, accuracy: float, reports: list[int]) -> View:
        history = [Evaluated(0.0, version, {"accuracy": accuracy})]
        seconds, more = [10.0, 10.0], {"version": version, "history": history}
        return view([1, 1], latency_s=seconds, num_reports=reports, **more)

    selector = QLearning(**GREEDY)
    picked(selector, pair(0, 0.1, [1, 1]), 2)
    picked(selector, pair(1, 0.3, [2, 1]), 1)
    assert values(selector) == pytest.approx({FAST: 0.081})


def test_who_runs_or_waits_in_the_buffer_teaches_later() -> None:
    selector = QLearning(**GREEDY)
    picked(selector, three(0, 0.1), 3)
    busy = three(1, 0.3, num_reports=[2, 2, 1], running=[(2, 0, 0.0)], buffer=[update(1)])
    picked(selector, busy, 1)
    assert list(values(selector)) == [FAST]
    picked(selector, three(2, 0.5, num_reports=[2, 2, 2], running=[(0, 1, 0.0)]), 1)
    assert list(values(selector)) == [FAST, MIDDLE, SLOW]


def test_nothing_is_learned_without_a_new_evaluation() -> None:
    selector = QLearning(**GREEDY)
    picked(selector, three(0, 0.1, history=[]), 3)
    picked(selector, three(1, 0.3, num_reports=[2, 2, 2]), 3)  # the first one: a gain over what?
    assert values(selector) == {}
    picked(selector, three(1, 0.9, num_reports=[3, 3, 3]), 3)  # the same version once more
    picked(selector, three(2, NAN, num_reports=[4, 4, 4]), 3)
    assert values(selector) == {}
    assert len(selector.state().values["waiting"]) == 3  # a client waits once
    picked(selector, three(3, 0.5, num_reports=[5, 5, 5]), 3)
    assert values(selector)[FAST] == pytest.approx(0.9 * (0.5 - 0.3 - 0.009))


def test_a_metric_nobody_evaluates_is_refused() -> None:
    told = "metric: must be one that is evaluated, not 'f1'; choose one of accuracy, loss"
    with pytest.raises(ConfigError, match=told):
        picked(QLearning(metric="f1"), three(0, 0.1), 1)


def test_explores_with_probability_epsilon() -> None:
    # The 14 fast of 40 are best. The one slot goes to anybody with probability 0.3, so to one of
    # the other 26 with 0.3 x 26/40 = 0.195: of 1000 picks 195, with a deviation of 12.5.
    world = view([1] * 40, latency_s=[1.0] * 14 + [2.0] * 26)
    selector, rng = QLearning(epsilon=0.3), generator(3, "select")
    best = {"values": [1.0] + [0.0] * (NUM_STATES - 1)}
    selector.restore(State(selector.state().values | best))
    num = sum(selector.pick(world, 1, rng)[0].client >= 14 for _ in range(1000))
    assert abs(num - 195) < 60
    # Where every slot explores, it does not matter who is best: 14 of 40 slots in the mean.
    curious = QLearning(epsilon=1.0)
    curious.restore(State(curious.state().values | best))
    num = sum(a.client < 14 for _ in range(100) for a in curious.pick(world, 10, rng))
    assert abs(num - 350) < 70  # of 1000, with a deviation of 13


def test_ties_are_drawn() -> None:
    # 4 alike, 1 slot: of 400 picks 100 each, with a deviation of 8.7.
    counts = Counter(picked(QLearning(**GREEDY), view([1] * 4), 1, s)[0] for s in range(400))
    assert all(abs(counts[c] - 100) < 45 for c in range(4))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), slots=st.integers(1, 8), order=st.permutations(range(9)))
def test_names_do_not_matter(seed: int, slots: int, order: list[int]) -> None:
    # Greedy picks are of the same values, whoever bears them.
    rng = np.random.default_rng(seed)
    seconds, sizes = rng.permutation(9) + 1.0, rng.permutation(9) + 1
    worth = State(QLearning().state().values | {"values": rng.normal(size=NUM_STATES).tolist()})

    def found(names: list[int]) -> list[float]:
        selector = QLearning(**GREEDY)
        selector.restore(worth)
        world = view(sizes[names].tolist(), latency_s=seconds[names].tolist())
        states = selector.states(world)[picked(selector, world, slots, seed)]
        return sorted(worth.values["values"][state] for state in states)

    assert found(list(range(9))) == found(order)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), num_before=st.integers(0, 4))
def test_goes_on_from_saved_state_while_learning(seed: int, num_before: int) -> None:
    def world(i: int) -> View:
        seen = random_view(seed + i, 20, version=7 + i)
        score = {"accuracy": float(np.random.default_rng(seed + i).random())}
        object.__setattr__(seen, "history", [Evaluated(0.0, 7 + i, score)])
        return seen

    selector, restored = QLearning(), QLearning()
    for i in range(num_before):
        picked(selector, world(i), 4, seed + i)
    restored.restore(through_json(selector.state()))
    for i in range(num_before, num_before + 3):
        assert picked(restored, world(i), 4, i) == picked(selector, world(i), 4, i)
    assert restored.state() == selector.state()


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"epsilon": 1.1}, "epsilon: must be less than or equal to 1, not 1.1"),
        ({"learning_rate": -0.1}, "learning_rate: must be greater than or equal to 0"),
        ({"discount": NAN}, "discount: must be less than or equal to 1, not nan"),
        ({"slow_w": -1.0}, "slow_w: must be greater than or equal to 0"),
        ({"recent_versions": -1}, "recent_versions: must be greater than or equal to 0"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        QLearning(**settings_)
