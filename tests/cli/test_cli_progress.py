"""Live progress: where a run stands, line by line, and how that looks on 80 columns."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from runs import World, simulate

from pisces.execute.failures import Failures
from pisces.progress.boards import Board, Overview
from pisces.progress.showing import Listener
from pisces.progress.standing import Batch, Standing, Whole
from pisces.record.lines import Memory, line
from pisces.stop import Stop
from pisces.tables import StopAt
from pisces.types import Aggregated, Entry, Evaluated, Failed, Joined, Left, Started, Stopped

LINES: list[dict[str, Any]] = [
    {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 9},
    {"kind": "started", "at": 0.0, "task": 0, "client": 0, "version": 0},
    {"kind": "started", "at": 0.0, "task": 1, "client": 1, "version": 0},
    {"kind": "started", "at": 0.0, "task": 2, "client": 2, "version": 0},
    {"kind": "evaluated", "at": 0.0, "version": 0, "accuracy": 0.1},
    {"kind": "arrived", "at": 10.0, "task": 0, "client": 0},
    {"kind": "aggregated", "at": 12.0, "version": 1},
    {"kind": "failed", "at": 13.0, "task": 1, "client": 1, "reason": "crashed"},
    {"kind": "failed", "at": 13.0, "client": 1, "reason": "a message nobody asked for"},
    {"kind": "left", "at": 25.0, "client": 9, "reason": "went offline"},
    {"kind": "evaluated", "at": 25.0, "version": 1, "accuracy": 0.625},
]


def standing(stop: StopAt | None = None, **changes: Any) -> Standing:
    found = Standing(changes.get("protocol", "pisces"), changes.get("seed", 1), stop or StopAt())
    for told in LINES:
        found.add(told)
    return found


def test_a_standing_counts() -> None:
    # Three started, one arrived, one failed with its task: one is still running.
    found = standing()
    assert (found.at, found.version, found.num_updates, found.num_running) == (25.0, 1, 1, 1)
    assert found.value == 0.625
    assert found.reason is None


@pytest.mark.parametrize(
    ("stop", "share"),
    [
        (StopAt(time_s=100.0), 0.25),
        (StopAt(time_s=100.0, versions=2), 0.5),
        (StopAt(time_s=float("inf"), updates=10), 0.1),
        (StopAt(time_s=5.0), 1.0),
    ],
)
def test_the_share_is_that_of_the_nearest_limit(stop: StopAt, share: float) -> None:
    assert standing(stop).share == share


def test_a_run_that_is_over_is_over_by_whatever_reason() -> None:
    found = standing(StopAt(time_s=100.0))
    found.add({"kind": "stopped", "at": 26.0, "reason": "target"})
    assert (found.reason, found.share) == ("target", 1.0)


def test_a_listener_redraws_now_and_then_and_at_the_end() -> None:
    drawn: list[float] = []
    found = Standing("pisces", 1, StopAt())
    listener = Listener(found, lambda: drawn.append(found.at))
    for at in range(100):  # in much less than a refresh
        listener.record(Started(float(at), at, at, 0))
    assert len(drawn) < 10
    listener.record(Stopped(100.0, "time"))
    listener.close()
    assert drawn[-1] == 100.0
    assert found.num_running == 100


def test_live_entries_count_as_their_lines_do() -> None:
    live = Standing("pisces", 1, StopAt())
    for entry in (
        Joined(0.0, 0, 9),
        *(Started(0.0, task, task, 0) for task in range(3)),
        Evaluated(0.0, 0, {"accuracy": 0.1}),
        Aggregated(12.0, 1, (0,), (0,), (1.0,)),
        Failed(13.0, 1, "crashed", 1),
        Failed(13.0, 1, "a message nobody asked for"),
        Left(25.0, 9, "went offline"),
        Evaluated(25.0, 1, {"accuracy": 0.625}),
    ):
        live.note(entry)
    told = standing()
    assert (live.at, live.version, live.value, live.best) == (25.0, 1, 0.625, 0.625)
    assert live.num_running == told.num_running + 1  # all the same, but nothing has arrived


def test_kinds_nobody_knows_only_move_the_clock() -> None:
    found = standing()
    found.add({"kind": "picked", "at": 30.0, "version": 7, "clients": [1], "scores": [[None]]})
    assert (found.at, found.version, found.num_running) == (30.0, 1, 1)


@pytest.mark.parametrize(
    ("metric", "target", "values", "best", "reached_at"),
    [
        ("accuracy", 0.5, (0.2, 0.6, 0.4), 0.6, 2.0),
        ("loss", 0.5, (0.9, 0.4, 0.7), 0.4, 2.0),
        ("accuracy", 0.9, (0.2, float("nan"), 0.4), 0.4, None),
    ],
)
def test_the_best_and_the_time_to_target(
    metric: str, target: float, values: tuple[float, ...], best: float, reached_at: float | None
) -> None:
    found = Standing("pisces", 1, StopAt(metric=metric, target=target))
    for at, value in enumerate(values, start=1):
        found.note(Evaluated(float(at), at, {metric: value}))
    assert (found.best, found.reached_at, found.value) == (best, reached_at, values[-1])


class Clock:
    """Seconds on a wall that the test moves on."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def timed(stop: StopAt | Stop, clock: Clock) -> Standing:
    return Standing("pisces", 1, stop, now=clock)


