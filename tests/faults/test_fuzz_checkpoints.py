"""Checkpoints that are damaged, or made up by somebody who knows how to make a checksum right."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import killing
import pytest
from fuzzing import MANY, REFUSED, changed_tree, contents, damaged_bytes, few, obeyed, pisces
from hypothesis import given
from hypothesis import strategies as st

from pisces.record.blobs import digest
from pisces.record.checkpoint import FORMAT

SMALL = ("stop.time_s=20", "clients.count=6", "clients.concurrency=3", "model.hidden=[4]")
GO_ON = ("--set=stop.time_s=22", "-q")
NUM = 25


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has ended, and can go on."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "small.toml").write_text(killing.CONFIG)
    sets = [f"--set={change}" for change in SMALL]
    assert pisces("run", folder / "small.toml", "--out", folder / "run", "-q", *sets).code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def gone_on(run: Path) -> Path:
    """What comes of it when nothing is wrong."""
    folder = run.parent / "whole"
    shutil.copytree(run, folder)
    assert pisces("resume", folder, *GO_ON).code == 0
    return folder


def copy_of(run: Path) -> Path:
    folder = run.parent.parent / "copies"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder / "run")
    return folder


def checkpoint_of(run: Path) -> Path:
    (path,) = (run / "checkpoints").glob("*.json")
    return path


def go_on(folder: Path, gone_on: Path) -> None:
    """It goes on as it should, or is refused and left as it is."""
    before = contents(folder)
    said = obeyed(folder, "resume", folder / "run", *GO_ON, writes=[folder / "run"])
    if said.code == REFUSED:
        assert contents(folder) == before
    else:
        killing.assert_same(gone_on, folder / "run")


def signed(body: Any) -> bytes:
    """A checkpoint of this content, whatever it is, that is whole as far as can be seen."""
    text = json.dumps(body).encode()
    return f'{{"format": {FORMAT}, "checksum": "{digest(text)}", "body": '.encode() + text + b"}\n"


def fuzz_bytes(run: Path, gone_on: Path, data: st.DataObject) -> None:
    folder = copy_of(run)
    files = sorted(path for path in (folder / "run" / "checkpoints").rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    go_on(folder, gone_on)


@given(data=st.data())
@few(NUM)
def test_damaged_checkpoints_are_refused(run: Path, gone_on: Path, data: st.DataObject) -> None:
    fuzz_bytes(run, gone_on, data)


@pytest.mark.long
@given(data=st.data())
@few(NUM * MANY)
def test_many_damaged_checkpoints(run: Path, gone_on: Path, data: st.DataObject) -> None:
    fuzz_bytes(run, gone_on, data)


def fuzz_head(run: Path, data: st.DataObject) -> None:
    """All but the state itself, which is the run's own: no check can tell a wrong number there."""
    folder = copy_of(run)
    path = checkpoint_of(folder / "run")
    body = json.loads(path.read_bytes())["body"]
    part = data.draw(st.sampled_from(["made", "software", "wall_s", "events", "arrays", "body"]))
    if part == "body":
        body = data.draw(changed_tree({**body, "values": {}}, num=1))
    else:
        body[part] = data.draw(changed_tree(body[part]))
    path.write_bytes(signed(body))
    obeyed(folder, "resume", folder / "run", *GO_ON, writes=[folder / "run"])


@given(data=st.data())
@few(NUM)
def test_made_up_checkpoints_are_refused(run: Path, data: st.DataObject) -> None:
    fuzz_head(run, data)


@pytest.mark.long
@given(data=st.data())
@few(NUM * MANY)
def test_many_made_up_checkpoints(run: Path, data: st.DataObject) -> None:
    fuzz_head(run, data)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a tree's values are, but for those in lists."""
    if not isinstance(tree, dict):
        return [path]
    return [leaf for key in tree for leaf in leaves(tree[key], (*path, key))]


