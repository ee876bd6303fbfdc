"""What a run came to, counted by hand."""

from typing import Any

import pytest

from pisces.record.lines import Line
from pisces.record.sound import is_summary
from pisces.record.summary import Tally
from pisces.stop import lower_is_better
from pisces.types import Joined, Started

# Three clients. Client 0 is asked twice, client 1 once and leaves, client 2 never.
# Task 0 goes into version 1 with staleness 0; tasks 2 and 3 into version 2 with 1 and 4.
STORY: list[Line] = [
    {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 10},
    {"kind": "joined", "at": 0.0, "client": 2, "num_examples": 30},
    {"kind": "joined", "at": 0.0, "client": 1, "num_examples": 20},
    {"kind": "started", "at": 0.0, "task": 0, "client": 0, "version": 0},
    {"kind": "started", "at": 0.0, "task": 1, "client": 1, "version": 0},
    {"kind": "arrived", "at": 5.0, "task": 0, "client": 0, "version": 0},
    {"kind": "outlier", "at": 5.0, "client": 0, "task": 0, "credits": 0},
    {"kind": "distrusted", "at": 5.0, "client": 0},
    {"kind": "aggregated", "at": 5.0, "version": 1, "tasks": [0], "staleness": [0], "weights": [1]},
    {"kind": "evaluated", "at": 5.0, "version": 1, "accuracy": 0.6, "loss": 2.0},
    {"kind": "left", "at": 6.0, "task": 1, "client": 1, "reason": "gone"},
    {"kind": "joined", "at": 7.0, "client": 1, "num_examples": 25},
    {"kind": "failed", "at": 8.0, "client": 1, "reason": "garbage"},
    {"kind": "started", "at": 8.0, "task": 2, "client": 0, "version": 1},
    {"kind": "arrived", "at": 9.0, "task": 2, "client": 0, "version": 1},
    {"kind": "arrived", "at": 9.0, "task": 3, "client": 0, "version": 1},
    {"kind": "arrived", "at": 9.0, "task": 4, "client": 0, "version": 1},
    {"kind": "dropped", "at": 9.0, "task": 4, "reason": "stale"},
    {
        "kind": "aggregated",
        "at": 9.0,
        "version": 2,
        "tasks": [2, 3],
        "staleness": [1, 4],
        "weights": [0.5, 0.5],
    },
    {"kind": "evaluated", "at": 10.0, "version": 2, "accuracy": 0.8, "loss": 1.0},
    {"kind": "evaluated", "at": 20.0, "version": 2, "accuracy": 0.7, "loss": None},
    {"kind": "a kind of next year", "at": 21.0, "anything": [1]},
    {"kind": "stopped", "at": 22.0, "reason": "time limit", "a key of next year": 1},
]


def tally(lines: list[Line]) -> Tally:
    result = Tally()
    for line in lines:
        result.add(line)
    return result


def test_every_count_of_the_story() -> None:
    assert tally(STORY).summary() == {
        "reason": "time limit",
        "at": 22.0,
        "versions": 2,
        "num_clients": 3,
        "num_clients_started": 2,
        "num_started": 3,
        "num_updates": 4,
        "num_aggregated": 3,
        "num_dropped": 1,
        "num_called_off": 0,
        "num_under_way": 0,
        "num_failed": 1,
        "num_left": 1,
        "max_staleness": 4,
        "mean_staleness": 5 / 3,  # (0 + 1 + 4) / 3
        "num_outliers": 1,
        "distrusted": [0],
        "final": {"accuracy": 0.7, "loss": None},
        "best": {"accuracy": 0.8, "loss": 1.0},
    }


def test_a_killed_run_has_no_reason_but_all_the_rest() -> None:
    summary = tally(STORY[:-2]).summary()
    assert summary["reason"] is None
    assert summary["at"] == 20.0
    assert summary["num_updates"] == 4


def test_a_summary_counts_in_whole_numbers() -> None:
    summary = tally(STORY).summary()
    assert is_summary(summary)
    counts = [name for name, value in summary.items() if type(value) is int]
    assert len(counts) == 13  # the stalest update among them
    for name in counts:
        assert not is_summary({**summary, name: -1}), name
        assert not is_summary({**summary, name: 1.5}), name


def test_nothing_at_all() -> None:
    summary = Tally().summary()
    assert summary["at"] == 0.0
    assert summary["max_staleness"] is None
    assert summary["mean_staleness"] is None
    assert summary["best"] == {}


@pytest.mark.parametrize(
    ("target", "metric", "time"),
    [
        (0.6, "accuracy", 5.0),  # met exactly
        (0.61, "accuracy", 10.0),
        (0.8, "accuracy", 10.0),  # and lost again at 20, which does not matter
        (0.81, "accuracy", None),
        (2.0, "loss", 5.0),
        (1.9, "loss", 10.0),
        (0.9, "loss", None),  # the loss at 20 is not a number, which meets no target
        (0.5, "f1", None),  # never measured
    ],
)
def test_time_to_target(target: float, metric: str, time: float | None) -> None:
    assert tally(STORY).time_to_target(target, metric) == time


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("loss", True),
        ("perplexity", True),
        ("test_loss", True),
        ("accuracy", False),
        ("loss_rate_accuracy", False),
        ("glossiness", False),
    ],
)
def test_which_way_is_up(metric: str, lower: bool) -> None:
    assert lower_is_better(metric) is lower


def test_best_of_a_metric_that_never_was_a_number() -> None:
    line: dict[str, Any] = {"kind": "evaluated", "at": 1.0, "version": 1, "loss": None}
    assert tally([line]).summary()["best"] == {"loss": None}


def test_involvement_is_sorted_and_knows_who_was_never_asked() -> None:
    part = tally(STORY).involvement()
    assert part.clients.tolist() == [0, 1, 2]
    assert part.num_examples.tolist() == [10, 25, 30]  # client 1 came back with more
    assert part.num_started.tolist() == [2, 1, 0]


def test_a_tally_listens_to_a_live_run() -> None:
    live = Tally()
    live.record(Joined(0.0, 5, 40))
    live.record(Started(1.5, 0, 5, 0))
    live.close()
    assert live.summary()["num_started"] == 1
    assert live.summary()["at"] == 1.5


def test_tasks_called_off_did_not_fail() -> None:
    reasons = ["crashed", "called off: its round is over", "the run stopped", "the run stopped"]
    lines = [{"kind": "failed", "at": 1.0, "client": 0, "task": 0, "reason": r} for r in reasons]
    summary = tally(lines).summary()
    assert (summary["num_failed"], summary["num_called_off"]) == (1, 3)
    assert summary["num_under_way"] == 2  # of the three, when the run stopped