def test_the_time_left_is_as_long_as_it_took_so_far() -> None:
    clock = Clock()
    run = timed(StopAt(time_s=100.0), clock)
    assert (run.elapsed_s, run.left_s) == (0.0, None)
    run.add(LINES[0])
    clock.now = 106.0
    assert (run.elapsed_s, run.left_s) == (6.0, None)  # nothing is done: nothing to go by
    run.add({"kind": "aggregated", "at": 25.0, "version": 1})
    assert run.left_s == 18.0  # a quarter took 6 s
    assert not run.may_end_early
    run.add({"kind": "stopped", "at": 25.0, "reason": "interrupted"})
    clock.now = 200.0
    assert (run.elapsed_s, run.left_s) == (6.0, 0.0)


def test_nothing_is_guessed_in_the_first_moment() -> None:
    clock = Clock()
    run = timed(StopAt(time_s=100.0), clock)
    run.add({"kind": "aggregated", "at": 25.0, "version": 1})
    clock.now = 100.5
    assert run.left_s is None


def test_a_run_that_goes_on_is_judged_by_what_it_did_since() -> None:
    clock = Clock()
    run = timed(StopAt(time_s=100.0), clock)
    run.recall({"kind": "aggregated", "at": 40.0, "version": 5})
    run.recall({"kind": "stopped", "at": 40.0, "reason": "interrupted"})
    assert (run.reason, run.left_s) == (None, None)
    clock.now = 1000.0
    run.add({"kind": "aggregated", "at": 40.0, "version": 6})
    clock.now = 1002.0
    run.add({"kind": "aggregated", "at": 50.0, "version": 7})
    assert run.left_s == pytest.approx(10.0)  # a tenth took 2 s, and half is left


def test_where_only_a_target_ends_a_run_nobody_knows_how_far_it_is() -> None:
    clock = Clock()
    run = timed(Stop(target=0.9), clock)
    run.add({"kind": "aggregated", "at": 40.0, "version": 5})
    clock.now = 200.0
    assert (run.share, run.left_s, run.may_end_early) == (0.0, None, True)
    assert any("40 s" in line for line in rendered(run))


def rendered(*runs: Standing, width: int = 80) -> list[str]:
    console = Console(width=width, file=StringIO(), record=True)
    console.print(Board(runs))
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


