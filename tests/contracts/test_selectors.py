"""What holds of every selector: add yours to the table and it is held to all of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import implementations, through_json, with_those_of_protocols, without_a_row
from worlds import random_view, view

import pisces.select
from pisces.clients.view import View
from pisces.policy import Selector
from pisces.seeds import generator
from pisces.select.autofl import QLearning
from pisces.select.fedar import Trusting
from pisces.select.fedcompass import Compass
from pisces.select.fedcs import Fitting
from pisces.select.oort import Oort
from pisces.select.pisces import Guided
from pisces.select.tifl import Tiers
from pisces.select.uniform import Uniform

SELECTORS: dict[str, Callable[[], Selector]] = {
    "uniform": Uniform,
    "guided": Guided,
    "guided, no staleness": lambda: Guided(staleness_penalty=0.0),
    "guided, no exploration": lambda: Guided(exploration=0.0, min_exploration=0.0),
    "compass": Compass,
    "oort": Oort,
    "oort, slots one at a time": lambda: Oort(exploration_draw="binomial"),
    "oort, with a blacklist": lambda: Oort(max_picks=2),
    "tifl": Tiers,
    "tifl, few profiled, few credits": lambda: Tiers(
        every=1, credits_per_tier=1, profile_share=0.3
    ),
    "fedcs": Fitting,
    "fedcs, little time": lambda: Fitting(deadline_s=20.0, sequential_upload_s=1.0),
    "autofl": QLearning,
    "fedar": lambda: Trusting(timeout_s=60.0),
    "fedar, few are fit": lambda: Trusting(timeout_s=60.0, max_latency_s=5.0),
}
SELECTORS = with_those_of_protocols("selector", SELECTORS)
MAY_LEAVE_SLOTS_FREE = {"oort, with a blacklist", "fedcs, little time", "fedar, few are fit"}

every_selector = pytest.mark.parametrize("name", SELECTORS)
views = st.builds(random_view, st.integers(0, 10**6), st.integers(1, 30))


def picked(selector: Selector, seen: View, slots: int, seed: int = 0) -> list[int]:
    return [a.client for a in selector.pick(seen, slots, generator(seed, "select"))]


def columns(seen: View) -> list[bytes]:
    return [getattr(seen.clients, f.name).tobytes() for f in fields(seen.clients)]


def test_every_selector_has_a_row() -> None:
    assert implementations(pisces.select, "pick") <= {type(make()) for make in SELECTORS.values()}
    assert without_a_row("select", SELECTORS) == []


@every_selector
@settings(max_examples=40)
@given(seen=views, slots=st.integers(0, 35), seed=st.integers(0, 99))
def test_picks_different_selectable_clients_up_to_the_slots(
    name: str, seen: View, slots: int, seed: int
) -> None:
    clients = picked(SELECTORS[name](), seen, slots, seed)
    assert len(clients) == len(set(clients)) <= slots
    assert set(clients) <= set(seen.selectable.tolist())
    assert all(type(client) is int for client in clients)  # goes into JSON


@every_selector
@settings(max_examples=20)
@given(seen=views, slots=st.integers(0, 35))
def test_fills_the_slots_while_somebody_is_free(name: str, seen: View, slots: int) -> None:
    num = len(picked(SELECTORS[name](), seen, slots))
    if name not in MAY_LEAVE_SLOTS_FREE:
        assert num == min(slots, len(seen.selectable))


@every_selector
def test_nobody_is_picked_out_of_nobody(name: str) -> None:
    nobody = view([10, 10, 10], present=[False, True, True], running=[(1, 0, 0.0)])
    away = view([10], present=[False])
    selector = SELECTORS[name]()
    assert picked(selector, away, 3) == []
    assert picked(selector, nobody, 3) == [2]
    assert picked(selector, nobody, 0) == []


@every_selector
@settings(max_examples=20)
@given(seen=views, slots=st.integers(1, 10), seed=st.integers(0, 99))
def test_draws_from_its_generator_only(name: str, seen: View, slots: int, seed: int) -> None:
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    once = picked(SELECTORS[name](), seen, slots, seed)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002
    assert picked(SELECTORS[name](), seen, slots, seed) == once


@every_selector
def test_another_generator_picks_others(name: str) -> None:
    # 3 of 12 newcomers alike: 220 sets or 1320 orders, so 20 seeds never agree by chance
    newcomers = view([10] * 12)
    assert len({tuple(picked(SELECTORS[name](), newcomers, 3, seed)) for seed in range(20)}) > 1


@every_selector
@settings(max_examples=20)
@given(seen=views, slots=st.integers(1, 10))
def test_looking_changes_nothing(name: str, seen: View, slots: int) -> None:
    before = columns(seen)
    picked(SELECTORS[name](), seen, slots)
    assert columns(seen) == before


@every_selector
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), num_before=st.integers(0, 5))
def test_goes_on_from_saved_state(name: str, seed: int, num_before: int) -> None:
    seen = [random_view(seed + i, 20, version=7 + i) for i in range(num_before + 3)]
    selector, restored = SELECTORS[name](), SELECTORS[name]()
    for i in range(num_before):
        picked(selector, seen[i], 4, seed + i)
    restored.restore(through_json(selector.state()))
    for i in range(num_before, num_before + 3):
        assert picked(restored, seen[i], 4, seed + i) == picked(selector, seen[i], 4, seed + i)
    assert restored.state() == selector.state()


@every_selector
@settings(max_examples=40)
@given(seen=views, slots=st.integers(1, 10), seed=st.integers(0, 99))
def test_the_terms_of_a_score_are_numbers_for_each_client(
    name: str, seen: View, slots: int, seed: int
) -> None:
    selector = SELECTORS[name]()
    picked(selector, seen, slots, seed)
    facts, memory = columns(seen), selector.state()
    terms = selector.terms(seen, seen.selectable)
    assert not terms or list(terms)[-1] == "score"
    assert all(len(column) == len(seen.selectable) for column in terms.values())
    for column in terms.values():
        column[:] = 0.0  # its own to change
    assert (columns(seen), selector.state()) == (facts, memory)


SCORED = ("guided", "oort", "tifl", "fedcs", "autofl", "fedar")


@pytest.mark.parametrize("name", SCORED)
def test_terms_of_one_client_are_those_it_has_among_all(name: str) -> None:
    seen, selector = random_view(3, 20), SELECTORS[name]()
    picked(selector, seen, 4)
    every = selector.terms(seen, seen.selectable)
    assert len(seen.selectable) > 5
    for place, client in enumerate(seen.selectable.tolist()):
        one = selector.terms(seen, np.array([client]))
        for term, column in every.items():
            np.testing.assert_equal(one[term][0], column[place])
