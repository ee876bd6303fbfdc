"""What runs are looked at for: the same in tables, pictures and pages, and on the live page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ledgers import HAND, ledger_of

from pisces.errors import RunError
from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.record.summary import metric_among
from pisces.report.goal import Goal

ACCURACY = 'protocol = "pisces"\n[stop]\nmetric = "accuracy"\ntarget = 0.5'
FURTHER = 'protocol = "pisces"\n[stop]\nmetric = "accuracy"\ntarget = 0.9'
LOSS = 'protocol = "oort"\n[stop]\nmetric = "loss"\ntarget = 2.0'
ODD = 'protocol = "oort"\n[stop]\nmetric = "beauty"\ntarget = 2.0'
NO_STOP = 'protocol = "pisces"'


def goals(folder: Path, *runs: tuple[str, list[Line]]) -> list[Goal]:
    """Of the same runs, from their folders and as they are watched."""
    ledgers = [ledger_of(folder / str(n), lines, text) for n, (text, lines) in enumerate(runs)]
    return [Goal.of([Run.open(ledger.path) for ledger in ledgers]), Goal.watched(ledgers)]


@pytest.mark.parametrize(
    ("runs", "goal"),
    [
        ([], Goal("accuracy")),
        ([(NO_STOP, [])], Goal("accuracy")),
        ([(NO_STOP, HAND)], Goal("accuracy")),
        ([(LOSS, [])], Goal("loss", 2.0)),  # what it names, though nothing was evaluated
        ([(ODD, HAND)], Goal("accuracy")),  # the target is of what it was not evaluated by
        ([(ACCURACY, HAND), (NO_STOP, HAND)], Goal("accuracy", 0.5)),
        ([(ACCURACY, HAND), (FURTHER, HAND)], Goal("accuracy")),
        ([(LOSS, HAND), (LOSS, [])], Goal("loss", 2.0)),
    ],
)
def test_it_is_what_all_runs_that_say_agree_on(
    tmp_path: Path, runs: list[tuple[str, list[Line]]], goal: Goal
) -> None:
    assert goals(tmp_path, *runs) == [goal, goal]


def test_runs_about_different_metrics_are_no_reason_to_guess(tmp_path: Path) -> None:
    ledgers = [ledger_of(tmp_path / str(n), HAND, text) for n, text in enumerate((LOSS, ACCURACY))]
    runs = [Run.open(ledger.path) for ledger in ledgers]
    with pytest.raises(RunError, match=r"different metrics \(loss, accuracy\): choose one"):
        Goal.of(runs)
    with pytest.raises(RunError, match=r"different metrics \(loss, accuracy\): choose one"):
        Goal.watched(ledgers)
    # Who asks for one has the target that was set for it.
    assert Goal.of(runs, "accuracy") == Goal.watched(ledgers, "accuracy") == Goal("accuracy", 0.5)
    assert Goal.of(runs, "loss", 1.5, "oort") == Goal("loss", 1.5, "oort")


def test_a_summary_says_what_the_config_does_not(tmp_path: Path) -> None:
    run = Run.open(ledger_of(tmp_path, HAND, 'made_in = "Python"').path)
    told = {**run.summary, "metric": "loss", "target": 1.0}
    (tmp_path / "summary.json").write_text(json.dumps(told))
    assert Goal.of([Run.open(tmp_path)]) == Goal("loss", 1.0)


def test_a_target_that_is_needed() -> None:
    assert Goal("accuracy", 0.5).needed == 0.5
    with pytest.raises(RunError, match="no target in common: say one with --target"):
        _ = Goal("accuracy").needed


@pytest.mark.parametrize(
    ("named", "known", "found"),
    [
        ("loss", ["accuracy", "loss"], "loss"),
        ("loss", [], "loss"),
        ("beauty", ["loss", "accuracy"], "accuracy"),
        (None, ["beauty", "perplexity"], "perplexity"),
        (3, ["beauty"], "beauty"),
        (None, [], None),
    ],
)
def test_the_metric_of_one_run(named: object, known: list[str], found: str | None) -> None:
    assert metric_among(named, known) == found
