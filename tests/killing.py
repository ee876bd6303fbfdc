"""Runs in processes that can be killed; all are forked from one that has imported everything."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from forking import forking

PATIENCE_S = 120.0  # a machine may be busy
TOO_LATE = "after its end"
MOST_DRAWS = 10  # of a moment to kill a run at
OUTCOME = ("config.toml", "events.jsonl", "model.safetensors")  # the same, whatever happened
CONFIG = """
    [clients]
    count = 24
    concurrency = 8
    [data]
    size = 48
    [model]
    hidden = [64]
    [train]
    device = "cpu"
    backend = "sequential"
    [latency]
    kind = "uniform"
    min_s = 2
    max_s = 20
    jitter = 0.3
    [failures]
    crash = 0.05
    dropout = 0.05
    return_after_s = 10
    [evaluate]
    every_s = 5
    [stop]
    time_s = 100
    [checkpoint]
    every_s = 0.02
"""


def command(folder: Path, args: list[str]) -> None:
    """`pisces ARGS` in `folder`; what it says goes to a file there."""
    from pisces.cli.main import main
    from pisces.record import keeper

    keeper.MOST = 0.5  # of the time: so that many a process is killed while it writes one
    os.chdir(folder)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["pisces", *args]
    main()


@dataclass
class Killer:
    """Makes runs in a folder, and kills them at moments drawn from a seed."""

    folder: Path
    seed: int
    moments: dict[str, int] = field(default_factory=dict)  # what was killed -> how often

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._context = forking()
        (self.folder / "config.toml").write_text(CONFIG)
        self._whole_s: dict[str, float] = {}

    @property
    def num_kills(self) -> int:
        """How many processes were killed that had not ended."""
        return sum(num for when, num in self.moments.items() if when != TOO_LATE)

    def whole(self, name: str, changes: list[str]) -> Path:
        """The run that nothing happens to."""
        if name not in self._whole_s:
            began = time.monotonic()
            assert self._wait(self._start(f"{name}-whole", changes)) == 0, self._said()
            self._whole_s[name] = time.monotonic() - began
        return self.folder / f"{name}-whole"

    def killed(self, name: str, number: int, changes: list[str], times: int) -> Path:
        """The same run, killed so many times, and taken up each time."""
        out = f"{name}-{number}"
        for _ in range(times):
            self._kill(out, changes, self._whole_s[name])
        assert self._wait(self._start(out, changes)) == 0, self._said()
        return self.folder / out

    def _start(self, out: str, changes: list[str]) -> BaseProcess:
        """Begin the run, or go on with it if there is something to go on with."""
        if (self.folder / out / "config.toml").exists():
            args = ["resume", out, "-q"]
        else:  # killed before it began, if it was begun
            shutil.rmtree(self.folder / out, ignore_errors=True)
            sets = [f"--set={change}" for change in changes]
            args = ["run", "config.toml", "--out", out, "-q", *sets]
        process = self._context.Process(target=command, args=(self.folder, args))
        process.start()
        return process

    def _kill(self, out: str, changes: list[str], within_s: float) -> None:
        """Go on with the run, and kill it before its end.

        Where that came first, all is put back as it was, and a moment is drawn anew, out of half
        the time: a process that has only just been started is not at its end.
        """
        before = self.folder / f"{out}-before"
        for _ in range(MOST_DRAWS):
            _copy(self.folder / out, before)
            process = self._start(out, changes)
            process.join(self._rng.uniform(0.0, within_s))
            process.kill()
            process.join()
            self._note(out, process.exitcode)
            if process.exitcode == -signal.SIGKILL:
                return
            assert process.exitcode == 0, self._said()
            _copy(before, self.folder / out)
            within_s /= 2
        raise AssertionError(f"{out} was at its end {MOST_DRAWS} times before it could be killed")

    def _note(self, out: str, code: int | None) -> None:
        run = self.folder / out
        when = TOO_LATE
        if code != 0:
            saved = any((run / "checkpoints").glob("*.json"))
            when = "with a checkpoint" if saved else "before the first checkpoint"
        self.moments[when] = self.moments.get(when, 0) + 1

    def _wait(self, process: BaseProcess) -> Any:
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
        return process.exitcode

    def _said(self) -> str:
        return (self.folder / "said.txt").read_text()


def _copy(folder: Path, to: Path) -> None:
    """Let one folder be as the other, or not be there if that is not."""
    shutil.rmtree(to, ignore_errors=True)
    if folder.exists():
        shutil.copytree(folder, to)


def assert_same(one: Path, other: Path) -> None:
    """Fail unless log, model and settings are the same, byte for byte."""
    for name in OUTCOME:
        assert (one / name).read_bytes() == (other / name).read_bytes(), f"{other / name} differs"
