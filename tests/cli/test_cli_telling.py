"""Progress as lines: sentences, and JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pisces.progress.standing import Batch, Standing, Whole
from pisces.progress.telling import JsonLines, Sentences, Teller, Words
from pisces.tables import StopAt

STOP = StopAt(time_s=100.0, target=0.9)
BEGUN = {"kind": "started", "at": 0.0, "task": 0, "client": 0, "version": 0}


class Clock:
    """Seconds on a wall that the test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """Runs, a clock, and what was said of them."""

    def __init__(self, words: Words, *names: str, stop: StopAt = STOP) -> None:
        self.clock, self.said = Clock(), list[str]()
        self.runs = [Standing(name, 1, stop, now=self.clock) for name in names]
        whole = Whole([Batch(run.protocol, [run]) for run in self.runs], now=self.clock)
        self._teller = Teller(whole, words, self.said.append, now=self.clock)

    def at(self, seconds: float, *lines: dict[str, Any], of: int = 0) -> list[str]:
        """What is said at an instant on the wall at which a run has recorded some lines."""
        self.clock.now, self.said[:] = seconds, []
        for line in lines:
            self.runs[of].add(line)
        self._teller.tell()
        return list(self.said)


def evaluated(at: float, accuracy: float) -> dict[str, Any]:
    return {"kind": "evaluated", "at": at, "version": 1, "accuracy": accuracy}


def test_a_run_in_sentences() -> None:
    desk = Desk(Sentences(), "pisces")
    assert desk.at(0.0) == []
    assert desk.at(1.0, BEGUN) == ["pisces, seed 1: begun, until accuracy 0.9 or 100 s"]
    assert desk.at(4.9, evaluated(20.0, 0.5)) == []
    assert desk.at(5.0) == [
        "pisces, seed 1: at 20 s, version 0, 0 updates, 1 running, accuracy 0.500, best 0.500; "
        "20 % done, 4 s so far, at most about 16 s left"
    ]
    assert desk.at(9.9) == []
    assert desk.at(9.9, evaluated(30.0, 0.95)) == [
        "pisces, seed 1: reached accuracy 0.9 at 30 s",
    ]
    assert desk.at(9.9, {"kind": "stopped", "at": 31.0, "reason": "time"}) == [
        "pisces, seed 1: finished (time) at 31 s, version 0, 0 updates, accuracy 0.950, best "
        "0.950, accuracy 0.9 reached at 30 s; took 8.9 s"
    ]
    assert desk.at(1000.0) == []  # all is said


def test_a_run_that_ends_at_its_target_says_so_once() -> None:
    desk = Desk(Sentences(), "pisces")
    said = desk.at(
        1.0, BEGUN, evaluated(30.0, 0.95), {"kind": "stopped", "at": 30.0, "reason": "target"}
    )
    assert [line.split()[3] for line in said] == ["begun,", "finished"]
    assert "accuracy 0.9 reached at 30 s" in said[-1]


def test_a_run_without_a_target_has_no_word_of_one() -> None:
    desk = Desk(Sentences(), "pisces", stop=StopAt(time_s=float("inf"), versions=7, updates=9))
    begun, over = desk.at(1.0, BEGUN, {"kind": "stopped", "at": 30.0, "reason": "versions"})
    assert begun == "pisces, seed 1: begun, until 7 versions or 9 updates"
    assert over == "pisces, seed 1: finished (versions) at 30 s, version 0, 0 updates; took 0 s"


def test_many_runs_are_counted_and_each_has_its_milestones() -> None:
    desk = Desk(Sentences(), "pisces", "fedavg")
    desk.at(1.0, BEGUN)
    assert desk.at(2.0, {"kind": "stopped", "at": 9.0, "reason": "target"})[0].startswith(
        "pisces, seed 1: finished (target) at 9 s, "
    )
    desk.at(3.0, BEGUN, of=1)
    (line,) = desk.at(6.0)
    assert line == "runs: 1 of 2 done, 1 running; 6 s so far, at most about 6 s left"


def test_the_longer_it_takes_the_rarer_the_lines() -> None:
    words = Sentences()
    assert [words.every_s(s) for s in (0.0, 100.0, 1000.0, 1e6)] == [5.0, 5.0, 20.0, 60.0]


def test_no_line_has_what_a_terminal_would_obey() -> None:
    desk = Desk(Sentences(), "\x1b[31mred\r\n", stop=StopAt(metric="f\x07", target=0.5))
    (line,) = desk.at(1.0, BEGUN)
    assert line.isprintable()


def test_a_run_that_goes_on_says_from_where() -> None:
    desk = Desk(Sentences(), "pisces")
    desk.runs[0].recall({"kind": "aggregated", "at": 40.0, "version": 5})
    assert desk.at(1.0) == ["pisces, seed 1: goes on at 40 s, until accuracy 0.9 or 100 s"]


def test_a_run_for_programs() -> None:
    desk = Desk(JsonLines(), "pisces", "fedavg")
    said = [
        *desk.at(0.5, BEGUN),
        *desk.at(3.0, evaluated(20.0, float("nan"))),
        *desk.at(3.5, evaluated(30.0, 0.95)),
        *desk.at(3.6, {"kind": "stopped", "at": 30.0, "reason": "target"}),
    ]
    lines = [json.loads(line) for line in said]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["begun", "progress", "all", "target", "finished"]
    assert lines[1] == {
        "kind": "progress",
        "run": "pisces-seed1",
        "protocol": "pisces",
        "seed": 1,
        "at": 20.0,
        "version": 0,
        "updates": 0,
        "running": 1,
        "metric": "accuracy",
        "value": None,
        "best": None,
        "target": 0.9,
        "time_to_target_s": None,
        "reason": None,
        "share": 0.2,
        "elapsed_s": 2.5,
        "left_s": 10.0,
        "at_most": True,
    }
    together = {"done": 0, "runs": 2, "running": 1, "share": 0.1, "elapsed_s": 3.0}
    assert lines[2] == {"kind": "all", **together, "left_s": 27.0, "at_most": True}
    assert (lines[3]["time_to_target_s"], lines[4]["reason"]) == (30.0, "target")


@pytest.mark.parametrize("words", [Sentences(), JsonLines()])
def test_nothing_is_said_of_what_has_not_begun(words: Words) -> None:
    desk = Desk(words, "pisces")
    assert desk.at(100.0) == []
