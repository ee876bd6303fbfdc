"""Oort: recorded behaviour of its authors' selector, then scores, pacer and edges by hand."""

from __future__ import annotations

import json
from math import inf, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import NAN, random_view, view

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.select.draw import Pool, draw
from pisces.select.oort import Odds, Oort
from pisces.types import State

# Two sequences recorded from the Oort training selector as its authors ship it with FedScale:
# made-up feedback went in; scores, candidates, probabilities, counts and pacer moves came out.
RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "oort.json").read_text())
STEADY = {"exploration": 0.5, "exploration_decay": 1.0, "min_exploration": 0.5}


def clients(assignments) -> list[int]:
    return [a.client for a in assignments]


def probabilities(pool: Pool) -> dict[int, float]:
    return dict(zip(pool.clients.tolist(), pool.probabilities.tolist(), strict=True))


def set_memory(selector: Oort, **values: Any) -> None:
    selector.restore(State(selector.state().values | values))


# --- the recorded sequences -----------------------------------------------------------------------


class Replay:
    """Oort fed with a recorded sequence, its columns kept as the client manager would."""

    def __init__(self, sequence: dict[str, Any]) -> None:
        p = sequence["parameters"]
        self.selector = Oort(
            exploration=p["exploration_factor"],
            exploration_decay=p["exploration_decay"],
            min_exploration=p["exploration_min"],
            duration_percentile=p["round_threshold"],
            sample_window=p["sample_window"],
            pacer_interval=p["pacer_step"],
            pacer_step=p["pacer_delta"],
            clip_quantile=p["clip_bound"],
            straggler_penalty=p["round_penalty"],
            cut_off=p["cut_off_util"],
            max_blacklisted=p["blacklist_max_len"],
        )
        self.num_examples = sequence["num_examples"]
        num = len(self.num_examples)
        self.loss_rms, self.latency_s = [NAN] * num, [NAN] * num
        self.num_reports, self.last_version = [0] * num, [-1] * num

    def view(self, record: dict[str, Any]) -> View:
        for told in record["feedback"]:
            client = told["client"]
            self.loss_rms[client] = told["reward"] / self.num_examples[client]
            self.latency_s[client] = told["duration"]
            self.num_reports[client] += 1
            self.last_version[client] = told["round"] - 1
        feasible = set(record["feasible"])
        return view(
            self.num_examples,
            loss_rms=self.loss_rms,
            latency_s=self.latency_s,
            num_reports=self.num_reports,
            last_version=self.last_version,
            present=[client in feasible for client in range(len(self.num_examples))],
            version=record["round"] - 1,
        )

    def go_on_as_recorded(self, record: dict[str, Any]) -> None:
        # The exploited stand last; their number is `take`, whatever was put before them.
        exploited = record["picked"][-record["exploit"]["take"] :]
        out = [[client, record["round"] - 1] for client in exploited]
        set_memory(self.selector, exploited=out)


def check_decisions(odds: Odds, record: dict[str, Any]) -> None:
    preferred_s = record["preferred_duration_s"]
    assert odds.memory.exploration == pytest.approx(record["exploration"], rel=1e-12)
    assert odds.memory.percentile == record["threshold_percentile"]
    assert odds.preferred_duration_s == (inf if preferred_s is None else preferred_s)


def check_exploit(pool: Pool, record: dict[str, Any]) -> None:
    expected = dict(zip(record["candidates"], record["probabilities"], strict=True))
    assert probabilities(pool) == pytest.approx(expected, rel=1e-9)
    assert pool.take == record["take"]


def check_explore(pool: Pool, record: dict[str, Any] | None) -> None:
    """Equal, but for which of the equally large newcomers came last into the window."""
    if record is None:
        assert pool.take == len(pool.clients) == 0
        return
    expected = dict(zip(record["candidates"], record["probabilities"], strict=True))
    found = probabilities(pool)
    assert sorted(found.values()) == pytest.approx(sorted(expected.values()), rel=1e-9)
    least = min(expected.values()) * (1 + 1e-9)
    assert {c for c in found if found[c] > least} == {c for c in expected if expected[c] > least}
    assert pool.take == record["take"]


