"""The log says why: whose scores were what, and what the pace went by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import of_kind, train_digits
from worlds import NAN, update, view

from pisces.decisions import Decisions
from pisces.pace.fedavg import Rounds
from pisces.pace.fedbuff import Buffered
from pisces.pace.pisces import Adaptive
from pisces.pace.remaining import Remaining
from pisces.pace.timed import Timed
from pisces.policy import Assignment
from pisces.record.lines import line
from pisces.record.sound import is_line
from pisces.select.oort import Oort
from pisces.select.pisces import Guided
from pisces.select.uniform import Uniform
from pisces.types import Joined

GUIDED = Guided(staleness_penalty=0.5)
PACE = Buffered(4, 2)


def picked(seen: Any, decisions: Decisions, *clients: int) -> dict[str, Any]:
    (entry,) = decisions.picked(seen, 3, [Assignment(client) for client in clients])
    told = line(entry)
    assert is_line(told)
    return told


def test_a_picked_client_is_told_with_its_terms() -> None:
    # Client 1: 50 samples x loss 2 = 100; staleness 3 on average: (3 + 1)^-0.5 = 0.5; score 50.
    # Client 2 has not reported: its loss is not known, and it was drawn by lot.
    seen = view([10, 50, 20], loss_rms=[1.0, 2.0, NAN], staleness={1: [3]}, now=7.5, version=4)
    told = picked(seen, Decisions(GUIDED, PACE, wanted=True), 1, 2)
    assert told == {
        "kind": "picked",
        "at": 7.5,
        "version": 4,
        "slots": 3,
        "num_free": 3,
        "clients": [1, 2],
        "terms": ["utility", "discount", "score"],
        "scores": [[100.0, 0.5, 50.0], [None, 1.0, None]],
    }


def test_who_reported_since_and_was_not_picked_is_told_once() -> None:
    seen = view([10, 50, 20], loss_rms=[1.0, 2.0, 3.0])
    decisions = Decisions(GUIDED, PACE, wanted=True)
    decisions.heard(update(0))
    decisions.heard(update(1))
    decisions.heard(Joined(0.0, 2, 20))  # no news of its loss
    told = picked(seen, decisions, 1)
    assert (told["others"], told["other_scores"]) == ([0], [[10.0, 1.0, 10.0]])
    assert "others" not in picked(seen, decisions, 2)


def test_who_is_not_free_yet_is_told_when_it_is() -> None:
    decisions = Decisions(GUIDED, PACE, wanted=True)
    decisions.heard(update(0))
    waits = view([10, 50], loss_rms=[1.0, 2.0], buffer=[update(0)])
    assert "others" not in picked(waits, decisions, 1)
    assert picked(view([10, 50], loss_rms=[1.0, 2.0]), decisions, 1)["others"] == [0]


def test_whom_lots_decide_on_has_no_scores() -> None:
    decisions = Decisions(Uniform(), PACE, wanted=True)
    decisions.heard(update(0))
    told = picked(view([10, 50], loss_rms=[1.0, 2.0]), decisions, 1)
    assert told["clients"] == [1]
    assert not {"terms", "scores", "others", "other_scores"} & told.keys()


def test_who_is_still_to_be_told_is_saved() -> None:
    decisions, later = (Decisions(GUIDED, PACE, wanted=True) for _ in range(2))
    decisions.heard(update(0))
    later.restore(decisions.state())
    seen = view([10, 50], loss_rms=[1.0, 2.0])
    assert picked(seen, later, 1) == picked(seen, decisions, 1)


def test_nothing_is_told_where_nobody_wants_to_know() -> None:
    decisions = Decisions(GUIDED, PACE, wanted=False)
    decisions.heard(update(0))
    seen = view([10, 50], loss_rms=[1.0, 2.0])
    assert decisions.picked(seen, 1, [Assignment(1)]) == []
    assert decisions.pace(seen) is None
    assert decisions.state().values == {"unscored": []}


def test_nothing_is_told_where_nobody_was_picked() -> None:
    assert Decisions(GUIDED, PACE, wanted=True).picked(view([10]), 1, []) == []


# --- what paces go by -----------------------------------------------------------------------------

RUNNING = view(
    [10, 10, 10],
    latency_s=[30.0, 60.0, NAN],
    running=[(0, 1, 100.0), (1, 2, 110.0)],
    buffer=[update(2, version=2)],
    now=115.0,
    version=2,
    last_aggregated_at=108.0,
)


@pytest.mark.parametrize(
    ("pacer", "terms"),
    [
        # The slowest of those running took 60 s: with b = 4 a version every 15 s.
        (Adaptive(4, 4), {"slowest_s": 60.0, "limit_s": 15.0, "bound": 4}),
        # Client 0 is expected at 130, 22 s after the last version, in 5 - 1 intervals: 5.5 s.
        # Client 1 is expected at 170: 62 s in 5 intervals: 12.4 s, the longer.
        (Remaining(4, 4), {"limit_s": 12.4, "bound": 4}),
        (Buffered(4, 2), {"buffered": 1, "size": 2}),
        (Timed(4, 20.0), {"limit_s": 20.0}),
        # Of the round from version 2 client 1 is still out.
        (Rounds(4), {"buffered": 1, "missing": 1}),
    ],
    ids=["adaptive", "remaining", "buffered", "timed", "rounds"],
)
def test_the_pace_says_what_it_goes_by(pacer: Any, terms: dict[str, float]) -> None:
    told = Decisions(GUIDED, pacer, wanted=True).pace(RUNNING)
    assert told == pytest.approx(terms)


def test_the_terms_of_oort_make_its_score() -> None:
    seen = view([10, 50, 20], loss_rms=[1.0, 2.0, NAN], latency_s=[5.0, 80.0, NAN], version=3)
    terms = Oort().terms(seen, np.array([2, 1, 0]))
    whole = (terms["reward"] + terms["bonus"]) * terms["slowdown"]
    np.testing.assert_array_equal(terms["score"], whole)
    assert math.isnan(terms["score"][0])  # it has not reported
    # T is the shortest duration, 1 s of the newcomer: (1 / 80)^2 and (1 / 5)^2.
    assert terms["slowdown"][1:] == pytest.approx([1 / 6400, 1 / 25])


# --- in a run -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["pisces", "fedbuff", "oort", "fedavg", "pisces-paper"])
def test_every_start_was_picked_just_before(protocol: str) -> None:
    lines, _ = train_digits(protocol)
    waiting: list[int] = []
    for told in lines:
        if told["kind"] == "picked":
            assert waiting == []
            waiting = list(told["clients"])
        elif told["kind"] == "started":
            assert waiting.pop(0) == told["client"]
    assert waiting == []
    assert len(of_kind(lines, "picked")) > 1


@pytest.mark.parametrize("protocol", ["pisces", "oort", "fedbuff"])
def test_rows_are_no_more_than_picks_and_updates_however_many_are_free(protocol: str) -> None:
    lines, _ = train_digits(protocol)
    picks = of_kind(lines, "picked")
    num_rows = sum(len(p.get("scores", ())) + len(p.get("other_scores", ())) for p in picks)
    num_updates = len(of_kind(lines, "arrived"))
    assert num_rows <= len(of_kind(lines, "started")) + num_updates
    assert sum(p["num_free"] for p in picks) > num_updates
    assert (num_rows > 0) == (protocol != "fedbuff")  # which draws lots


def test_the_last_row_of_a_client_is_its_score() -> None:
    # Guided selection looks at nothing else: among those that have reported and were free, whoever
    # was picked has the highest of the last rows written of each.
    greedy = "protocols.pisces={exploration = 0.0, min_exploration = 0.0}"
    lines, _ = train_digits("pisces", [greedy, "stop.versions=20"])
    last: dict[int, float] = {}
    client_of: dict[int, int] = {}
    busy: set[int] = set()
    num_checked = 0
    for told in lines:
        match told["kind"]:
            case "picked":
                last.update(_scores(told))
                free = {c: s for c, s in last.items() if c not in busy}
                known = [c for c in told["clients"] if _scores(told).get(c) is not None]
                best = sorted(free.values(), reverse=True)[: len(known)]
                assert sorted((free[c] for c in known), reverse=True) == best
                num_checked += bool(known) and len(free) > len(known)
            case "started":
                busy.add(told["client"])
            case "aggregated":
                busy -= {client_of[task] for task in told["tasks"]}
            case "arrived":
                client_of[told["task"]] = told["client"]
    assert num_checked > 3


def _scores(told: dict[str, Any]) -> dict[int, float]:
    rows = [*told.get("scores", ()), *told.get("other_scores", ())]
    pairs = zip([*told["clients"], *told.get("others", ())], rows, strict=True)
    return {client: row[-1] for client, row in pairs if row[-1] is not None}


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(1, 50))
def test_decisions_change_nothing_else(seed: int) -> None:
    told, model = train_digits("pisces", [f"seed={seed}"])
    untold, other = train_digits("pisces", [f"seed={seed}", "record.decisions=false"])
    without = [{k: v for k, v in e.items() if k != "pace"} for e in told if e["kind"] != "picked"]
    assert without == untold
    assert bool((model.flat == other.flat).all())
