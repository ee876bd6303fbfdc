"""Live progress: where a run stands, line by line, and how that looks on 80 columns."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pisces.cli.progress import Batch, Board, Listener, Overview, Standing
from pisces.record.tail import Tail
from pisces.tables import StopAt
from pisces.types import Started, Stopped

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
    for line in LINES:
        found.add(line)
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


def rendered(*runs: Standing) -> list[str]:
    console = Console(width=80, file=StringIO(), record=True)
    console.print(Board("accuracy", runs))
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


def test_a_board_fits_on_80_columns() -> None:
    name = "pisces-without-adaptive-pace"
    lines = rendered(standing(), Standing(name, 1, StopAt()), Standing("fedavg", 1, StopAt()))
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert name in "".join(line.split()[0] for line in lines)  # in pieces, but whole


def test_a_board_shows_the_run_each_protocol_is_at() -> None:
    over, under_way, to_come = standing(seed=1), standing(seed=2), Standing("pisces", 3, StopAt())
    over.add({"kind": "stopped", "at": 30.0, "reason": "time"})
    *_, row = rendered(over, under_way, to_come)
    assert row.split()[:8] == ["pisces", "2", "25", "s", "1", "1", "1", "0.625"]


def test_a_board_before_the_first_line_is_blank() -> None:
    *_, row = rendered(Standing("pisces", 1, StopAt()))
    assert row.split()[0] == "pisces"
    assert not any(letter.isdigit() for letter in row)


def test_an_overview_has_a_row_per_batch_under_way_and_the_time_left() -> None:
    clock = [100.0]
    over, under_way = standing(StopAt(time_s=50.0)), standing(StopAt(time_s=50.0), seed=2)
    over.add({"kind": "stopped", "at": 50.0, "reason": "time"})
    waiting = Standing("fedavg", 1, StopAt())
    batches = [
        Batch("study/mnist", [over, under_way], run_s=10.0),
        Batch("study/cifar10", [waiting], run_s=30.0),
    ]
    overview = Overview(batches, now=lambda: clock[0])
    clock[0] = 106.0
    # Of 10 + 10 + 30 s of work 10 + 5 are done, in 6 s: 14 s are left.
    assert overview.left_s() == pytest.approx(14.0)
    console = Console(width=80, file=StringIO(), record=True)
    console.print(overview)
    text = console.export_text()
    row = next(line for line in text.splitlines() if "study/mnist" in line)
    assert row.split()[1:8] == ["1", "of", "2", "1", "pisces,", "seed", "2"]
    assert "cifar10" not in text
    assert "1 of 3 runs; about 14 s left" in text


def test_an_overview_of_nothing_done_makes_no_guess() -> None:
    overview = Overview([Batch("study/mnist", [Standing("pisces", 1, StopAt())], run_s=1.0)])
    assert overview.left_s() is None


def test_a_tail_hands_out_each_whole_line_once(tmp_path: Path) -> None:
    tail, events = Tail(tmp_path), tmp_path / "events.jsonl"
    assert list(tail.new_lines()) == []
    whole = [json.dumps(line) + "\n" for line in LINES[:3]]
    events.write_text("".join(whole) + '{"kind":"st')
    assert list(tail.new_lines()) == LINES[:3]
    assert list(tail.new_lines()) == []
    with events.open("a") as file:
        file.write('opped","at":9.0,"reason":"time"}\n')
    assert list(tail.new_lines()) == [{"kind": "stopped", "at": 9.0, "reason": "time"}]
