"""Results on disk: there whole or not at all, until nobody needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pisces.errors import RunError
from pisces.execute.network.client import holding as module
from pisces.execute.network.client.holding import KEPT_S, Held, Holding, default_folder
from pisces.execute.network.messages import Result
from pisces.execute.network.packing import pack, pack_step
from pisces.types import Report


def held(task: int = 1, run: str = "run", value: float = 1.5) -> Held:
    content, data = pack(np.full(5, value, np.float32))
    return Held(run, Result(task, Report(10, 0.1, 0.2, 3, 0.05), content, 2**31), data)


def files(folder: Path, suffix: str = ".held") -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == suffix)


def test_what_is_kept_is_read_back_also_later(tmp_path: Path) -> None:
    first = Holding(tmp_path)
    for task in (3, 1):
        assert first.keep(held(task, value=task))
    first.close()
    again = Holding(tmp_path)
    assert again.tasks("run") == [1, 3]
    assert again.tasks("other") == []
    assert again.latest_run() == "run"
    found = again.read("run", 3)
    assert found is not None
    assert (found.run, found.result) == ("run", held(3).result)
    assert bytes(found.data) == bytes(held(3, value=3).data)
    assert again.read("other", 3) is None
    assert len(files(tmp_path)) == 2


def test_what_is_there_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the power fails: the bytes come before the name."""
    synced: list[tuple[int, list[Path]]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, files(tmp_path)))
        fsync(descriptor)

    monkeypatch.setattr(module.os, "fsync", noted)
    Holding(tmp_path).keep(held())
    [kept] = files(tmp_path)
    assert synced == [(kept.stat().st_size, [])]


def test_rounded_results_keep_their_scale(tmp_path: Path) -> None:
    content, data = pack_step(np.array([1.0, 3.0], np.float32), np.zeros(2, np.float32), zstd=True)
    holding = Holding(tmp_path)
    holding.keep(Held("run", Result(1, Report(1), content, 0), data))
    found = holding.read("run", 1)
    assert found is not None
    assert found.result.content == content


def test_forgotten_ones_are_gone_also_while_they_are_written(tmp_path: Path) -> None:
    holding = Holding(tmp_path)
    holding.keep(held(1))
    holding.forget("run", 1)
    answers = iter([True, False])  # wanted at first, and then no more
    assert holding.keep(held(2), lambda: next(answers))
    assert holding.keep(held(4), lambda: False)
    assert holding.tasks("run") == []
    holding.forget("run", 3)  # never there: no trace of it is left
    holding.keep(held(3))
    assert holding.tasks("run") == [3]
    assert files(tmp_path, ".part") == []


@pytest.mark.parametrize("where", [0, 3, 30, -25, -1])
def test_a_flipped_bit_is_found_and_the_file_put_aside(
    tmp_path: Path, where: int, caplog: pytest.LogCaptureFixture
) -> None:
    holding = Holding(tmp_path)
    holding.keep(held())
    (path,) = files(tmp_path)
    text = bytearray(path.read_bytes())
    text[where] ^= 1
    path.write_bytes(text)
    assert holding.read("run", 1) is None
    assert files(tmp_path) == []
    assert len(files(tmp_path, ".damaged")) == 1
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("text", [b"", b"\n", b"{}\n", b"[1]\n", b'{"told": 3}\n', b"\xff\xfe"])
def test_files_of_anything_are_put_aside(tmp_path: Path, text: bytes) -> None:
    holding = Holding(tmp_path)
    holding.keep(held())
    files(tmp_path)[0].write_bytes(text)
    assert holding.latest_run() == ""
    assert len(files(tmp_path, ".damaged")) == 1


def test_a_file_cut_short_is_put_aside(tmp_path: Path) -> None:
    holding = Holding(tmp_path)
    holding.keep(held())
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert holding.read("run", 1) is None


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "0123-1.part").write_bytes(b"half")
    Holding(tmp_path)
    assert files(tmp_path, ".part") == []


def test_other_runs_are_forgotten_after_a_week(tmp_path: Path) -> None:
    now = [0.0]
    holding = Holding(tmp_path, clock=lambda: now[0])
    for run in ("old", "older", "mine"):
        holding.keep(held(1, run))
    (tmp_path / "0123-9.damaged").write_bytes(b"")
    for path in (*files(tmp_path), *files(tmp_path, ".damaged")):
        os.utime(path, (1000.0, 1000.0))
    now[0] = 1000.0 + KEPT_S - 1
    holding.tidy("mine")
    assert len(files(tmp_path)) == 3
    now[0] = 1000.0 + KEPT_S + 1
    holding.tidy("mine")
    assert (holding.tasks("mine"), len(files(tmp_path))) == ([1], 1)
    assert files(tmp_path, ".damaged") == []


def test_no_more_than_so_many_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 3)
    holding = Holding(tmp_path)
    for task in range(5):
        holding.keep(held(task))
        for path in files(tmp_path):
            if path.stem.endswith(f"-{task}"):
                os.utime(path, (task, task))
    assert holding.tasks("run") == [2, 3, 4]
    assert "the oldest is given up" in caplog.text


def test_a_disk_that_refuses_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    holding = Holding(tmp_path / "held")
    (tmp_path / "held" / "lock").unlink()
    (tmp_path / "held").rmdir()
    assert not holding.keep(held())
    assert "in memory only" in caplog.text


def test_one_process_at_a_time(tmp_path: Path) -> None:
    holding = Holding(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from pisces.execute.network.client.holding import Holding\n"
        "Holding(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert "RunError" in done.stderr
    assert "is in use: another client of this identity" in done.stderr
    with pytest.raises(RunError, match="is in use"):
        Holding(tmp_path)
    holding.close()
    Holding(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="choose another folder"):
        Holding(tmp_path / "file" / "held")


def test_the_folder_is_by_name_and_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = default_folder("alice", b"authority")
    assert one.parent == tmp_path / "pisces" / "held"
    assert one.name.startswith("alice-")
    others = [default_folder("alice", b"another"), default_folder("bob", b"authority")]
    assert len({one, *others}) == 3
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_folder("a/../b", b"").parent == tmp_path / "home/.cache/pisces/held"
    assert "/" not in default_folder("a/../b", b"").name


@pytest.mark.parametrize("name", ["5 copy", "abc", "-5", "99999999999999999999", "٣"])
def test_files_that_are_none_of_ours_are_left_alone(tmp_path: Path, name: str) -> None:
    holding = Holding(tmp_path)
    (tmp_path / f"{module._digest('run')}-{name}.held").write_text("?")
    assert holding.tasks("run") == []


@pytest.mark.skipif(sys.platform == "win32", reason="modes differ")
def test_what_is_held_is_its_owners(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    holding = Holding(tmp_path)
    content, data = pack(np.ones(3, np.float32))
    assert holding.keep(Held("run", Result(1, Report(10), content, 0), data))
    (path,) = tmp_path.glob("*.held")
    assert path.stat().st_mode & 0o777 == 0o600
