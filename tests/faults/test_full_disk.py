"""A disk that is full, a real one: a small file system in memory, in a namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import killing
import pytest

IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
STORY = """
import subprocess, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import fuzzing

disk = Path("disk")
run = disk / "run"

def pisces(*args):
    said = fuzzing.pisces(*args, "-q")
    print(said.code, said.err.strip().replace("\\n", " | "), sep="\\t", flush=True)

def fill(but_for):
    free = int(subprocess.check_output(["stat", "-f", "-c", "%a", disk])) * 4096
    (disk / "filler").write_bytes(bytes(max(0, free - but_for)))

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
if sys.argv[2] == "log":  # a checkpoint is there, and then no room for the log
    pisces("run", "config.toml", "--out", run, "--set=stop.time_s=40")
    fill(but_for=4096)
    pisces("resume", run, "--set=stop.time_s=100")
else:  # room for the log, and for no checkpoint
    fill(but_for=240 * 1024)
    pisces("run", "config.toml", "--out", run, "--set=model.hidden=[512]")
    print(*(path.name for path in (run / "checkpoints").rglob("*.*")), sep="\\t")
(disk / "filler").unlink()
pisces("resume", run, "--set=stop.time_s=100")
pisces("run", "config.toml", "--out", "whole", *sys.argv[3:])
subprocess.run(["cp", "-r", run, "out"], check=True)
"""


def can_mount(folder: Path) -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    mount = [*IN_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True).returncode == 0


def told(folder: Path, story: str, *sets: str) -> list[list[str]]:
    """What each command of the story ended with, and said."""
    (folder / "disk").mkdir()
    if not can_mount(folder / "disk"):
        pytest.skip("file systems cannot be mounted here")
    (folder / "config.toml").write_text(killing.CONFIG)
    tests = Path(killing.__file__).parent
    command = [*IN_NAMESPACE, sys.executable, "-c", STORY, str(tests), story, *sets]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, env=environment
    )
    assert said.returncode == 0, said
    return [line.split("\t") for line in said.stdout.splitlines()]


def test_when_the_log_finds_no_room_the_run_stops_and_goes_on_when_there_is(
    tmp_path: Path,
) -> None:
    first, full, again, whole = told(tmp_path, "log")
    assert (first[0], again[0], whole[0]) == ("0", "0", "0")
    assert full[0] == "2"
    *_, error = full[1].split(" | ")
    assert error.startswith("error: cannot write ")
    assert "No space left on device; make room" in error
    killing.assert_same(tmp_path / "whole", tmp_path / "out")


def test_when_only_checkpoints_find_no_room_the_run_goes_on_without_and_says_so_once(
    tmp_path: Path,
) -> None:
    without, left, again, whole = told(tmp_path, "checkpoint", "--set=model.hidden=[512]")
    assert (without[0], whole[0]) == ("0", "0")
    assert without[1].count("no checkpoint was written") == 1
    assert left == [""]  # of checkpoints that did not fit nothing stays
    assert again[0] == "2"
    assert "is finished and has no checkpoints to go on from" in again[1]
    killing.assert_same(tmp_path / "whole", tmp_path / "out")