@pytest.mark.parametrize("width", [30, 60, 80, 140])
def test_a_board_fits_on_any_terminal(width: int) -> None:
    name = "pisces-without-adaptive-pace"
    stop = StopAt(time_s=1e6, target=0.9)
    runs = [standing(stop), Standing(name, 1, stop), Standing("fedavg", 1, stop)]
    runs[0].at = 123456.0
    lines = rendered(*runs, width=width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert name in "".join(line.split()[0] for line in lines)  # in pieces, but whole
    assert "0.625" in "".join(lines)
    assert "best" in "".join(lines) or width == 30


def test_a_board_shows_the_run_each_protocol_is_at() -> None:
    over, under_way, to_come = standing(seed=1), standing(seed=2), Standing("pisces", 3, StopAt())
    over.add({"kind": "stopped", "at": 30.0, "reason": "time"})
    first, *_, row = rendered(over, under_way, to_come, width=140)
    assert row.split()[:11] == ["pisces", "1", "of", "3", "2", "25", "s", "1", "1", "1", "0.625"]
    assert first.startswith("1 of 3 runs ")


def test_runs_of_one_protocol_side_by_side_have_a_row_each() -> None:
    *_, one, other = rendered(standing(seed=1), standing(seed=2), width=140)
    assert (one.split()[:5], other.split()[0]) == (["pisces", "0", "of", "2", "1"], "2")


def test_a_board_before_the_first_line_is_blank() -> None:
    *_, row = rendered(Standing("pisces", 1, StopAt()))
    assert row.split()[0] == "pisces"
    assert not any(letter.isdigit() for letter in row)


def test_a_board_says_when_the_target_was_reached() -> None:
    run = standing(StopAt(time_s=1e3, target=0.6))
    *_, heading, _, row = rendered(run)
    assert "to 0.6" in heading
    assert row.split()[-2:] == ["25", "s"]


def test_names_are_shown_and_not_obeyed() -> None:
    run = Standing("[red]x\x1b[31m\n", 1, StopAt(metric="[bold]f1"))
    run.add({"kind": "evaluated", "at": 1.0, "version": 0, "[bold]f1": 0.5})
    text = "".join(rendered(run))
    assert "[red]x?[31m?" in text
    assert "[bold]f1" in text


def test_an_overview_has_a_row_per_batch_under_way_and_the_time_left() -> None:
    clock = Clock()
    over, under_way = standing(StopAt(time_s=50.0)), standing(StopAt(time_s=50.0), seed=2)
    over.add({"kind": "stopped", "at": 50.0, "reason": "time"})
    waiting = Standing("fedavg", 1, StopAt())
    batches = [
        Batch("study/mnist", [over, under_way], run_s=10.0),
        Batch("study/cifar10", [waiting], run_s=30.0),
    ]
    whole = Whole(batches, now=clock)
    clock.now = 106.0
    # Of 10 + 10 + 30 s of work 10 + 5 are done, in 6 s: 14 s are left.
    assert whole.left_s == pytest.approx(14.0)
    console = Console(width=80, file=StringIO(), record=True)
    console.print(Overview(whole))
    text = console.export_text()
    row = next(line for line in text.splitlines() if "study/mnist" in line)
    assert row.split()[1:11] == ["1", "of", "2", "1", "pisces,", "seed", "2", "25", "s", "0.625"]
    assert "cifar10" not in text
    assert text.startswith("1 of 3 runs ")
    assert "6 s so far, about 14 s left" in text


def test_what_may_end_early_takes_at_most_so_long() -> None:
    clock = Clock()
    runs = [Standing("pisces", seed, StopAt(time_s=50.0, target=0.9)) for seed in (1, 2)]
    whole = Whole([Batch("pisces", runs)], now=clock)
    for run in runs:
        run.add({"kind": "aggregated", "at": 25.0, "version": 1})
    clock.now = 110.0
    console = Console(width=80, file=StringIO(), record=True)
    console.print(Overview(whole))
    assert "10 s so far, at most about 10 s left" in console.export_text()


def test_an_overview_of_nothing_done_makes_no_guess() -> None:
    waiting = [Standing("pisces", seed, StopAt()) for seed in (1, 2)]
    assert Whole([Batch("study/mnist", waiting)]).left_s is None


def test_within_an_instant_nobody_is_missing() -> None:
    found = Standing("pisces", 1, StopAt())
    for task in range(2):
        found.add({"kind": "started", "at": 0.0, "task": task, "client": task, "version": 0})
        assert found.num_at_work == task + 1
    found.add({"kind": "arrived", "at": 5.0, "task": 0, "client": 0})
    assert (found.num_running, found.num_at_work) == (1, 2)  # the next one starts at once
    found.add({"kind": "aggregated", "at": 7.0, "version": 1})
    assert found.num_at_work == 1  # it did not


@pytest.mark.parametrize("protocol", ["pisces", "fedavg"])
def test_a_run_stands_by_its_entries_where_its_lines_say(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: list[Entry] = []
    monkeypatch.setattr(Memory, "record", lambda _memory, entry: entries.append(entry))
    trouble = Failures(crash=0.2, dropout=0.3, return_after_s=5.0)
    simulate(protocol, World(odd_every=4, credits=2, failures=trouble), decisions=True)
    stop = StopAt(target=0.5)
    told, noted = (Standing(protocol, 1, stop, now=_no_clock) for _ in range(2))
    for entry in entries:
        told.add(line(entry))
        noted.note(entry)
        assert told == noted
    kinds = {type(entry).__name__ for entry in entries}
    assert {"Started", "Update", "Aggregated", "Evaluated", "Stopped", "Failed"} <= kinds


def _no_clock() -> float:
    return 0.0
