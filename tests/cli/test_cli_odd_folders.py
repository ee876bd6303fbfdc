"""Folders that anybody may have made, told of on a terminal and in files, and odd outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisces.cli.console import complain, warn
from pisces.progress.screen import Screen

Pisces = Callable[..., Any]

ODD = "\x1b[31m\x1b]0;owned\x07\ud800\u202e"
CONFIG = """
protocol = "fedbuff{odd}"
seed = 1
[protocols.fedbuff]
buffer_size = 2
[clients]
concurrency = 2
"""


def folder(path: Path, metric: str = "accuracy", odd: str = "", more: str = "") -> Path:
    """A run of one version with such a metric; `odd` stands wherever a text may stand."""
    lines: list[dict[str, Any]] = [
        *({"kind": "joined", "at": 0.0, "client": n, "num_examples": 10} for n in (0, 1)),
        {"kind": "evaluated", "at": 0.0, "version": 0, metric: 0.1},
        *({"kind": "started", "at": 0.0, "client": n, "task": n, "version": 0} for n in (0, 1)),
        *(
            {"kind": "arrived", "at": 3.0 + n, "client": n, "task": n, "version": 0}
            | {"num_examples": 10, "loss": 1.0}
            for n in (0, 1)
        ),
        {"kind": "aggregated", "at": 4.0, "version": 1, "tasks": [0, 1], "staleness": [0, 0]}
        | {"weights": [0.5, 0.5], "pace": {f"waited{odd}": 4.0}},
        {"kind": "evaluated", "at": 4.0, "version": 1, metric: 0.6},
        {"kind": "failed", "at": 4.0, "client": 0, "reason": f"why{odd}"},
        {"kind": "stopped", "at": 5.0, "reason": f"over{odd}"},
    ]
    path.mkdir(parents=True)
    (path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = "" if not odd else json.dumps(odd.replace("\ud800", ""))[1:-1]
    (path / "config.toml").write_text(CONFIG.format(odd=told) + more)
    return path


def test_the_terminal_shows_and_does_not_obey(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(force_terminal=True, width=40)
    screen.print("a\x1b[2Jb\x9bc\ud800d\ne\tf ü", style="red", markup=False, highlight=False)
    said = capsys.readouterr().out
    assert "a?[2Jb?c?d" in said
    assert said.endswith("f ü\x1b[0m\n")
    assert said.count("\x1b[31m") == said.count("\x1b[0m") == 2  # our own colours stay


def test_a_line_is_said_as_it_is_and_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    line = "[bold]runs[/bold]/:warning:/[/]" + "/deep" * 20 + " is\\"
    Screen().say(line)
    assert capsys.readouterr().out == f"{line}\n"
    warn(line)
    complain(line)
    assert capsys.readouterr().err == f"{line}\nerror: {line}\n"


@pytest.mark.parametrize("options", [(), ("--html", "page.html"), ("--csv", "numbers")])
def test_a_report_of_odd_texts(pisces: Pisces, tmp_path: Path, options: tuple[str, ...]) -> None:
    run = folder(tmp_path / "run", f"quality{ODD}", ODD)
    ran = pisces("report", run, *options)
    assert ran.code == 0
    assert "over?[31m" in ran.out
    assert not set(ODD[:1] + ODD[-3:]) & set(ran.out + ran.err)
    assert pisces("report", run, "--json").code == 0
    if not options:
        assert pisces("report", run, "--png", "a", "--pdf", "b", "--svg", "c").code == 0


def test_runs_replay_and_errors_of_odd_texts(pisces: Pisces, tmp_path: Path) -> None:
    run = folder(tmp_path / "a\x1b[31m", odd="\x1b[31m")
    (run / "config.toml").write_text(CONFIG.format(odd=""))
    other = ("--set", "pace.buffer_size=1")
    for ran in (
        pisces("runs", tmp_path),
        pisces("replay", run, *other),
        pisces("report", run / "no"),
    ):
        assert "?[31m" in ran.out + ran.err
        assert "\x1b" not in ran.out + ran.err


@pytest.mark.parametrize("metric", ["self", "run", "name", "seed", "time_s"])
def test_metrics_of_any_name(pisces: Pisces, tmp_path: Path, metric: str) -> None:
    run = folder(tmp_path / "runs/a", metric)
    other = folder(tmp_path / "runs/b", metric)
    (other / "config.toml").write_text('protocol = "pisces"\nseed = 1\n')
    files = ("--html", "page.html", "--csv", "numbers", "--png", "pictures")
    for folders in ([run], [tmp_path / "runs"]):
        ran = pisces("report", *folders, "--metric", metric, "--target", 0.5, *files)
        assert (ran.code, "left out" in ran.err) == (0, True)
        names = Path("numbers/curve.csv").read_text().partition("\n")[0].split(",")
        is_taken = metric in ("protocol", "seed", "time_s")
        assert names == ["protocol", "seed", "time_s", f"{metric} (2)" if is_taken else metric]


@pytest.mark.parametrize(
    "more",
    [
        "x = 0xf" + "f" * 5000,
        "[protocols.pisces]\nstaleness_bound = 1" + "0" * 400,
        f"count = {2**70}\n[data]\ncorrupted = 0.5",
    ],
)
def test_numbers_that_are_too_large(pisces: Pisces, tmp_path: Path, more: str) -> None:
    run = folder(tmp_path / "runs/a", more=more)
    folder(tmp_path / "runs/b")
    for args in (
        ("report", run),
        ("report", run, "--html", "a.html"),
        ("report", "runs"),
        ("report", run, "--csv", "numbers"),
        ("replay", run),
        ("runs", "runs"),
    ):
        ran = pisces(*args)
        assert ran.code in (0, 2)
        assert ran.code == 0 or "error: " in ran.err, ran


@pytest.mark.parametrize("command", ["report", "runs", "replay"])
def test_a_pipe_is_no_run(pisces: Pisces, tmp_path: Path, command: str) -> None:
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "events.jsonl")
    ran = pisces(command, pipe)
    if command == "runs":
        assert "no runs below" in ran.out
    else:
        assert (ran.code, "its events.jsonl is no file; check the path" in ran.err) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
@pytest.mark.parametrize(
    "args", [("report", "-q"), ("report", "--json"), ("replay",), ("runs",), ("runs", "--json")]
)
def test_a_full_disk_is_one_line(tmp_path: Path, args: tuple[str, ...]) -> None:
    run = folder(tmp_path / "run")
    command = [sys.executable, "-m", "pisces.cli.main", args[0], str(run), *args[1:]]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.stderr == "error: cannot write the output: No space left on device\n"
    assert ran.returncode == 2


def test_nobody_needs_to_read_the_output(tmp_path: Path) -> None:
    folder(tmp_path / "run")
    command = f"{sys.executable} -m pisces.cli.main runs --json run"
    closed = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")
    read, write = os.pipe()
    os.close(read)
    left = subprocess.run(command.split(), stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (left.returncode, left.stderr) == (1, "")


def test_a_terminal_of_no_width_has_a_usual_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    screen = Screen()
    assert screen.width == 80
    screen.print("all of this", highlight=False)
    assert capsys.readouterr().out == "all of this\n"