@pytest.mark.parametrize("sequence", RECORDED, ids=["first", "second"])
def test_agrees_with_the_recorded_rounds(sequence: dict[str, Any]) -> None:
    replay = Replay(sequence)
    rng = generator(0, "select")
    for record in sequence["rounds"]:
        world, slots = replay.view(record), record["slots"]
        odds = replay.selector.odds(world, slots, rng)
        check_decisions(odds, record)
        check_exploit(odds.exploit, record["exploit"])
        check_explore(odds.explore, record["explore"])
        picked = clients(replay.selector.pick(world, slots, rng))
        assert len(set(picked)) == slots  # the reference has from 5 to 7 here, for 6 slots
        assert set(picked) <= set(record["feasible"])
        replay.go_on_as_recorded(record)


def test_the_recording_is_rich_enough() -> None:
    rounds = [r for sequence in RECORDED for r in sequence["rounds"]]
    assert len(rounds) == 75
    assert {r["threshold_percentile"] for r in rounds} == {30.0, 35.0, 40.0, 45.0}
    assert any(r["explore"] is None for r in rounds)
    assert any(len(r["picked"]) != r["slots"] for r in rounds)


# --- scores by hand -------------------------------------------------------------------------------


def test_odds_by_hand() -> None:
    # Rewards: 100 x 4 = 400, 100 x 2 = 200, 100 x 1 = 100; newcomers by size: 300, 100.
    # Clip: place int(5 x 0.6) = 3 of 100, 100, 200, 300, 400 is 300. Least: 0.999 x 100 = 99.9.
    # Scores over the spread 400 - 99.9 = 300.1: 200.1 / 300.1, 100.1 / 300.1, 0.1 / 300.1.
    # T: place int(5 x 60 / 100) = 3 of 1, 1, 10, 20, 40 s is 20 s, so client 1 (40 s) is left with
    # (20 / 40)^2 = 1/4 of its score: 25.025 / 300.1. One of two slots exploits: the cut-off is 5 %
    # of the second score, 1.25125 / 300.1, and client 2 falls below. 200.1 : 25.025 remain.
    world = view(
        [100, 100, 100, 300, 100],
        loss_rms=[4.0, 2.0, 1.0, NAN, NAN],
        latency_s=[10.0, 40.0, 20.0, NAN, NAN],
        version=3,
    )
    selector = Oort(**STEADY, confidence=0.0, clip_quantile=0.6, duration_percentile=60.0)
    odds = selector.odds(world, 2, generator(0, "select"))
    assert odds.preferred_duration_s == 20.0
    assert probabilities(odds.exploit) == pytest.approx({0: 200.1 / 225.125, 1: 25.025 / 225.125})
    assert probabilities(odds.explore) == pytest.approx({3: 0.75, 4: 0.25})
    assert (odds.exploit.take, odds.explore.take) == (1, 1)


def test_who_was_not_seen_for_long_gets_a_bonus() -> None:
    # Round 8; last rounds 2 and 8. Equal rewards are (100 - 99.9) / (100 - 99.9) = 1 each.
    world = view([100, 100], loss_rms=[1.0, 1.0], last_version=[1, 7], version=7)
    odds = Oort().odds(world, 1, generator(0, "select"))
    long, short = 1 + sqrt(0.1 * log(8) / 2), 1 + sqrt(0.1 * log(8) / 8)
    assert probabilities(odds.exploit) == pytest.approx(
        {0: long / (long + short), 1: short / (long + short)}
    )


def test_explores_among_the_largest_newcomers() -> None:
    # int(4 x 0.5) = 2 to explore, out of the 2 x 2 = 4 largest.
    world = view([5, 50, 40, 30, 20, 10])
    odds = Oort(**STEADY, sample_window=2.0).odds(world, 4, generator(0, "select"))
    assert sorted(odds.explore.clients) == [1, 2, 3, 4]
    assert odds.explore.take == 2


