"""What runs are looked at for: the same in tables, pictures and pages, and on the live page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ledgers import HAND, append, ledger_of, line

from pisces.errors import RunError
from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.record.summary import metric_among
from pisces.report.compare import compare, drawn_of
from pisces.report.goal import Goal
from pisces.report.ledger.summary import ReadRun
from pisces.report.page import page

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


@pytest.mark.parametrize(
    "stop",
    [
        *('target = "x"', "target = [1]", "target = []", "target = true"),
        *("target = 1979-05-27", "target = nan", "target = inf"),
        *("metric = 3", 'metric = ["accuracy"]', "metric = {a = 1}"),
    ],
)
def test_what_anybody_wrote_into_a_config_is_no_aim_and_no_trouble(
    tmp_path: Path, stop: str
) -> None:
    config = f'protocol = "pisces"\nseed = 3\n[stop]\n{stop}'
    assert goals(tmp_path, (config, HAND)) == [Goal("accuracy"), Goal("accuracy")]
    run = Run.open(tmp_path / "0")
    assert "In short" in page([run])
    assert "cannot be shown" not in run._repr_html_()


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


STOPPED = [*HAND, line("stopped", 12.0, reason="target")]


@pytest.mark.parametrize(
    ("config", "goal", "is_refused"),
    [
        (ACCURACY, Goal("accuracy", 0.6), True),
        (ACCURACY, Goal("accuracy", 0.5), False),  # what it stopped at
        (ACCURACY, Goal("accuracy", 0.3), False),
        (ACCURACY, Goal("accuracy"), False),
        (ACCURACY, Goal("loss", 0.1), False),  # of that nobody knows whether it cut anything short
        (LOSS, Goal("loss", 1.5), True),  # less is more
        (LOSS, Goal("loss", 2.5), False),
        (NO_STOP, Goal("accuracy", 0.9), False),
    ],
)
def test_a_run_that_was_good_enough_says_nothing_of_more(
    tmp_path: Path, config: str, goal: Goal, is_refused: bool
) -> None:
    ledger = ledger_of(tmp_path, STOPPED, config)
    for run in (Run.open(ledger.path), ReadRun.of(ledger)):
        why = goal.refusal([run])
        assert (why is not None) == is_refused
        if why is not None:
            assert f"{ledger.path} stopped once it had reached" in why
            with pytest.raises(RunError, match="choose a target up to"):
                goal.check([run])


@pytest.mark.parametrize("watched", [False, True])
def test_a_run_that_was_measured_by_other_metrics_did_not_do_badly(
    tmp_path: Path, watched: bool
) -> None:
    only_loss = [line("joined", 0.0, client=0, num_examples=1)]
    only_loss.append(line("evaluated", 1.0, version=0, loss=2.0))
    ledgers = [ledger_of(tmp_path / "a"), ledger_of(tmp_path / "b", only_loss, NO_STOP)]
    over = line("stopped", 12.0, reason="time")
    for ledger in ledgers:
        append(ledger.path, over)
        ledger.read()
    runs = [ReadRun.of(own) if watched else Run.open(own.path) for own in ledgers]
    with pytest.raises(RunError, match=r"b has no metric 'accuracy': choose one of loss"):
        compare(runs, 0.3)
    Goal("loss", 2.0).check(runs)
    empty = ledger_of(tmp_path / "c", [], NO_STOP)  # where nothing was evaluated nobody knows yet
    Goal("accuracy", 0.3).check([Run.open(empty.path), ReadRun.of(empty)])


def test_all_who_compare_refuse_it(tmp_path: Path) -> None:
    run = Run.open(ledger_of(tmp_path, STOPPED, ACCURACY).path)
    goal = Goal("accuracy", 0.6)
    with pytest.raises(RunError, match="stopped once it had reached"):
        compare([run], 0.6)
    with pytest.raises(RunError, match="stopped once it had reached"):
        drawn_of([run], goal)
    pytest.importorskip("plotly")
    with pytest.raises(RunError, match="stopped once it had reached"):
        page([run], goal)


def test_a_run_that_ended_otherwise_may_be_held_to_more(tmp_path: Path) -> None:
    stopped = line("stopped", 12.0, reason="time")
    runs = [
        Run.open(ledger_of(tmp_path / name, lines, ACCURACY).path)
        for name, lines in (("over", [*HAND, stopped]), ("going", HAND))
    ]
    Goal("accuracy", 0.9).check(runs)


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
