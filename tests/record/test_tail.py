"""Following a log that grows, is cut, replaced, removed or damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisces.record.tail import Tail

LINES: list[dict[str, Any]] = [
    {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 9},
    {"kind": "started", "at": 0.0, "task": 0, "client": 0, "version": 0},
    {"kind": "arrived", "at": 10.0, "task": 0, "client": 0},
]
TEXTS = [json.dumps(line) + "\n" for line in LINES]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Where the log will be."""
    return tmp_path / "events.jsonl"


def test_each_whole_line_is_handed_out_once(events: Path) -> None:
    tail = Tail(events.parent)
    assert list(tail.new_lines()) == []
    events.write_text("".join(TEXTS) + '{"kind":"st')
    assert list(tail.new_lines()) == LINES
    assert list(tail.new_lines()) == []
    with events.open("a") as file:
        file.write('opped","at":9.0,"reason":"time"}\n')
    assert list(tail.new_lines()) == [{"kind": "stopped", "at": 9.0, "reason": "time"}]
    assert tail.num_restarts == 0


def test_a_log_that_was_cut_is_read_anew(events: Path) -> None:
    tail = Tail(events.parent)
    events.write_text("".join(TEXTS))
    assert list(tail.new_lines()) == LINES
    os.truncate(events, len(TEXTS[0]))
    assert (list(tail.new_lines()), tail.num_restarts) == (LINES[:1], 1)
    assert (list(tail.new_lines()), tail.num_restarts) == ([], 1)


def test_a_log_that_was_replaced_by_a_longer_one_is_read_anew(events: Path) -> None:
    tail = Tail(events.parent)
    events.write_text(TEXTS[1])
    assert list(tail.new_lines()) == LINES[1:2]
    events.unlink()
    assert (list(tail.new_lines()), tail.num_restarts) == ([], 0)
    events.write_text("".join(TEXTS))
    assert (list(tail.new_lines()), tail.num_restarts) == (LINES, 1)


def test_a_log_cut_and_written_again_alike_goes_on(events: Path) -> None:
    tail = Tail(events.parent)
    events.write_text("".join(TEXTS[:2]))
    assert list(tail.new_lines()) == LINES[:2]
    events.write_text("".join(TEXTS))  # as a run that is resumed does
    assert (list(tail.new_lines()), tail.num_restarts) == (LINES[2:], 0)


@pytest.mark.parametrize(
    "damage",
    [
        *(b"\n", b"no JSON\n", b"[]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"),
        *(b'{"kind":"started","at":0}\n', b'{"kind":"aggregated","at":null,"version":1}\n'),
    ],
)
def test_what_no_run_writes_is_passed_over(events: Path, damage: bytes) -> None:
    tail = Tail(events.parent)
    events.write_bytes(TEXTS[0].encode() + damage + TEXTS[1].encode())
    assert list(tail.new_lines()) == LINES[:2]
    assert list(tail.new_lines()) == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_log_and_not_waited_for(
    events: Path, make: Callable[[Path], None]
) -> None:
    make(events)
    num_open = len(os.listdir("/proc/self/fd"))
    tail = Tail(events.parent)
    assert [list(tail.new_lines()) for _ in range(3)] == [[], [], []]
    assert len(os.listdir("/proc/self/fd")) == num_open