def test_binomial_draw_lets_single_slots_explore() -> None:
    # Share 0.5 of one slot: rounded down never; drawn, half of 400 times, with a deviation of 10.
    world = view([10, 10], loss_rms=[1.0, NAN])
    rng = generator(1, "select")
    shares, draws = Oort(**STEADY), Oort(**STEADY, exploration_draw="binomial")
    assert sum(clients(shares.pick(world, 1, rng)) == [1] for _ in range(50)) == 0
    assert abs(sum(clients(draws.pick(world, 1, rng)) == [1] for _ in range(400)) - 200) < 50


def test_draw_is_in_proportion_to_the_weights_left() -> None:
    # Weights 6, 3, 1. First: 0.6, 0.3, 0.1. The first two are {0, 1} with probability
    # 0.6 x 3/4 + 0.3 x 6/7 = 0.707; the deviation over 4000 draws is 0.007.
    rng, weights = generator(2, "draw"), np.array([6.0, 3.0, 1.0])
    firsts = [int(draw(weights, 1, rng)[0]) for _ in range(4000)]
    assert np.bincount(firsts, minlength=3) / 4000 == pytest.approx([0.6, 0.3, 0.1], abs=0.035)
    pairs = [set(draw(weights, 2, rng).tolist()) == {0, 1} for _ in range(4000)]
    assert np.mean(pairs) == pytest.approx(0.707, abs=0.035)


def test_weights_of_zero_are_drawn_last() -> None:
    rng, weights = generator(3, "draw"), np.array([0.0, 2.0, 0.0, 1.0])
    assert all(set(draw(weights, 2, rng).tolist()) == {1, 3} for _ in range(50))
    assert sorted(draw(weights, 4, rng)) == [0, 1, 2, 3]


# --- Oort's pacer ---------------------------------------------------------------------------------


def paced(utility: float, percentile: float = 30.0) -> Oort:
    """At the start of round 4 with an interval of 2: utilities 10, 10 against 10, `utility`."""
    selector = Oort(pacer_interval=2)
    memory = {"percentile": percentile, "utilities": [10.0, 10.0, 10.0], "exploited": [[0, 2]]}
    set_memory(selector, version=2, **memory)
    world = view([1, 1], loss_rms=[utility, 1.0], last_version=[2, 0], version=3)
    selector.pick(world, 1, generator(0, "select"))
    return selector


@pytest.mark.parametrize(
    ("utility", "before", "after"),
    [
        (12.0, 30.0, 35.0),  # |22 - 20| = 2 <= 0.1 x 20: flat
        (8.0, 30.0, 35.0),  # |18 - 20| = 2: flat
        (13.0, 30.0, 30.0),  # |23 - 20| = 3: neither
        (109.0, 30.0, 30.0),  # |119 - 20| = 99: neither
        (110.0, 30.0, 25.0),  # |120 - 20| = 100 >= 5 x 20: sharp
        (110.0, 7.0, 5.0),  # never below one step
        (12.0, 98.0, 100.0),  # never above all
    ],
)
def test_pacer_moves(utility: float, before: float, after: float) -> None:
    values = paced(utility, before).state().values
    assert values["percentile"] == after
    assert values["utilities"] == [10.0, 10.0, 10.0, utility]


def test_the_hundredth_percentile_is_no_limit() -> None:
    world = view([10, 10], loss_rms=[1.0, 1.0], latency_s=[1.0, 1000.0])
    odds = Oort(duration_percentile=100.0).odds(world, 1, generator(0, "select"))
    assert odds.preferred_duration_s == inf
    assert probabilities(odds.exploit) == pytest.approx({0: 0.5, 1: 0.5})


def test_many_calls_within_a_version_are_one_round() -> None:
    selector = paced(12.0)
    once = selector.state().values
    assert once["exploration"] == pytest.approx(0.9 * 0.98)
    world = view([1] * 9, loss_rms=[1.0] * 9, version=3)
    for call in range(5):
        selector.pick(world, 1, generator(call, "select"))
    now = selector.state().values
    same = ("version", "exploration", "percentile", "utilities")
    assert {k: now[k] for k in same} == {k: once[k] for k in same}
    assert all(version == 3 for _, version in now["exploited"])
    assert len(now["exploited"]) >= 3


