"""`pisces replay`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Pisces = Callable[..., Any]


def test_the_runs_own_pace_decides_as_it_did(pisces: Pisces, finished: Path) -> None:
    ran = pisces("replay", finished)
    num = json.loads((finished / "summary.json").read_text())["versions"]
    assert ran.code == 0
    assert f"replayed as recorded: {num} of {num} aggregations the same" in ran.out
    assert "recorded" in ran.out
    assert "estimate" not in ran.out  # nothing was asked otherwise


def test_another_bound(pisces: Pisces, finished: Path) -> None:
    ran = pisces("replay", finished, "--set", "pace.bound=1")
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert "recorded pace.bound=1" in said
    assert "exact up to t = " in said
    assert "from there an estimate" in said
    assert "starts come after the first difference" in said
    assert "limit_s" in said  # what each pace went by
    assert "and its bound 8 1" in said
    assert max(map(len, ran.out.splitlines())) <= 80


def test_several_bounds_are_columns(pisces: Pisces, finished: Path) -> None:
    ran = pisces("replay", finished, "--set", "pace.bound=1,2,4")
    said = " ".join(ran.out.split())
    assert "recorded pace.bound=1 pace.bound=2 pace.bound=4" in said
    assert "interval, 95th" in ran.out  # names are broken last, and into two lines at most
    assert max(map(len, ran.out.splitlines())) <= 80
    # What all have in common is said once, behind what each has of its own.
    for telling in ("starts come after the first difference", "ended by its"):
        assert said.count(telling) <= 1
    assert "and every latency, loss and failure, is as recorded" in said.partition("all of them")[2]


def test_a_bound_that_was_exceeded_is_explained(pisces: Pisces, finished: Path) -> None:
    told = json.loads(pisces("replay", finished, "--json", "--set", "pace.bound=1").out)
    is_exceeded = told["replayed"]["staleness_max"] > 1 or told["recorded"]["staleness_max"] > 8
    said = pisces("replay", finished, "--set", "pace.bound=1").out
    assert ("A bound holds as far as a pace knows" in said) == is_exceeded


def test_who_has_no_bound_has_no_row_for_it(pisces: Pisces, finished: Path) -> None:
    ran = pisces("replay", finished, "--set", "pace.policy=timed", "--set", "pace.timeout_s=9")
    assert "and its bound 8 -" in " ".join(ran.out.split())


def test_json_has_all_of_it(pisces: Pisces, finished: Path) -> None:
    ran = pisces(
        *("replay", finished, "--json"),
        *("--set", "pace.policy=fedbuff", "--set", "pace.buffer_size=3"),
    )
    told = json.loads(ran.out)
    assert told["changes"] == ["pace.policy=fedbuff", "pace.buffer_size=3"]
    assert told["check"]["is_same"]
    assert told["replayed"]["updates_mean"] <= 3
    assert told["differences"][0]["at"] == told["exact_until_s"]
    assert len(told["aggregations"]) == told["replayed"]["num_aggregations"]
    assert told["caveats"]
    several = json.loads(pisces("replay", finished, "--json", "--set", "pace.bound=1,2").out)
    assert [one["changes"] for one in several] == [["pace.bound=1"], ["pace.bound=2"]]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture(pisces: Pisces, finished: Path, suffix: str) -> None:
    name = f"pictures/paces.{suffix}"
    ran = pisces("replay", finished, "--set", "pace.bound=1,3", "--out", name)
    assert ran.code == 0
    assert f"picture: {name}" in ran.out
    assert Path(name).stat().st_size > 5000


def test_a_run_that_went_on_replays_as_one_that_was_left_alone(
    pisces: Pisces, small: str, folder: Path
) -> None:
    assert pisces("run", small, "--out", "whole", "-q").code == 0
    half = pisces("run", small, "--out", "halves", "-q", "--set", "stop.time_s=30")
    assert half.code == 0
    first = json.loads(pisces("replay", "halves", "--json", "--set", "pace.bound=2").out)
    assert pisces("resume", "halves", "-q", "--set", "stop.time_s=60").code == 0
    told = [
        json.loads(pisces("replay", run, "--json", "--set", "pace.bound=2").out)
        for run in ("whole", "halves")
    ]
    assert told[0] == {**told[1], "folder": "whole"}
    assert told[1]["check"]["is_same"]
    num = len(first["aggregations"])
    assert told[1]["aggregations"][:num] == first["aggregations"]


def test_a_killed_run_is_replayed_as_far_as_it_got(pisces: Pisces, finished: Path) -> None:
    (finished / "summary.json").unlink()
    path = finished / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:20])
    ran = pisces("replay", finished, "--set", "pace.bound=2")
    assert ran.code == 0
    assert "replayed as recorded" in ran.out
    assert "the run is not over, or was killed" in ran.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "select.policy=oort"], "a replay can only ask the pace otherwise"),
        (["--set", "pace.bund=3"], "did you mean pace.bound?"),
        (["--set", "pace.bound=0"], "must be greater than or equal to 1, not 0"),
        (["--set", "pace.policy=fedbuf"], "did you mean 'fedbuff'?"),
        (["--out", "paces.gif"], "a plot is saved as .png or .svg or .pdf"),
    ],
)
def test_bad_input_is_one_line(
    pisces: Pisces, finished: Path, options: list[str], told: str
) -> None:
    ran = pisces("replay", finished, *options)
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1


def test_what_is_no_run_is_refused(pisces: Pisces, folder: Path) -> None:
    ran = pisces("replay", "nowhere")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "is not a run folder" in ran.err


def test_a_damaged_log_is_refused(pisces: Pisces, finished: Path) -> None:
    path = finished / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:20], b'{"kind":}\n', *lines[20:]]))
    ran = pisces("replay", finished)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "line 21: not an event" in ran.err


def test_a_run_made_in_python_says_how(pisces: Pisces, finished: Path) -> None:
    (finished / "config.toml").write_text('made_in = "Python"\nprotocol = "pisces"\nseed = 1\n')
    ran = pisces("replay", finished, "--set", "pace.bound=2")
    assert ran.code == 2
    assert "pisces.replaying.replay(run, pacer=another, own=the run's)" in ran.err
