"""Writing a run folder, and what the system may refuse."""

import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch

from pisces.errors import RunError
from pisces.record.writer import RunFolder, place_file
from pisces.types import Joined, Stopped

CONFIG = 'seed = 1\nnote = "ü"\n'


def finished(path: Path) -> RunFolder:
    folder = RunFolder.create(path, CONFIG)
    folder.record(Stopped(4.0, "time limit"))
    folder.finish({"at": 4.0}, {"weight": torch.ones(2)}, wall_s=0.5)
    folder.close()
    return folder


def test_a_run_folder_from_beginning_to_end(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "run"
    folder = finished(path)
    assert folder.path == path
    assert sorted(p.name for p in path.iterdir()) == [
        "config.toml",
        "events.jsonl",
        "model.safetensors",
        "summary.json",
    ]
    assert (path / "config.toml").read_text("utf-8") == CONFIG
    assert json.loads((path / "summary.json").read_text()) == {"at": 4.0, "wall_s": 0.5}


def test_a_line_is_on_disk_before_the_next_thing_happens(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    events = tmp_path / "run" / "events.jsonl"
    assert events.read_bytes() == b""
    folder.record(Joined(0.0, 7, 50))
    assert events.read_bytes().count(b"\n") == 1
    folder.record(Stopped(4.0, "time limit"))
    assert events.read_bytes().count(b"\n") == 2
    folder.close()


def test_a_summary_that_is_not_a_number_is_null(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, CONFIG)
    folder.finish({"final": {"loss": float("nan")}}, {}, wall_s=1.0)
    folder.close()
    assert json.loads((tmp_path / "summary.json").read_text())["final"] == {"loss": None}


def test_tied_and_transposed_tensors_are_saved(tmp_path: Path) -> None:
    tied = torch.arange(6.0).reshape(2, 3)
    state = {"embed": tied, "head": tied, "part": tied[0], "turned": tied.T}
    folder = RunFolder.create(tmp_path, CONFIG)
    folder.finish({}, state, wall_s=1.0)
    folder.close()
    loaded = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    with pytest.raises(RunError, match="not empty: choose another folder"):
        RunFolder.create(tmp_path / "run", CONFIG)
    assert (tmp_path / "run" / "summary.json").exists()


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, CONFIG).close()
    assert (tmp_path / "events.jsonl").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(RunError, match=r"cannot write .*run: .*choose another folder"):
        RunFolder.create(tmp_path / "run", CONFIG)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_the_user_can_mend(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        folder = RunFolder(tmp_path, full)
        with pytest.raises(RunError, match=r"No space left.*make room"):
            folder.record(Joined(0.0, 7, 50))
        with pytest.raises(RunError, match="No space left"):  # the line still waits to be written
            folder.close()


def test_a_file_that_cannot_be_replaced_leaves_no_litter(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        folder.finish({}, {}, wall_s=1.0)
    folder.close()
    assert not list(tmp_path.glob("*.part"))


def test_only_ordinary_files_are_replaced_where_people_keep_theirs(tmp_path: Path) -> None:
    page, beside = tmp_path / "page.html", tmp_path / "page.html.part"
    for path in (page, beside):
        path.write_bytes(b"mine")
    place_file(page, b"new")
    assert (page.read_bytes(), beside.read_bytes()) == (b"new", b"mine")
    os.mkfifo(tmp_path / "pipe.html")
    for name, what in (("pipe.html", "no ordinary file"), ("", "a folder")):
        with pytest.raises(RunError, match=f"it is {what}; choose another name"):
            place_file(tmp_path / name, b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "page.html",
        "page.html.part",
        "pipe.html",
    ]