def test_a_skipped_version_does_not_skip_the_pacer() -> None:
    # Interval 2: rounds 4 and 6 are due. Nobody asked in round 4, so round 5 looks after it.
    selector, rng = Oort(pacer_interval=2), generator(0, "select")
    percentiles = []
    for version in (2, 4, 5, 6):
        selector.pick(view([1, 1], loss_rms=[1.0, 1.0], version=version), 1, rng)
        set_memory(selector, exploited=[])
        percentiles.append(selector.state().values["percentile"])
    # Nothing exploited, nothing changes (0 <= 0.1 x 0): one step up in rounds 5 and 6.
    assert percentiles == [30.0, 35.0, 40.0, 40.0]


def test_a_late_update_counts_when_it_comes() -> None:
    selector, rng = Oort(), generator(0, "select")
    set_memory(selector, version=2, exploited=[[0, 2], [1, 2]])
    columns = {"loss_rms": [3.0, 5.0, 1.0], "present": [False, False, True]}
    selector.pick(view([10] * 3, last_version=[1, 2, 0], version=3, **columns), 1, rng)
    assert selector.state().values["utilities"] == [50.0]  # only client 1 is back: 10 x 5
    assert selector.state().values["exploited"] == [[0, 2], [2, 3]]
    selector.pick(view([10] * 3, last_version=[2, 2, 3], version=4, **columns), 1, rng)
    assert selector.state().values["utilities"] == [50.0, 20.0]  # mean of 30 and 10


def test_a_client_tried_again_is_waited_for_once() -> None:
    selector, rng = Oort(), generator(0, "select")
    set_memory(selector, version=2, exploited=[[0, 2]])
    selector.pick(view([10], loss_rms=[3.0], last_version=[1], version=3), 1, rng)
    assert selector.state().values["exploited"] == [[0, 3]]


def test_exploration_shrinks_with_each_round_down_to_the_floor() -> None:
    selector, rng = Oort(exploration_decay=0.5), generator(0, "select")
    shares = []
    for version in range(4):
        selector.pick(view([1, 1], version=version), 1, rng)
        shares.append(selector.state().values["exploration"])
    assert shares == pytest.approx([0.45, 0.3, 0.3, 0.3])  # 0.225 is below the floor


def test_history_is_as_long_as_needed() -> None:
    selector, rng = Oort(pacer_interval=3), generator(0, "select")
    for version in range(20):
        selector.pick(view([1, 1], loss_rms=[1.0, 1.0], version=version), 1, rng)
    assert len(selector.state().values["utilities"]) == 6


# --- edges ----------------------------------------------------------------------------------------


def test_blacklists_the_most_picked_up_to_a_share() -> None:
    # More than 4 picks: clients 0 to 3. At most 30 % of 10: the three most picked, 1, 2 and 3.
    picks = [5, 9, 8, 7, 4, 0, 0, 0, 0, 0]
    world = view([10] * 10, loss_rms=[1.0] * 10, num_picks=picks)
    rng = generator(0, "select")
    assert sorted(clients(Oort(max_picks=4).pick(world, 10, rng))) == [0, 4, 5, 6, 7, 8, 9]
    assert len(Oort().pick(world, 10, rng)) == 10
    assert len(Oort(max_picks=8).pick(world, 10, rng)) == 9


def test_fills_the_slots_when_nobody_is_left_to_explore() -> None:
    # 4 slots, share 0.882: three to explore, one to exploit. A cut-off at the second score leaves
    # clients 4 and 5 in the pool; the other two slots go to any of the rest.
    world = view([10] * 6, loss_rms=[1.0, 1.0, 1.0, 1.0, 6.0, 8.0])
    selector = Oort(cut_off=1.0, clip_quantile=1.0)
    odds = selector.odds(world, 4, generator(0, "select"))
    assert (odds.exploit.take, odds.explore.take) == (1, 0)
    assert sorted(odds.exploit.clients) == [4, 5]
    picked = clients(selector.pick(world, 4, generator(0, "select")))
    assert len(set(picked)) == 4
    assert {4, 5} <= set(picked)
    assert sorted(c for c, _ in selector.state().values["exploited"]) == [4, 5]


