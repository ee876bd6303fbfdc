"""FedAR: trust by hand, and who is fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import through_json
from worlds import NAN, view

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.fedar import Trusting

TIMEOUT_S = 60.0
ON_TIME, LATE, LOST = 10.0, 61.0, None  # how long an update took; None: it never came
Outcome = float | None


def picked(selector: Trusting, world: View, slots: int, seed: int = 0) -> list[int]:
    return [a.client for a in selector.pick(world, slots, generator(seed, "select"))]


class Careers:
    """Clients that end one task after the other."""

    def __init__(self, num_clients: int) -> None:
        self.latency_s = [NAN] * num_clients
        self.num_picks, self.num_reports = [0] * num_clients, [0] * num_clients

    def end(self, client: int, outcome: Outcome) -> None:
        self.num_picks[client] += 1
        if outcome is not None:
            self.num_reports[client] += 1
            self.latency_s[client] = outcome

    def view(self, **more: Any) -> View:
        counts = {"num_picks": self.num_picks, "num_reports": self.num_reports}
        return view([10] * len(self.latency_s), latency_s=self.latency_s, **counts, **more)


def trust_after(*outcomes: Outcome) -> list[float]:
    """The trust in one client, task by task."""
    careers, selector, seen = Careers(1), Trusting(timeout_s=TIMEOUT_S), []
    for outcome in outcomes:
        careers.end(0, outcome)
        selector.pick(careers.view(), 0, generator(0, "select"))
        seen.append(float(selector.trust(careers.view())[0]))
    return seen


def test_trust_by_hand() -> None:
    # 50 + 8 each time.
    assert trust_after(ON_TIME, ON_TIME, ON_TIME) == [58, 66, 74]
    # The first one missed costs 2. The second is 2 of 3, over a half: 16. The third is 3 of 4: 16.
    assert trust_after(LATE, ON_TIME, LOST, LATE) == [48, 56, 40, 24]
    # 1 of 4: the first, 2. 2 of 6 is a third, over a fifth: 8.
    assert trust_after(*[ON_TIME] * 3, LOST, ON_TIME, LATE) == [58, 66, 74, 72, 80, 72]
    # 2 of 4 is not more than a half: 8.
    assert trust_after(ON_TIME, LATE, ON_TIME, LATE)[-1] == 50 + 8 - 2 + 8 - 8
    # 2 of 10 is not more than a fifth: 2.
    assert trust_after(*[ON_TIME] * 8, LOST, LOST)[-1] == 100 - 2 - 2
    # It is never above 100 (after seven it would be 106), nor below 10.
    assert trust_after(*[ON_TIME] * 8)[-3:] == [98, 100, 100]
    assert trust_after(*[LOST] * 5) == [48, 32, 16, 10, 10]


def test_late_is_later_than_the_timeout() -> None:
    assert trust_after(TIMEOUT_S) == [58]
    assert trust_after(TIMEOUT_S + 0.001) == [48]


def test_looking_again_changes_nothing_and_a_running_task_is_not_missed() -> None:
    careers, selector = Careers(2), Trusting(timeout_s=TIMEOUT_S)
    careers.end(0, ON_TIME)
    for _ in range(3):
        selector.pick(careers.view(), 1, generator(0, "select"))
    assert selector.trust(careers.view()).tolist() == [58, 50]
    careers.end(0, LOST)  # it only seems so: it runs
    running = careers.view(running=[(0, 0, 0.0)])
    assert selector.trust(running).tolist() == [58, 50]


def test_drawn_in_proportion_to_trust() -> None:
    # Trust 58, 50 and 50 - 2 - 16 - 16 = 16; of 1000 single draws the deviation is at most 15.8.
    careers, selector = Careers(3), Trusting(timeout_s=TIMEOUT_S)
    careers.end(0, ON_TIME)
    for _ in range(3):
        careers.end(2, LOST)
        picked(selector, careers.view(), 0)
    assert selector.trust(careers.view()).tolist() == [58, 50, 16]
    counts = Counter(picked(selector, careers.view(), 1, seed)[0] for seed in range(1000))
    for client, trust in enumerate((58, 50, 16)):
        assert counts[client] == pytest.approx(1000 * trust / 124, abs=63)


def test_others_than_the_first_cohort_get_their_turn() -> None:
    # Two of six at a time, all in time: after 20 rounds everybody has been picked.
    careers, selector = Careers(6), Trusting(timeout_s=TIMEOUT_S)
    for turn in range(20):
        for client in picked(selector, careers.view(), 2, turn):
            careers.end(client, ON_TIME)
    assert min(careers.num_picks) > 0


def test_without_any_trust_one_is_picked_where_nobody_else_is_free() -> None:
    careers, selector = Careers(2), Trusting(timeout_s=TIMEOUT_S, min_trust=0.0)
    for _ in range(5):
        careers.end(1, LOST)
        picked(selector, careers.view(), 0)
    assert selector.trust(careers.view()).tolist() == [50, 0]
    assert all(picked(selector, careers.view(), 1, seed) == [0] for seed in range(20))
    assert sorted(picked(selector, careers.view(), 2)) == [0, 1]
    assert picked(selector, careers.view(present=[False, True]), 2) == [1]


def test_resources() -> None:
    world = view([10, 9, 10, 10], latency_s=[5.0, 5.0, 5.1, NAN])
    fit = Trusting(timeout_s=TIMEOUT_S, max_latency_s=5.0, min_examples=10)
    assert sorted(picked(fit, world, 4)) == [0, 3]  # nobody knows yet how slow client 3 is
    assert len(picked(Trusting(timeout_s=TIMEOUT_S), world, 4)) == 4


outcomes = st.tuples(st.integers(0, 6), st.sampled_from([ON_TIME, LATE, LOST]))


def after(ended: list[tuple[int, Outcome]], names: list[int], seed: int) -> tuple[Trusting, View]:
    """A selector that looked on as tasks ended, and the world it sees in the end."""
    careers, selector = Careers(7), Trusting(timeout_s=TIMEOUT_S)
    for client, outcome in ended:
        careers.end(names[client], outcome)
        picked(selector, careers.view(), 3, seed)
    return selector, careers.view()


@settings(max_examples=40, deadline=None)
@given(
    ended=st.lists(outcomes, max_size=25), names=st.permutations(range(7)), slots=st.integers(0, 9)
)
def test_names_do_not_matter(
    ended: list[tuple[int, Outcome]], names: list[int], slots: int
) -> None:
    selector, world = after(ended, list(range(7)), 0)
    renamed, other = after(ended, names, 0)
    trust, of_renamed = selector.trust(world), renamed.trust(other)
    assert of_renamed[names].tolist() == trust.tolist()
    for one, seen in ((selector, world), (renamed, other)):
        assert len(picked(one, seen, slots)) == min(slots, 7)


@settings(max_examples=40, deadline=None)
@given(before=st.lists(outcomes, max_size=15), later=st.lists(outcomes, max_size=9))
def test_goes_on_from_saved_state(
    before: list[tuple[int, Outcome]], later: list[tuple[int, Outcome]]
) -> None:
    selector, _ = after(before, list(range(7)), 1)
    restored = Trusting(timeout_s=TIMEOUT_S)
    restored.restore(through_json(selector.state()))
    careers = Careers(7)
    for client, outcome in before:
        careers.end(client, outcome)
    for turn, (client, outcome) in enumerate(later):
        careers.end(client, outcome)
        world = careers.view()
        assert picked(restored, world, 3, turn) == picked(selector, world, 3, turn)
        assert restored.trust(world).tolist() == selector.trust(world).tolist()
    assert restored.state() == selector.state()


def test_only_who_was_given_a_task_is_saved() -> None:
    careers, selector = Careers(1000), Trusting(timeout_s=TIMEOUT_S)
    careers.end(7, ON_TIME)
    careers.end(900, LOST)
    picked(selector, careers.view(), 1)
    saved = selector.state().values
    assert saved["clients"] == [7, 900]
    assert np.array(saved["books"]).T.tolist() == [[58, 1, 0, 0], [48, 0, 1, 1]]


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"timeout_s": NAN}, "timeout_s: must be greater than 0, not nan"),
        ({"ban": -16.0}, "ban: must be greater than or equal to 0, not -16.0"),
        ({"some": 0.6}, "some: must be at most most = 0.5, not 0.6"),
        ({"min_trust": 51.0}, "min_trust: must be at most start = 50.0, not 51.0"),
        ({"max_trust": 49.0}, "start: must be at most max_trust = 49.0, not 50.0"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Trusting(**{"timeout_s": TIMEOUT_S, **settings_})