def test_state_of_another_kind_is_refused(run: Path) -> None:
    """Every value that is there from the beginning on, one after the other."""
    path = checkpoint_of(run)
    body = json.loads(path.read_bytes())["body"]
    num_refused = 0
    wrong = {bool: "x", int: "x", float: "x", str: 7, list: "x", dict: 7}
    for leaf in leaves(body["values"]):
        changed = json.loads(json.dumps(body))
        table = changed["values"]
        for key in leaf[:-1]:
            table = table[key]
        table[leaf[-1]] = wrong.get(type(table[leaf[-1]]), table[leaf[-1]])
        if changed == body:  # nothing: of no kind
            continue
        folder = copy_of(run)
        checkpoint_of(folder / "run").write_bytes(signed(changed))
        before = contents(folder)
        said = obeyed(folder, "resume", folder / "run", *GO_ON, writes=[folder / "run"])
        if said.code == REFUSED:  # else it is of a result that is never asked for
            num_refused += 1
            assert contents(folder) == before
        else:
            assert leaf[:2] == ("executor", "results")
    assert num_refused > 20


# --- nothing is written elsewhere -----------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../letter.txt", "/dev/zero", "letter.txt", "x" * 300, "", "\x00"]
)
def test_a_checkpoint_opens_only_its_own_files(run: Path, name: str) -> None:
    folder = copy_of(run)
    (folder / "letter.txt").write_text("dear")
    path = checkpoint_of(folder / "run")
    body = json.loads(path.read_bytes())["body"]
    body["arrays"]["places"] = [[name, *rest] for _, *rest in body["arrays"]["places"]]
    path.write_bytes(signed(body))
    before = contents(folder)
    said = obeyed(folder, "resume", folder / "run", *GO_ON, writes=[folder / "run"])
    assert said.code == REFUSED
    assert "no file of arrays" in said.err
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("name", "other", "problem"),
    [
        ("executor/online", "weights", "executor/online is a tensor, not a column"),
        ("weights", "executor/online", "weights is a column, not a tensor"),
    ],
)
def test_a_checkpoint_has_arrays_of_the_right_kind(
    run: Path, name: str, other: str, problem: str
) -> None:
    folder = copy_of(run)
    path = checkpoint_of(folder / "run")
    body = json.loads(path.read_bytes())["body"]
    names = body["arrays"]["names"]
    names[name] = names[other]
    path.write_bytes(signed(body))
    before = contents(folder)
    said = obeyed(folder, "resume", folder / "run", *GO_ON, writes=[folder / "run"])
    assert said.code == REFUSED
    assert problem in said.err.replace("\n", " ")
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["events.jsonl", "checkpoints", "checkpoints/tensors"])
def test_a_run_does_not_go_on_through_a_link(run: Path, name: str) -> None:
    folder = copy_of(run)
    path, elsewhere = folder / "run" / name, folder / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    if elsewhere.is_dir():
        (elsewhere / "letter.txt").write_text("dear")
    said = obeyed(folder, "resume", folder / "run", *GO_ON)
    assert said.code == REFUSED
    assert f"{path} is a link" in said.err


@pytest.mark.parametrize("name", ["config.toml", "summary.json", "model.safetensors"])
def test_links_to_elsewhere_are_replaced_not_followed(run: Path, gone_on: Path, name: str) -> None:
    folder = copy_of(run)
    for file in (name, f"{name}.part"):
        elsewhere = folder / file
        if (folder / "run" / file).exists():
            (folder / "run" / file).rename(elsewhere)
        else:
            elsewhere.write_text("dear")
        (folder / "run" / file).symlink_to(elsewhere)
    before = {file: (folder / file).read_bytes() for file in (name, f"{name}.part")}
    said = pisces("resume", folder / "run", *GO_ON)
    assert said.code == 0, said
    assert {file: (folder / file).read_bytes() for file in before} == before
    assert not (folder / "run" / name).is_symlink()
    killing.assert_same(gone_on, folder / "run")


def test_a_pipe_in_place_of_a_checkpoint_is_no_wait_without_end(run: Path) -> None:
    folder = copy_of(run)
    path = checkpoint_of(folder / "run")
    path.unlink()
    os.mkfifo(path)
    said = pisces("resume", folder / "run", *GO_ON)
    assert said.code == REFUSED
    assert "no checkpoint can be taken" in said.err
