"""A small config, the command line in this process or one of its own, a finished run and study."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import studyfiles
from configs import SMALL

from pisces.cli.main import main

COMMAND = [sys.executable, "-m", "pisces.cli.main"]


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Pisces = Callable[..., Ran]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test works: an empty folder, no datasets, a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("PISCES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def small(folder: Path) -> str:
    """The name of a config file whose run takes a moment."""
    (folder / "small.toml").write_text(SMALL)
    return "small.toml"


@pytest.fixture
def pisces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pisces:
    """`pisces ARGS` in this process."""

    def call(*args: Any) -> Ran:
        monkeypatch.setattr(sys, "argv", ["pisces", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return Ran(int(end.value.code or 0), said.out, said.err)

    return call


@pytest.fixture
def start() -> Iterator[Start]:
    """`pisces ARGS` in a process group of its own, as a shell starts it; none of it stays."""
    started = []

    def call(*args: Any, **options: Any) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*COMMAND, *map(str, args)]
        process = subprocess.Popen(command, text=True, start_new_session=True, **(pipes | options))
        started.append(process)
        return process

    yield call
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


@pytest.fixture
def spawn(start: Start) -> Pisces:
    """`pisces ARGS` in a process of its own, to its end."""

    def call(*args: Any, **options: Any) -> Ran:
        process = start(*args, **options)
        out, err = process.communicate(timeout=120)
        return Ran(process.returncode, out, err)

    return call


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run made by `pisces run`, once for all tests."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "small.toml").write_text(SMALL)
    args = ["pisces", "run", str(folder / "small.toml"), "--out", str(folder / "run"), "-q"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.setattr(sys, "argv", args)
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 0
    return folder / "run"


@pytest.fixture
def finished(made: Path, folder: Path) -> Path:
    """The folder of a finished run, below ./runs."""
    shutil.copytree(made, folder / "runs" / "first")
    return Path("runs/first")


@pytest.fixture
def study(folder: Path, small: str) -> Path:
    """The folder of a study of two runs, below ./experiments."""
    made = folder / "experiments" / "speed"
    made.mkdir(parents=True)
    (made / "study.toml").write_text(studyfiles.STUDY)
    (made / "mnist.toml").write_text('[data]\ndataset = "mnist"\n')
    return made


@pytest.fixture(scope="session")
def once() -> dict[str, Path]:
    """Where the study was run by the first test that wanted it."""
    return {}


@pytest.fixture
def done(
    study: Path, pisces: Pisces, once: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same study with its two runs finished."""
    if not once:
        assert pisces("reproduce", "speed", "-q", "--jobs", 1).code == 0
        once["folder"] = tmp_path_factory.mktemp("once") / "all"
        shutil.copytree(".", once["folder"])
    shutil.copytree(once["folder"], ".", dirs_exist_ok=True)
    return study
