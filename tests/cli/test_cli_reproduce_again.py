"""`pisces reproduce` again: what is kept of the runs there are, and which are made anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studyfiles import change, folders, made_at

Pisces = Callable[..., Any]


def test_another_target_is_read_off_the_runs(done: Path, pisces: Pisces) -> None:
    before = made_at()
    change(done, "target = 0.5", "target = 0.2")
    ran = pisces("reproduce", "speed", "-q")
    assert ran.err == "speed: read 2 records anew from their run folders, for another target\n"
    assert made_at() == before
    assert "Target: accuracy 0.2, evaluated every " in (done / "RESULTS.md").read_text()


def test_another_target_without_the_runs_makes_them_again(done: Path, pisces: Pisces) -> None:
    shutil.rmtree("runs")
    change(done, "target = 0.5", "target = 0.2")
    ran = pisces("reproduce", "speed", "-q", "--jobs", 1)
    assert "speed: dropped 2 records for another target: their run folders are not" in ran.err
    assert len(folders()) == 2


def test_pages_alone_take_nothing_from_run_folders(done: Path, pisces: Pisces) -> None:
    change(done, "target = 0.5", "target = 0.2")
    before = (done / "results.json").read_bytes()
    told = pisces("reproduce", "speed", "--pages-only")
    assert told.code == 0
    assert told.err.startswith("speed: left out 2 records for another target: without --pages-only")
    assert told.out == f"speed: not measured ({done.relative_to(Path.cwd()) / 'RESULTS.md'})\n"
    assert "**Verdict: not measured.**" in (done / "RESULTS.md").read_text()
    assert "**not measured**" in (done.parent / "RESULTS.md").read_text()
    assert (done / "results.json").read_bytes() == before  # what is stale is not lost for a look


def test_other_settings_are_other_runs(done: Path, pisces: Pisces) -> None:
    change(done, 'protocol = "fedavg"', 'protocol = "fedavg"\nset = ["train.epochs=1"]')
    ran = pisces("reproduce", "speed", "-q")
    assert "speed: dropped 1 record made with other settings" in ran.err
    assert len(folders()) == 3  # the old run is left alone
    assert len(json.loads((done / "results.json").read_text())["runs"]) == 2


def test_more_seeds_add_to_what_there_is(done: Path, pisces: Pisces) -> None:
    before = made_at()
    pisces("reproduce", "speed", "-q", "--seeds", "1,2", "--jobs", 1)
    assert len(folders()) == 4
    assert set(before) < set(made_at())


@pytest.mark.parametrize("by", ["its run folder", "the other study's record"])
def test_what_is_the_same_run_in_two_studies_is_made_once(
    done: Path, pisces: Pisces, by: str
) -> None:
    second = done.parent / "again"
    shutil.copytree(done, second)
    (second / "results.json").unlink()
    change(second, 'name = "pisces"', 'name = "ours"')
    change(second, 'reference = "pisces"', 'reference = "ours"')
    change(second, 'of = "pisces"', 'of = "ours"')
    if by != "its run folder":
        shutil.rmtree(Path("runs"))
    before = made_at()
    assert pisces("reproduce", "again", "-q").code == 0
    assert made_at() == before
    kept = [json.loads((study / "results.json").read_text())["runs"] for study in (done, second)]
    assert [run["variant"] for run in kept[1]] == ["ours", "fedavg"]
    assert [run["measures"] for run in kept[0]] == [run["measures"] for run in kept[1]]


def test_an_unfinished_run_is_made_again(done: Path, pisces: Pisces) -> None:
    (done / "results.json").unlink()
    killed, interrupted = folders()
    (killed / "summary.json").unlink()
    summary = json.loads((interrupted / "summary.json").read_text())
    (interrupted / "summary.json").write_text(json.dumps({**summary, "reason": "interrupted"}))
    assert pisces("reproduce", "speed", "-q", "--jobs", 1).code == 0
    assert folders() == [killed, interrupted]
    reasons = [json.loads((run / "summary.json").read_text())["reason"] for run in folders()]
    assert "interrupted" not in reasons


def test_a_damaged_run_is_made_again_and_the_others_are_kept(done: Path, pisces: Pisces) -> None:
    (done / "results.json").unlink()
    (damaged, sound), before = folders(), made_at()
    (damaged / "events.jsonl").write_text("x\ny\n")
    assert pisces("reproduce", "speed", "-q", "--jobs", 1).code == 0
    assert folders() == [damaged, sound]
    assert (made_at()[0] > before[0], made_at()[1]) == (True, before[1])


def test_what_is_refused_loses_no_records(done: Path, pisces: Pisces) -> None:
    before = (done / "results.json").read_bytes()
    change(done, 'protocol = "fedavg"', 'protocol = "fedavg"\nset = ["data.size=100000"]')
    assert pisces("reproduce", "speed", "-q").code == 2
    assert (done / "results.json").read_bytes() == before


def test_what_there_is_as_json_and_only_that(done: Path, pisces: Pisces) -> None:
    listed = json.loads(pisces("reproduce", "--json").out)
    (row,) = listed["studies"]
    assert (row["study"], row["runs"] - row["no_data"], row["done"]) == ("speed", 2, 2)
    assert listed["together"]["done"] == 2
    ran = pisces("reproduce", "speed", "--case", "small", "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err, found["num_made"], found["failed"]) == (0, "", 0, {})
    (study,) = found["studies"]
    assert (study["study"], study["page"]) == ("speed", "experiments/speed/RESULTS.md")
    assert {claim["case"] for claim in study["claims"]} >= {"small"}
    assert study["claims"][0]["verdict"] in ("holds", "partly", "does not hold", "open")