def test_newcomers_fill_the_slots_when_nobody_has_reported() -> None:
    picked = clients(Oort(**STEADY).pick(view([10] * 9), 6, generator(0, "select")))
    assert len(set(picked)) == 6


def test_more_slots_than_clients() -> None:
    world = view([10] * 3, loss_rms=[1.0, 2.0, NAN])
    assert sorted(clients(Oort().pick(world, 99, generator(0, "select")))) == [0, 1, 2]


def test_nobody_to_pick_changes_nothing() -> None:
    selector, rng = Oort(), generator(0, "select")
    before = selector.state()
    assert selector.pick(view([]), 3, rng) == []
    assert selector.pick(view([1, 1], present=[False, False]), 3, rng) == []
    assert selector.pick(view([1, 1]), 0, rng) == []
    assert selector.state() == before


def test_utilities_of_zero_are_all_alike() -> None:
    # Round 1 (ln 1 = 0) and no loss at all: every score is 0, yet somebody must train.
    world = view([10] * 4, loss_rms=[0.0] * 4, latency_s=[0.0, 0.0, 0.0, 5.0])
    selector = Oort(cut_off=0.0)
    with np.errstate(all="raise"):
        odds = selector.odds(world, 2, generator(0, "select"))
        assert len(selector.pick(world, 2, generator(0, "select"))) == 2
    assert probabilities(odds.exploit) == pytest.approx(dict.fromkeys(range(4), 0.25))


def test_a_client_without_a_version_keeps_scores_finite() -> None:
    world = view([10, 20], loss_rms=[1.0, 1.0], last_version=[-1, 0], version=50)
    with np.errstate(all="raise"):
        odds = Oort().odds(world, 1, generator(0, "select"))
    assert np.isfinite(odds.exploit.probabilities).all()


def test_state_survives_json() -> None:
    first = Oort(pacer_interval=2)
    for version in range(5):
        first.pick(random_view(version, 50, version), 5, generator(version, "select"))
    values = first.state().values
    assert values["exploited"]
    second = Oort(pacer_interval=2)
    second.restore(State(json.loads(json.dumps(values))))
    assert second.state().values == values
    world = random_view(5, 50, 5)
    assert first.pick(world, 9, generator(5, "on")) == second.pick(world, 9, generator(5, "on"))
    assert first.state() == second.state()


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"exploration": -0.5}, "exploration: must be greater than or equal to 0, not -0.5"),
        ({"max_picks": -3}, "max_picks: must be greater than or equal to 1, not -3"),
        ({"duration_percentile": 101}, "duration_percentile: must be less than or equal to 100"),
        ({"straggler_penalty": -1}, "straggler_penalty: must be greater than or equal to 0"),
        ({"pacer_interval": 0}, "pacer_interval: must be greater than or equal to 1, not 0"),
        ({"max_blacklisted": 2}, "max_blacklisted: must be less than or equal to 1"),
        ({"exploration_draw": "dice"}, "must be 'share' or 'binomial', not 'dice'"),
    ],
)
def test_bad_settings_are_refused(settings_: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Oort(**settings_)


def test_who_explores_little_goes_on_so() -> None:
    # The floor of 0.3 is for those who begin above it.
    selector = Oort(exploration=0.1)
    for version in range(3):
        selector.pick(random_view(5, 50, version), 5, generator(5, "select"))
        assert selector.state().values["exploration"] == 0.1


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num=st.integers(0, 40),
    slots=st.integers(-1, 50),
    way=st.sampled_from(["share", "binomial"]),
)
def test_fills_the_slots_with_different_clients(seed: int, num: int, slots: int, way: Any) -> None:
    selector, rng = Oort(exploration_draw=way, pacer_interval=1), generator(seed, "select")
    for version in (0, 0, 3, 4):
        world = random_view(seed + version, num, version)
        with np.errstate(all="raise"):
            found = clients(selector.pick(world, slots, rng))
        assert len(set(found)) == len(found) == max(0, min(slots, len(world.selectable)))
        assert set(found) <= set(world.selectable.tolist())
