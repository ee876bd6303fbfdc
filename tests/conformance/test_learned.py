"""Numbers that one look at a scene does not show: what comes of an earlier pick, of a setting, of
time. By hand, through the protocols as composed by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from worlds import NAN, update, view

from conformance.scenes import KNOWN, NEW, C, Clients, about
from conformance.table import OORT_KNOWN, OORT_NEW
from pisces.clients.view import View
from pisces.names import PROTOCOLS
from pisces.policy import Release
from pisces.seeds import generator
from pisces.types import Evaluated

# --- AutoFL ---------------------------------------------------------------------------------------


def after(version: int, accuracy: float) -> View:
    """A fast, a middle and a slow client with little, middling and much data, all back again."""
    history = [Evaluated(float(version), version, {"accuracy": accuracy})]
    return view(
        [1, 2, 3],
        latency_s=[10.0, 20.0, 30.0],
        version=version,
        history=history,
        num_reports=[version + 1] * 3,
        num_picks=[version + 1] * 3,
    )


def test_autofl_learns_by_its_rule() -> None:
    # Energies: 3 W x 10 s, 2 W x 20 s, 1 W x 30 s over their mean, 100/3: 0.9, 1.2, 0.9. Accuracy
    # grows by 0.2, rewards are 0.2 - 0.01 E: Q = 0.9 x 0.191 and 0.9 x 0.188. Then by 0.05:
    # Q <- Q + 0.9 (0.05 - 0.01 E + 0.1 Q - Q) = 0.19 Q + 0.9 (0.05 - 0.01 E).
    selector = PROTOCOLS["autofl"](C).selector
    states = [0, 8, 16]  # (speed x 3 + size) x 2
    expected = [
        [0.0, 0.0, 0.0],
        [0.1719, 0.1692, 0.1719],
        [0.19 * 0.1719 + 0.0369, 0.19 * 0.1692 + 0.0342, 0.19 * 0.1719 + 0.0369],
    ]
    for version, accuracy in enumerate([0.1, 0.3, 0.35]):
        assert len(selector.pick(after(version, accuracy), 3, generator(1, "select"))) == 3
        values = np.array(selector.state().values["values"])
        assert values[states] == pytest.approx(expected[version])
        assert np.count_nonzero(np.delete(values, states)) == 0


def test_autofl_takes_what_it_found_worth_it() -> None:
    # Nobody at random: the fast and the slow one (0.1719) before the middle one (0.1692).
    selector = PROTOCOLS["autofl"](C, epsilon=0.0).selector
    selector.pick(after(0, 0.1), 3, generator(1, "select"))
    picks = selector.pick(after(1, 0.3), 2, generator(1, "select"))
    assert {a.client for a in picks} == {0, 2}


# --- TiFL -----------------------------------------------------------------------------------------


def test_tifl_prefers_tiers_with_more_to_learn() -> None:
    # Mean losses of {0, 2}, {4}, {5}, {3} and {1}: 2.25, 0.5, 0.2, 0.9 and 2. Ranked after the
    # first draw, with probabilities 5, 4, 3, 2 and 1 of 15: {0, 2}, {1}, {3}, {4}, {5}.
    expected = {0: 2.5 / 15, 2: 2.5 / 15, 1: 4 / 15, 3: 3 / 15, 4: 2 / 15, 5: 1 / 15}
    counts, draws, seen = np.zeros(6), 2000, KNOWN.view()
    for seed in range(draws):
        selector, rng = PROTOCOLS["tifl"](C, every=1).selector, generator(seed, "select")
        selector.pick(seen, 1, rng)
        counts[selector.pick(seen, 1, rng)[0].client] += 1
    found = {client: counts[client] / draws for client in expected}
    assert found == {client: about(chance, draws) for client, chance in expected.items()}


# --- Oort -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "scores"), [(KNOWN, OORT_KNOWN), (NEW, OORT_NEW)])
def test_oort_draws_in_proportion_to_its_scores(
    clients: Clients, scores: Mapping[int, float]
) -> None:
    # What the table's chances are made of, to the last digits.
    odds = PROTOCOLS["oort"](C).selector.odds(clients.view(), 2, generator(1, "select"))
    found = dict(zip(odds.exploit.clients.tolist(), odds.exploit.probabilities, strict=True))
    assert found == pytest.approx({c: s / sum(scores.values()) for c, s in scores.items()})
    assert odds.memory.exploration == pytest.approx(0.882)


# --- FedCS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "picked"),
    [
        # Everybody is asked. By latency: 0 (10 s), 2 (20), 4 (30), 5 (40), 3 (50), 1 (60).
        ({}, {0, 2, 4, 5}),  # four are wanted, and fit into 180 s
        ({"deadline_s": 40.0}, {0, 2, 4}),  # under 40 s
        # Uploads of 5 s, one after the other: 15, 20 + 5, 30 + 5, 40 + 5 s.
        ({"deadline_s": 40.0, "sequential_upload_s": 5.0}, {0, 2, 4}),
        ({"deadline_s": 35.0, "sequential_upload_s": 5.0}, {0, 2}),
        # Uploads of 15 s: 25, 25 + 15, 40 + 15 s.
        ({"deadline_s": 41.0, "sequential_upload_s": 15.0}, {0, 2}),
        ({"deadline_s": 5.0}, {0}),  # a round of nobody would never end
    ],
)
def test_fedcs_adds_whoever_lengthens_the_round_least(
    settings: Mapping[str, Any], picked: set[int]
) -> None:
    selector = PROTOCOLS["fedcs"](C, asked_share=1.0, **settings).selector
    picks = selector.pick(KNOWN.view(), 4, generator(1, "select"))
    assert {a.client for a in picks} == picked


# --- FedAR ----------------------------------------------------------------------------------------


def test_fedar_trusts_whoever_keeps_the_time() -> None:
    # Of three, one is back within 60 s, one after 61 s and one never. On time: 50 + 8, + 8. Late or
    # lost: - 2 the first time; then all tasks were missed, more than half of them: - 16.
    selector = PROTOCOLS["fedar"](C).selector
    for num, trust in ((1, [58.0, 48.0, 48.0]), (2, [66.0, 32.0, 32.0])):
        seen = view(
            [10] * 3,
            latency_s=[60.0, 61.0, NAN],
            num_picks=[num] * 3,
            num_reports=[num, num, 0],
            version=num,
        )
        selector.pick(seen, 1, generator(1, "select"))
        assert np.array(selector.state().values["books"])[0].tolist() == trust


# --- FedCompass -----------------------------------------------------------------------------------


def test_fedcompass_gives_the_steps_that_end_together() -> None:
    # 20 steps each (640 samples, 32 at a time), at 1, 2, 5 and 6 s a step, and somebody new. The
    # fastest first: 20 steps until 20 s; 20 / 2 = 10; 20 / 5 = 4, just the fifth that is the least;
    # 20 / 6 = 3 is too few, so 20 in a group of its own; a newcomer does the least.
    seen = view(
        [640] * 5,
        latency_s=[40.0, 20.0, 100.0, 120.0, NAN],
        num_steps=[20, 20, 20, 20, 0],
        version=3,
    )
    picks = PROTOCOLS["fedcompass"](C).selector.pick(seen, 5, generator(1, "select"))
    steps = {a.client: a.plan.max_steps for a in picks if a.plan is not None}
    assert steps == {1: 20, 0: 10, 2: 4, 3: 20, 4: 4}


def test_fedcompass_joins_who_runs_already() -> None:
    # Client 1 (1 s a step) has 4 of its 10 steps to go, client 2 (3 s) 6 s of 30. Client 0, at 2 s
    # a step, fits 2 steps before the one and 3 before the other: 3.
    seen = view(
        [320] * 3,
        latency_s=[20.0, 10.0, 30.0],
        num_steps=[10] * 3,
        running=[(2, 3, 2.0), (1, 3, 20.0)],
        max_steps=[10, 10],
        version=3,
        now=26.0,
    )
    (pick,) = PROTOCOLS["fedcompass"](C).selector.pick(seen, 1, generator(1, "select"))
    assert pick.plan is not None
    assert (pick.client, pick.plan.max_steps) == (0, 3)


# --- paces ----------------------------------------------------------------------------------------


def test_papaya_calls_off_after_four_minutes_and_who_is_too_stale() -> None:
    seen = view(running=[(0, 0, 10.0), (1, 3, 10.1), (2, 5, 200.0)], now=250.0, version=5)
    late = Release(0, "no report within 240 s")
    assert PROTOCOLS["papaya"](C).pacer.release(seen) == [late]
    strict = PROTOCOLS["papaya"](C, timeout_s=float("inf"), max_staleness=1).pacer
    assert [r.task_id for r in strict.release(seen)] == [0, 1]
    assert not strict.accepts(seen, update(1, version=3))


def test_port_asks_for_what_there_is_at_the_bound() -> None:
    # b = C = 10. With two waiting a version is due: whoever is 10 behind hands in what there is.
    waiting = [update(3, version=9), update(4, version=9)]
    pacer = PROTOCOLS["port"](C).pacer
    seen = view([10] * 5, running=[(0, 0, 0.0), (1, 1, 1.0)], buffer=waiting, version=10)
    assert pacer.release(seen) == [Release(0, "10 versions behind", pull=True)]
    assert (pacer.ready(seen), pacer.slots(seen)) == (False, 0)
    fresher = view([10] * 5, running=[(1, 1, 1.0)], buffer=waiting, version=10)
    assert (pacer.release(fresher), pacer.ready(fresher)) == ([], True)


@pytest.mark.parametrize("name", ["fedavg", "oort", "tifl"])
def test_rounds_end_with_the_first_of_many_or_at_their_deadline(name: str) -> None:
    # 10 / 1.3 = 7.7: seven of ten are enough. A round that began at 3 ends at 3 + 5.
    for num, enough in ((6, False), (7, True)):
        waiting = [update(client, version=2) for client in range(num)]
        seen = view([10] * 10, running=[(9, 2, 3.0)], buffer=waiting, version=2, now=7.0)
        assert PROTOCOLS[name](C, over_selection=1.3).pacer.ready(seen) is enough
    pacer = PROTOCOLS[name](C, round_deadline_s=5.0).pacer
    assert (pacer.ready(seen), pacer.next_check(seen)) == (False, 8.0)
