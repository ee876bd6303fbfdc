"""Ctrl-C and worse: what there is so far is saved and shown, and nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pisces.cli.main import _let_go_at_once
from pisces.cli.many import has_begun

ENDLESS = ("--set", "stop.time_s=1e9", "--set", "stop.target=1.1")
ALONE = ("--protocols", "pisces", "--jobs", 1, "--out", "o", "-q")
PATIENCE_S = 60.0  # a machine may be busy; all of this takes a few seconds


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    ends_at = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends_at, "waited in vain"
        time.sleep(0.05)


def is_under_way(run: str) -> bool:
    events = Path(run) / "events.jsonl"
    return events.exists() and b"aggregated" in events.read_bytes()


def is_gone(group: int) -> bool:
    """Has every process of this group ended? One that only waits to be buried has."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return not [stat for pgid, stat in rows if int(pgid) == group and not stat.startswith("Z")]


def workers_of(parent: int) -> list[int]:
    """The processes that make runs; what those start themselves is not among them."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, ppid, args in rows if int(ppid) == parent and "spawn_main" in args]


def assert_complete(run: str) -> None:
    """An interrupted run has everything a finished one has."""
    lines = (Path(run) / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["reason"] == "interrupted"
    assert json.loads((Path(run) / "summary.json").read_text())["reason"] == "interrupted"
    assert (Path(run) / "model.safetensors").exists()


SLOW = """
import time
print("importing", flush=True)
try:
    time.sleep({patience})
except KeyboardInterrupt:
    pass  # as some packages do
"""


@pytest.mark.parametrize("module", ["pisces", "pisces.cli.main"])
def test_ctrl_c_while_commands_are_imported_ends_it_without_a_word(
    folder: Path, module: str
) -> None:
    (folder / "typer.py").write_text(SLOW.format(patience=PATIENCE_S))
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S / 2)
    assert (process.returncode, out, err) == (130, "", "")


def test_who_is_deaf_to_ctrl_c_stays_so() -> None:
    with _let_go_at_once():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _let_go_at_once():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_ends_a_run_cleanly(
    start: Callable[..., Any], pisces: Callable[..., Any], small: str
) -> None:
    process = start("run", small, *ENDLESS, "--out", "r", "-q")
    until(lambda: is_under_way("r"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")
    assert "interrupted, at" in out
    assert "written to r" in out
    assert_complete("r")
    report = pisces("report", "r", "--out", "plots")
    assert report.code == 0
    assert "interrupted, at" in report.out


def test_ctrl_c_ends_a_comparison_cleanly(start: Callable[..., Any], small: str) -> None:
    args = ("--protocols", "pisces,fedbuff", "--seeds", "1-3", "--jobs", 2, "--out", "o", "-q")
    process = start("compare", small, *ENDLESS, *args)
    begun = ("o/pisces-seed1", "o/fedbuff-seed1")
    until(lambda: all(map(is_under_way, begun)))
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    told = "interrupted: 0 of 6 runs are done; the same command with --out o goes on\n"
    assert err.endswith(told)
    assert err.count("under way to be saved") <= 1  # none, where both heard it first
    assert len(err.splitlines()) <= 2
    assert out.count("1 cut short") == 2
    assert "plot: o/accuracy.png" in out
    for run in begun:
        assert_complete(run)
    until(lambda: is_gone(process.pid))
    assert sorted(p.name for p in Path("o").iterdir() if p.is_dir()) == [
        "fedbuff-seed1",
        "pisces-seed1",
    ]


@pytest.mark.parametrize("sent_to", ["parent", "everybody"])
def test_sigterm_leaves_nothing_behind(start: Callable[..., Any], small: str, sent_to: str) -> None:
    process = start("compare", small, *ENDLESS, *ALONE)
    until(lambda: is_under_way("o/pisces-seed1"))
    send = process.send_signal if sent_to == "parent" else partial(os.killpg, process.pid)
    send(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    *waits, told = err.splitlines()
    assert waits in ([], ["waiting for the run under way to be saved"])
    assert waits or sent_to == "everybody"  # of whom the run may have heard it first
    assert told == "interrupted: 0 of 3 runs are done; the same command with --out o goes on"
    assert "1 cut short" in out
    until(lambda: is_gone(process.pid))


def test_ctrl_c_before_the_first_run_leaves_nobody(start: Callable[..., Any], small: str) -> None:
    process = start("compare", small, *ENDLESS, "--jobs", 1, "--out", "o")
    until(lambda: len(workers_of(process.pid)) > 0)  # still importing, and deaf
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    until(lambda: is_gone(process.pid))
    assert has_begun(Path("o/pisces-seed1")) or not Path("o").exists()


def test_workers_do_not_outlive_a_killed_parent(start: Callable[..., Any], small: str) -> None:
    process = start("compare", small, *ENDLESS, *ALONE)
    until(lambda: is_under_way("o/pisces-seed1"))
    assert not is_gone(process.pid)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    until(lambda: is_gone(process.pid))


def test_a_killed_worker_is_one_line(start: Callable[..., Any], small: str) -> None:
    process = start("compare", small, *ENDLESS, *ALONE)
    until(lambda: is_under_way("o/pisces-seed1"))
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert err == (
        "error: a worker process was killed, perhaps for lack of memory: try fewer --jobs\n"
    )
    until(lambda: is_gone(process.pid))
