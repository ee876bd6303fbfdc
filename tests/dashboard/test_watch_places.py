"""Runs are found in the folder watched, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from watching_pages import make_run

from pisces.dashboard import places
from pisces.dashboard.places import find, hidden


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = (tmp_path / "watched").resolve()
    folder.mkdir()
    return folder


def test_runs_are_found_at_any_depth_and_called_by_their_path(root: Path) -> None:
    for name in ("first", "demo/pisces-seed1", "study/a/b/c"):
        make_run(root / name, [])
    assert sorted(find(root).places) == ["demo/pisces-seed1", "first", "study/a/b/c"]


def test_a_name_that_is_no_text_is_written_out(root: Path) -> None:
    odd = root / os.fsdecode(b"bytes\xff\xfe")
    try:
        make_run(odd, [])
    except OSError:
        pytest.skip("this file system takes text only")
    make_run(root / "gr\u00fcn", [])
    found = find(root).places
    assert sorted(found) == ["bytes\\xff\\xfe", "gr\u00fcn"]
    assert found["bytes\\xff\\xfe"].path == odd
    for name in found:
        name.encode()


def test_two_folders_are_never_called_the_same(root: Path) -> None:
    for name in (b"odd\xff", b"odd\\xff", b"odd\\\\xff"):
        try:
            make_run(root / os.fsdecode(name), [])
        except OSError:
            pytest.skip("this file system takes text only")
    assert sorted(find(root).places) == ["odd\\\\\\\\xff", "odd\\\\xff", "odd\\xff"]


def test_the_folder_watched_may_be_a_run_itself(root: Path) -> None:
    root.rmdir()
    make_run(root, [])
    assert list(find(root).places) == ["."]


def test_nothing_is_looked_for_in_a_run_or_a_hidden_folder(root: Path) -> None:
    make_run(root / "run", [])
    make_run(root / "run" / "checkpoints" / "odd", [])
    make_run(root / ".trash" / "run", [])
    assert list(find(root).places) == ["run"]


def test_a_folder_that_is_not_there_has_no_runs(root: Path) -> None:
    assert find(root / "later").places == {}


def test_folders_that_are_links_are_not_entered(root: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "outside" / "run", [])
    make_run(root / "inside", [])
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "again").symlink_to(root / "inside")
    (root / "round").symlink_to(root)
    assert list(find(root).places) == ["inside"]


@pytest.mark.parametrize(
    "name",
    [
        *("events.jsonl", "config.toml", "summary.json", "clients.jsonl"),
        *("model.safetensors", "checkpoints", "journal"),
    ],
)
def test_a_file_that_leads_out_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret = 1\n")
    run = make_run(root / "run", [])
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "secret")
    (place,) = find(root).places.values()
    assert place.problem is not None
    assert name in place.problem
    assert place.stamp[1] != len("secret = 1\n")  # not even its size is told


def test_a_link_within_the_folder_is_as_good_as_a_file(root: Path) -> None:
    run = make_run(root / "run", [])
    (run / "events.jsonl").rename(root / "log.jsonl")
    (run / "events.jsonl").symlink_to(root / "log.jsonl")
    (place,) = find(root).places.values()
    assert place.problem is None


def test_a_link_to_itself_is_no_trap(root: Path) -> None:
    run = make_run(root / "run", [])
    (run / "config.toml").unlink()
    (run / "config.toml").symlink_to(run / "config.toml")
    assert find(root).places["run"].problem is not None


def test_the_stamp_changes_with_the_log(root: Path) -> None:
    run = make_run(root / "run", [])
    before = find(root).places["run"].stamp
    with (run / "events.jsonl").open("ab") as file:
        file.write(b'{"kind":"joined","at":0.0,"client":1,"num_examples":2}\n')
    grown = find(root).places["run"].stamp
    os.replace(run / "events.jsonl", run / "old")
    (run / "events.jsonl").write_bytes((run / "old").read_bytes())
    assert len({before, grown, find(root).places["run"].stamp}) == 3


def test_too_many_runs_are_cut_and_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAX_RUNS", 3)
    for number, age in enumerate((10, 50, 30, 40, 20)):
        log = make_run(root / str(number), []) / "events.jsonl"
        os.utime(log, (1e9 - age,) * 2)
    found = find(root)
    assert found.is_cut
    assert sorted(found.places) == ["0", "2", "4"], "those that changed last"
    monkeypatch.setattr(places, "MAX_RUNS", 5)
    assert not find(root).is_cut
    monkeypatch.setattr(places, "MAX_FOLDERS", 5)  # the root is one
    assert find(root).is_cut
    monkeypatch.setattr(places, "MAX_FOLDERS", 6)
    assert not find(root).is_cut


def test_a_path_of_this_machine_is_hidden() -> None:
    root = Path("/home/somebody/runs")
    assert hidden(f"cannot read {root}/demo/a/config.toml: x", root) == (
        "cannot read demo/a/config.toml: x"
    )
    assert "somebody" not in hidden(f"{root} is gone", root)
