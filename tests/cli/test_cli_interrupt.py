"""Ctrl-C and worse: what there is so far is saved and shown, and nobody is left behind."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pisces.cli.main import _let_go_at_once
from pisces.many.jobs import has_begun

ENDLESS = ("--set", "stop.time_s=1e9", "--set", "stop.target=1")
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


IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """`pisces ARGS` in a terminal of its own."""

    def __init__(self, *args: object) -> None:
        self._screen, its = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_A_TERMINAL, "-m", "pisces.cli.main", *map(str, args)],
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(its)
        self.seen = b""

    def look(self) -> None:
        """Read what is on the screen: who writes there would wait else."""
        while select.select([self._screen], [], [], 0)[0]:
            self.seen += os.read(self._screen, 65536)

    def close(self) -> None:
        """Somebody closes the window."""
        os.close(self._screen)
        self._screen = -1

    def end(self) -> None:
        """Leave nothing behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self._screen >= 0:
            self.close()


@pytest.fixture
def in_terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def call(*args: object) -> Terminal:
        opened.append(Terminal(*args))
        return opened[-1]

    yield call
    for terminal in opened:
        terminal.end()


def test_a_run_is_saved_when_its_terminal_is_closed(
    in_terminal: Callable[..., Terminal], small: str
) -> None:
    terminal = in_terminal("run", small, *ENDLESS, "--out", "r")
    until(lambda: terminal.look() or is_under_way("r"))
    until(lambda: terminal.look() or b"pisces" in terminal.seen)  # a view is on the screen
    terminal.close()
    assert terminal.process.wait(PATIENCE_S) == 143
    assert_complete("r")


def test_comparisons_are_saved_when_their_terminal_is_closed(
    in_terminal: Callable[..., Terminal], small: str
) -> None:
    terminal = in_terminal("compare", small, *ENDLESS, *ALONE[:-1])
    until(lambda: terminal.look() or is_under_way("o/pisces-seed1"))
    terminal.close()
    with suppress(ProcessLookupError):  # shells tell all processes of a job
        os.killpg(terminal.process.pid, signal.SIGHUP)
    assert terminal.process.wait(PATIENCE_S) == 130
    assert_complete("o/pisces-seed1")
    until(lambda: is_gone(terminal.process.pid))


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
    assert err.count("under way to end") <= 1  # none, where both heard it first
    assert len(err.splitlines()) <= 2
    assert out.count("1 cut short") == 2
    assert "plot:" not in out  # quiet, but drawn
    assert Path("o/accuracy.png").exists()
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
    assert waits in ([], ["waiting for the run under way to end"])
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
