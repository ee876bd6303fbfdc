"""Names from configs, folders and options become no paths that lead out of where one writes."""

from __future__ import annotations

import json
from pathlib import Path

import killing
import pytest
from fuzzing import REFUSED, contents, obeyed, pisces

NAMES = ["../../x", "/x", "a/b", "..", "-x", "x\x00y", "x" * 300, "nul", " ", "ü"]
SMALL = ("stop.time_s=10", "clients.count=6", "clients.concurrency=3", "model.hidden=[4]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three folders deep, so that what leads out of them is seen."""
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "x.toml").write_text(killing.CONFIG)
    monkeypatch.chdir(deep)
    return tmp_path


@pytest.mark.filterwarnings("ignore:Glyph")  # a font has no picture of everything
@pytest.mark.parametrize("name", NAMES)
def test_a_metric_is_no_path(folder: Path, name: str) -> None:
    """Whoever made the log may have called it anything."""
    run = folder / "a" / "b" / "c" / "run"
    run.mkdir()
    lines = [
        {"kind": "evaluated", "at": 1.0, "version": 0, name: 0.5},
        {"kind": "stopped", "at": 2.0, "reason": "time"},
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = {"reason": "time", "at": 2.0, "versions": 0, "distrusted": [], "metric": name}
    (run / "summary.json").write_text(json.dumps({**summary, "final": {name: 0.5}, "best": {}}))
    said = obeyed(folder, "report", run, writes=[run])
    assert said.code == 0
    assert len(list(run.glob("*.png"))) == 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["protocol", "select.policy", "aggregate.policy", "data.dataset"])
def test_names_that_are_in_no_table_are_refused_before_anything_is_made(
    folder: Path, key: str, name: str
) -> None:
    said = obeyed(folder, "run", "x.toml", f"--set={key}={json.dumps(name)}")
    assert said.code == REFUSED
    said = obeyed(folder, "compare", "x.toml", "--target=0.9", f"--protocols={name}")
    assert said.code == REFUSED


@pytest.mark.parametrize("name", ["-x.toml", "...toml", "ü.toml", " .toml"])
def test_a_run_without_out_goes_below_runs(folder: Path, name: str) -> None:
    here = folder / "a" / "b" / "c"
    (here / "x.toml").rename(here / name)
    sets = [f"--set={change}" for change in SMALL]
    before = contents(folder)
    said = pisces("run", *sets, "-q", "--", name)
    assert said.code == 0, said
    assert contents(folder, [here / "runs"]) == before
    assert len(list((here / "runs").iterdir())) == 1


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "", ".hidden", "x y"])
def test_names_in_studies_become_folders_and_may_lead_nowhere(folder: Path, name: str) -> None:
    study = folder / "a" / "b" / "c" / "experiments" / "s"
    study.mkdir(parents=True)
    case = f'[[case]]\nname = {json.dumps(name)}\nconfig = "../../x.toml"\ntarget = 0.9\n'
    variant = '[[variant]]\nname = "v"\nprotocol = "pisces"\n'
    head = 'title = "t"\nsays = "s"\nreference = "v"\n'
    (study / "study.toml").write_text(head + case + variant)
    assert obeyed(folder, "reproduce", "s", "--smoke").code == REFUSED
