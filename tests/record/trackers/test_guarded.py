"""Whatever a tracker does, the run goes on, waits for nobody, and says once what is wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from trackedruns import Notes, points_of, simulated

from pisces.record.lines import line
from pisces.record.trackers.base import Point, Subject, Tracker, name_of
from pisces.record.trackers.guarded import Guarded, Tracked
from pisces.types import Evaluated

PATIENCE_S = 60.0  # a machine may be busy
RUN = Subject("r", "0123456789ab", 0.0)


def point(number: int, *, is_evaluation: bool = False) -> Point:
    return Point(number, number, float(number), {"x": 1.0}, is_evaluation)


class Slow(Notes):
    """Does nothing until it is let go."""

    name = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go = threading.Event(), threading.Event()

    def begin(self, run: Subject) -> None:
        super().begin(run)
        self.began.set()
        assert self.go.wait(PATIENCE_S)


class Broken(Notes):
    """Fails at one of its verbs."""

    name = "broken"

    def __init__(self, verb: str, error: BaseException) -> None:
        super().__init__()
        self._verb, self._error = verb, error
        self.num_calls = 0

    def _fail_at(self, verb: str) -> None:
        self.num_calls += 1
        if verb == self._verb:
            raise self._error

    def begin(self, run: Subject) -> None:
        self._fail_at("begin")

    def track(self, points: Sequence[Point]) -> None:
        self._fail_at("track")

    def end(self, summary: Any) -> None:
        self._fail_at("end")


@pytest.fixture
def slow() -> Iterator[Slow]:
    tracker = Slow()
    yield tracker
    tracker.go.set()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.set_level(logging.WARNING, "pisces")

    class Said(list[str]):
        def __iter__(self) -> Iterator[str]:
            return (r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)

    return Said()


@pytest.mark.parametrize("verb", ["begin", "track", "end"])
@pytest.mark.parametrize("error", [ValueError("no\nroom"), SystemExit(1), KeyboardInterrupt()])
def test_one_that_fails_is_named_once_and_left_alone(
    verb: str, error: BaseException, tmp_path: Path, warnings: list[str]
) -> None:
    broken, notes = Broken(verb, error), Notes()
    result = simulated(tmp_path / "r", trackers=[broken, notes])
    (said,) = warnings
    assert said.startswith("tracker broken failed and is left alone; the run goes on: ")
    assert type(error).__name__ in said
    assert "no\nroom" not in said  # one line
    assert broken.num_calls == {"begin": 1, "track": 2}.get(verb, broken.num_calls)
    assert notes.points == points_of(tmp_path / "r")  # others hear of everything
    assert notes.summaries == [result.summary]


class UnspeakableError(Exception):
    """An error that cannot even be told."""

    def __str__(self) -> str:
        raise self.args[0]


def test_who_waits_for_one_is_told(
    slow: Slow, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisces.record.trackers.guarded.SILENCE_S", 0.05)
    tracked = Tracked([slow, Notes()], patience_s=0.1)
    tracked.begin(RUN)
    tracked.close()
    waits, given_up = warnings
    assert waits == "waiting for trackers: slow (0.1 s at most)"
    assert "tracker slow has not finished in time" in given_up


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no \x1b[31mroom"), "ValueError: no [31mroom"),  # nothing a terminal obeys
        (ValueError("a\u202eb\n c"), "ValueError: a b c"),
        (RuntimeError(), "RuntimeError"),  # once
        (UnspeakableError(TypeError()), "UnspeakableError"),
        (UnspeakableError(SystemExit()), "UnspeakableError"),
        (OSError("no http://bob:secret@there:1/x"), "OSError: no http://...@there:1/x"),
    ],
)
def test_whatever_the_error_says_is_told_in_one_plain_line(
    error: BaseException, told: str, warnings: list[str]
) -> None:
    tracked = Tracked([Broken("begin", error)])
    tracked.begin(RUN)
    tracked.close()
    (said,) = warnings
    assert said == f"tracker broken failed and is left alone; the run goes on: {told}"


def test_one_that_hangs_does_not_hold_up_the_run(
    tmp_path: Path, slow: Slow, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisces.running.Tracked", partial(Tracked, patience_s=0.1))
    notes = Notes()
    result = simulated(tmp_path / "r", trackers=[slow, notes])  # it would never come back
    assert result.summary["reason"] == "time"
    (said,) = warnings
    assert "tracker slow has not finished in time and is left alone" in said
    assert notes.summaries


def test_what_comes_of_one_that_was_given_up_is_not_told_again(warnings: list[str]) -> None:
    slow, tracked = Slow(), None
    slow.track = lambda _points: (_ for _ in ()).throw(OSError("gone"))  # type: ignore[assignment]
    tracked = Tracked([slow], patience_s=0.05)
    tracked.begin(RUN)
    tracked.add({"kind": "evaluated", "at": 0.0, "version": 0, "accuracy": 0.1})
    tracked.close()
    slow.go.set()
    for thread in threading.enumerate():
        if thread.name == "pisces slow":
            thread.join(PATIENCE_S)
    assert len(list(warnings)) == 1


def test_a_full_queue_is_thinned_but_for_evaluations(slow: Slow, warnings: list[str]) -> None:
    turn = threading.Condition()
    guarded = Guarded(slow, turn, most_waiting=100)
    guarded.begin(RUN)
    assert slow.began.wait(PATIENCE_S)
    for number in range(10_000):
        guarded.track(point(number, is_evaluation=number % 10 == 0))
    guarded.end({"reason": "time"})
    slow.go.set()
    with turn:
        assert turn.wait_for(lambda: guarded.is_done, PATIENCE_S)
    numbers = [p.number for p in slow.points]
    assert numbers == sorted(numbers)
    assert [n for n in numbers if n % 10 == 0] == list(range(0, 10_000, 10))
    spare = [n for n in numbers if n % 10]
    assert 50 <= len(spare) <= 100
    gaps = [after - before for before, after in pairwise(spare)]
    assert max(gaps) < 1.3 * min(gaps)  # evenly, but for evaluations between
    assert (spare[0], spare[-1] > 9800) == (1, True)
    assert slow.summaries == [{"reason": "time"}]
    assert list(warnings) == [
        "tracker slow cannot keep up: some points are left out, but no evaluations"
    ]


def test_the_past_is_told_first_and_never_thinned() -> None:
    notes = Notes()
    tracked = Tracked([notes])
    past = [{"kind": "evaluated", "at": 1.0, "version": v, "accuracy": 0.1} for v in range(20_000)]
    for one in past:
        tracked.add(one)
    tracked.begin(RUN)
    tracked.record(Evaluated(2.0, 20_000, {"accuracy": 0.2}))
    tracked.end({"reason": "time"})
    tracked.close()
    assert [p.number for p in notes.points] == list(range(20_001))
    assert line(Evaluated(2.0, 20_000, {"accuracy": 0.2}))["accuracy"] == 0.2


def test_a_run_that_breaks_off_says_so(tmp_path: Path) -> None:
    def fails(_outputs: Any, _targets: Any) -> float:
        raise ZeroDivisionError

    notes = Notes()
    with pytest.raises(ZeroDivisionError):
        simulated(tmp_path / "r", trackers=[notes], metrics={"odd": fails})
    assert notes.summaries == [None]


def test_one_with_a_track_alone_is_enough(tmp_path: Path) -> None:
    class Best(Tracker):
        best = 0.0

        def track(self, points: Sequence[Point]) -> None:
            self.best = max([self.best, *(p.values.get("accuracy", 0.0) for p in points)])

    mine = Best()
    result = simulated(None, trackers=[mine])
    assert mine.best == result.summary["best"]["accuracy"]


class Greedy(Notes):
    """Keeps nothing as it was."""

    def track(self, points: Sequence[Point]) -> None:
        for one in points:
            one.values.clear()  # type: ignore[attr-defined]

    def end(self, summary: Any) -> None:
        summary["final"].clear()
        summary.clear()


def test_what_one_tracker_does_to_its_points_is_not_seen_by_another() -> None:
    turn, summary = threading.Condition(), {"final": {"accuracy": 0.5}}
    trackers, shared = (Greedy(), Notes()), point(0)
    for guarded in [Guarded(one, turn) for one in trackers]:
        guarded.begin(RUN)
        guarded.track(shared)
        guarded.end(summary)
        with turn:
            assert turn.wait_for(lambda it=guarded: it.is_done, PATIENCE_S)
    assert shared.values == trackers[1].points[0].values == {"x": 1.0}
    assert trackers[1].summaries == [summary] == [{"final": {"accuracy": 0.5}}]


def test_one_whose_name_cannot_be_told_is_called_after_its_kind() -> None:
    class Nameless(Notes):
        @property
        def name(self) -> str:  # type: ignore[override]
            raise RuntimeError

    result = simulated(None, trackers=[nameless := Nameless()])
    assert nameless.summaries == [result.summary]
    assert name_of(nameless) == "Nameless"
