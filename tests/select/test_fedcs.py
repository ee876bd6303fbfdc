"""FedCS: who fits into a round, by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import NAN, random_view, view

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.fedcs import Fitting

# The median of those known (10, 30, 50, 200) is 40, so client 4 is thought to take 40 s.
LATENCIES = [50.0, 10.0, 200.0, 30.0, NAN]


def picked(selector: Fitting, world: View, slots: int, seed: int = 0) -> list[int]:
    return [a.client for a in selector.pick(world, slots, generator(seed, "select"))]


def five(**more: Any) -> View:
    return view([10] * 5, latency_s=LATENCIES, **more)


def test_the_fastest_first_while_the_round_stays_under_the_deadline() -> None:
    assert picked(Fitting(), five(), 5) == [1, 3, 4, 0]  # 10, 30, 40, 50 s; 200 is over 180
    assert picked(Fitting(), five(), 5, seed=1) == [1, 3, 4, 0]
    assert picked(Fitting(deadline_s=40.0), five(), 5) == [1, 3]  # 40 is not under 40
    assert picked(Fitting(deadline_s=201.0), five(), 5) == [1, 3, 4, 0, 2]
    assert picked(Fitting(asked_share=1.0), five(), 2) == [1, 3]


@pytest.mark.parametrize(
    ("deadline_s", "num"), [(30.0, 1), (50.5, 2), (70.5, 3), (90.5, 4), (220.0, 4), (220.5, 5)]
)
def test_uploads_one_after_the_other(deadline_s: float, num: int) -> None:
    # 20 s each: 10 + 20 = 30; max(30, 30) + 20 = 50; max(50, 40) + 20 = 70; max(70, 50) + 20 = 90;
    # max(90, 200) + 20 = 220. Nobody fits under 30, but a round needs somebody.
    selector = Fitting(deadline_s=deadline_s, sequential_upload_s=20.0)
    assert picked(selector, five(), 5) == [1, 3, 4, 0, 2][:num]


def test_what_newcomers_are_thought_to_take() -> None:
    assert picked(Fitting(unseen_latency_s=5.0), five(), 5)[0] == 4
    assert picked(Fitting(unseen_latency_s=500.0), five(), 5) == [1, 3, 0]
    assert len(picked(Fitting(deadline_s=0.1), view([10] * 3), 3)) == 3  # nobody known: 0 s


def test_a_tenth_is_asked_and_its_fastest_picked() -> None:
    # Client 0 is the fastest of 100: it is picked whenever it is among the 10 asked, so 50 times
    # of 500, with a deviation of 6.7; a client behind place 92 is never 2nd of 10 or better.
    world = view([10] * 100, latency_s=[1.0 + c for c in range(100)])
    counts = Counter(c for seed in range(500) for c in picked(Fitting(), world, 2, seed))
    assert abs(counts[0] - 50) < 30
    assert max(counts) < 92
    # As many slots as a fifth: a fifth is asked and all of them are picked, by latency.
    twenty = picked(Fitting(), world, 20)
    assert twenty == sorted(twenty)
    assert max(twenty) > 50


def test_a_round_needs_somebody() -> None:
    slow = view([10] * 3, latency_s=[300.0, 200.0, 400.0])
    assert picked(Fitting(asked_share=1.0), slow, 3) == [1]
    busy = view([10] * 4, latency_s=[300.0, 200.0, 400.0, 1.0], running=[(3, 0, 0.0)])
    assert picked(Fitting(asked_share=1.0), busy, 3) == []


def test_ties_are_drawn() -> None:
    # 4 alike, 1 slot, all asked: of 400 picks 100 each, with a deviation of 8.7.
    world, selector = view([10] * 4), Fitting(asked_share=1.0)
    counts = Counter(picked(selector, world, 1, seed)[0] for seed in range(400))
    assert all(abs(counts[c] - 100) < 45 for c in range(4))


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.lists(st.integers(1, 300), min_size=1, max_size=20, unique=True),
    slots=st.integers(1, 20),
    data=st.data(),
)
def test_names_do_not_matter(seconds: list[int], slots: int, data: st.DataObject) -> None:
    renamed = data.draw(st.permutations(seconds))
    selector = Fitting(asked_share=1.0, sequential_upload_s=7.0)

    def took(world: list[int]) -> list[int]:
        seen = view([10] * len(world), latency_s=[float(s) for s in world])
        return [world[c] for c in picked(selector, seen, slots)]

    assert took(seconds) == took(renamed)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), slots=st.integers(-1, 40), deadline_s=st.floats(0.1, 100))
def test_nobody_longer_than_the_deadline(seed: int, slots: int, deadline_s: float) -> None:
    world = random_view(seed, 30)
    clients = picked(Fitting(deadline_s=deadline_s), world, slots, seed)
    assert len(set(clients)) == len(clients) <= max(slots, 0)
    assert set(clients) <= set(world.selectable.tolist())
    if len(clients) > 1:
        assert not (world.clients.latency_s[clients] >= deadline_s).any()


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"deadline_s": -1.0}, "deadline_s: must be greater than 0, not -1.0"),
        ({"deadline_s": 0.0}, "deadline_s: must be greater than 0, not 0.0"),
        ({"asked_share": 2.0}, "asked_share: must be less than or equal to 1"),
        ({"asked_share": 0.0}, "asked_share: must be greater than 0, not 0.0"),
        (
            {"unseen_latency_s": NAN},
            "unseen_latency_s: must be greater than or equal to 0",
        ),
        ({"sequential_upload_s": -0.5}, "sequential_upload_s: must be greater than or equal to 0"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Fitting(**settings_)
