"""Run folders that are not what a run leaves: `report`, `runs`, `compare`, `resume`, `evaluate`."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import killing
import pytest
import tomlkit
from fuzzing import MANY, REFUSED, as_json, changed_tree, damaged_bytes, few, obeyed, pisces
from hypothesis import given
from hypothesis import strategies as st

SMALL = ("stop.time_s=20", "clients.count=6", "clients.concurrency=3", "model.hidden=[4]")
NUM = 12
LOOKS = ("report", "runs", "evaluate", "resume")
NO_RESUME = LOOKS[:3]  # a config may ask for a run without end


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "small.toml").write_text(killing.CONFIG)
    sets = [f"--set={change}" for change in SMALL]
    said = pisces("run", folder / "small.toml", "--out", folder / "run", "-q", *sets)
    assert said.code == 0, said
    return folder / "run"


def copy_of(run: Path) -> Path:
    """A fresh copy, in a folder by itself."""
    folder = run.parent.parent / "copies"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder / "run")
    return folder


def look(folder: Path, command: str) -> None:
    """Have a command look at the run; what it may write is in the run's folder, or beside it."""
    run = folder / "run"
    match command:
        case "report":
            obeyed(folder, "report", run, "--out", folder / "plots", writes=[folder / "plots"])
        case "runs":
            obeyed(folder, "runs", folder)
        case "resume":
            before = (run / "events.jsonl").read_bytes()
            said = obeyed(folder, "resume", run, "--set=stop.time_s=25", "-q", writes=[run])
            if said.code == REFUSED:
                assert (run / "events.jsonl").read_bytes() == before
        case _:
            obeyed(folder, command, run)


def damage_log(run: Path, data: st.DataObject) -> None:
    path = run / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["values", "bytes", "half", "deep", "long"])):
        case "values":
            lines[number] = as_json(data.draw(changed_tree(json.loads(lines[number])))) + b"\n"
        case "bytes":
            lines[number] = data.draw(damaged_bytes(lines[number]))
        case "half":
            lines[number] = lines[number][: len(lines[number]) // 2] + b"\n"
        case "deep":
            lines[number] = b"[" * 100_000 + b"\n"
        case "long":
            lines[number] = b'{"kind":"joined","at":0.0,"x":"' + b"y" * (4 << 20) + b'"}\n'
    path.write_bytes(b"".join(lines))


def damage_json(path: Path, data: st.DataObject) -> None:
    content = path.read_bytes()
    if data.draw(st.booleans()):
        path.write_bytes(as_json(data.draw(changed_tree(json.loads(content)))))
    else:
        path.write_bytes(data.draw(damaged_bytes(content)))


def damage_config(path: Path, data: st.DataObject) -> None:
    content = path.read_bytes()
    tree: Any = data.draw(changed_tree(tomllib.loads(content.decode())))
    try:
        path.write_bytes(tomlkit.dumps(tree).encode())
    except Exception:  # no TOML can say that
        path.write_bytes(data.draw(damaged_bytes(content)))


def fuzz(run: Path, data: st.DataObject, name: str) -> None:
    folder = copy_of(run)
    path = folder / "run" / name
    match name:
        case "events.jsonl":
            damage_log(folder / "run", data)
        case "summary.json":
            damage_json(path, data)
        case "config.toml":
            damage_config(path, data)
        case "model.safetensors":
            path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    looks = NO_RESUME if name == "config.toml" else LOOKS
    look(folder, data.draw(st.sampled_from(looks)))


FILES = ["events.jsonl", "summary.json", "config.toml", "model.safetensors"]


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@few(NUM)
def test_damaged_folders_are_told_of_or_taken_as_they_are(
    run: Path, name: str, data: st.DataObject
) -> None:
    fuzz(run, data, name)


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@few(NUM * MANY)
def test_many_damaged_folders(run: Path, name: str, data: st.DataObject) -> None:
    fuzz(run, data, name)
