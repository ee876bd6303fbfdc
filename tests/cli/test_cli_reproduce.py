"""`pisces reproduce`: runs once what is not done, skips what cannot be, says what failed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafiles
import pytest

from pisces import build
from pisces.cli.studies import at_work
from pisces.study import plan
from pisces.study.runs import Wish, planned

Pisces = Callable[..., Any]

STUDY = """
title = "Speed"
paper = "Figure 0"
says = "Pisces is faster than FedAvg."
reference = "pisces"
figures = ["curves"]

[[variant]]
name = "pisces"
protocol = "pisces"

[[variant]]
name = "fedavg"
protocol = "fedavg"

[[case]]
name = "small"
config = "../../small.toml"
target = 0.5
seeds = 1

[[claim]]
text = "Pisces is faster"
case = "small"
measure = "time_to_target"
compare = "speedup"
of = "pisces"
over = "fedavg"
paper = "2x"
holds = ">= 1.5"
"""
NO_DATA = '\n[[case]]\nname = "mnist"\ntarget = 0.9\nseeds = 1\n'


@pytest.fixture
def study(folder: Path, small: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a study of two runs, below ./experiments."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))  # no datasets there either
    made = folder / "experiments" / "speed"
    made.mkdir(parents=True)
    (made / "study.toml").write_text(STUDY)
    (made / "mnist.toml").write_text('[data]\ndataset = "mnist"\n')
    return made


@pytest.fixture(scope="module")
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


def change(study: Path, old: str, new: str) -> None:
    file = study / "study.toml"
    file.write_text(file.read_text().replace(old, new))


def folders() -> list[Path]:
    return sorted(path.parent for path in Path("runs").rglob("summary.json"))


def made_at() -> list[int]:
    return [(path / "summary.json").stat().st_mtime_ns for path in folders()]


def test_runs_once_and_writes_the_page(study: Path, pisces: Pisces) -> None:
    ran = pisces("reproduce", "speed", "--jobs", 1)
    assert ran.code == 0
    where = r"\(experiments/speed/RESULTS\.md\)"
    assert re.fullmatch(rf"speed: [a-z ]+ \([^)]*claims[^)]*\) {where}\n", ran.out)
    assert "done: speed/small, 2 runs" in ran.err
    assert [path.name[:13] for path in folders()] == ["fedavg-seed1-", "pisces-seed1-"]
    text = (study / "RESULTS.md").read_text()
    assert "| Pisces is faster | small | 2x |" in text
    assert (study / "figures" / "small-curves.png").exists()
    assert "[Speed](speed/RESULTS.md)" in (study.parent / "RESULTS.md").read_text()
    assert [run["seed"] for run in json.loads((study / "results.json").read_text())["runs"]] == [
        1,
        1,
    ]

    before, page = made_at(), (study / "RESULTS.md").stat().st_mtime_ns
    again = pisces("reproduce", "speed")
    assert (again.code, again.out) == (0, ran.out)
    assert "done" not in again.err
    assert (made_at(), (study / "RESULTS.md").stat().st_mtime_ns) == (before, page)

    # Without the runs themselves the records are enough, also to draw anew.
    shutil.rmtree("runs")
    (study / "RESULTS.md").unlink()
    assert pisces("reproduce", "speed", "--pages-only", "--seeds", "1-9").out == ran.out
    assert (study / "RESULTS.md").read_text() == text
    assert not Path("runs").exists()


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


def test_what_is_the_same_run_in_two_studies_is_made_once(done: Path, pisces: Pisces) -> None:
    second = done.parent / "again"
    shutil.copytree(done, second)
    (second / "results.json").unlink()
    change(second, 'name = "pisces"', 'name = "ours"')
    change(second, 'reference = "pisces"', 'reference = "ours"')
    change(second, 'of = "pisces"', 'of = "ours"')
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


def test_what_lacks_its_data_is_skipped(done: Path, pisces: Pisces) -> None:
    change(done, "[[claim]]", NO_DATA + "[[claim]]")
    ran = pisces("reproduce", "all", "-q")
    assert ran.code == 0
    assert ran.err.startswith("skipped speed/mnist: ")
    assert pisces("reproduce", "all", "--pages-only").code == 0
    assert "Needs the dataset mnist" in (done / "RESULTS.md").read_text()
    for name in ("results.json", "RESULTS.md"):
        (done / name).unlink()
    nothing = pisces("reproduce", "all", "-q", "--case", "mnist")
    assert nothing.code == 2
    assert not (done / "RESULTS.md").exists()
    assert "nothing could be run" in nothing.err


def test_damaged_data_fails_its_case_and_no_other(
    study: Path, pisces: Pisces, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = datafiles.mnist_idx(study.parent / "data" / "mnist")
    damaged = next(data.glob("train-images*"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    monkeypatch.setenv("PISCES_DATA", str(study.parent / "data"))
    change(study, "[[claim]]", NO_DATA + "[[claim]]")
    ran = pisces("reproduce", "speed", "-q", "--jobs", 1)
    assert ran.code == 1
    assert ran.err.startswith("failed speed/mnist: ")
    assert damaged.name in ran.err
    assert len(folders()) == 2


def test_a_run_that_fails_does_not_end_the_others(done: Path, pisces: Pisces) -> None:
    wish = Wish(build.resolved, lambda _config: (), seeds=[2], revision=build.revision_of)
    in_its_way = planned(plan.load(done), done, wish)[0].folder
    (Path("runs/reproduce/speed") / in_its_way).symlink_to("nowhere")
    ran = pisces("reproduce", "speed", "-q", "--jobs", 1, "--seeds", "2")
    assert ran.code == 1
    assert ran.err.count("failed runs/reproduce/speed/small/pisces-seed2-") == 1
    assert len(folders()) == 3


@pytest.mark.parametrize("out", ["experiments", "experiments/speed", "experiments/speed/runs"])
def test_nothing_is_written_in_the_place_of_a_study(done: Path, pisces: Pisces, out: str) -> None:
    before = (done / "results.json").read_bytes()
    ran = pisces("reproduce", "speed", "--smoke", "--out", out)
    assert ran.code == 2
    assert "--out: must not be where studies are" in ran.err
    assert (done / "results.json").read_bytes() == before


def test_a_wrong_setting_is_refused_before_anything_starts(study: Path, pisces: Pisces) -> None:
    change(study, 'protocol = "fedavg"', 'protocol = "fedavgg"')
    ran = pisces("reproduce", "speed")
    assert ran.code == 2
    assert "did you mean 'fedavg'?" in ran.err
    assert not Path("runs").exists()


def test_what_is_refused_loses_no_records(done: Path, pisces: Pisces) -> None:
    before = (done / "results.json").read_bytes()
    change(done, 'protocol = "fedavg"', 'protocol = "fedavg"\nset = ["data.size=100000"]')
    assert pisces("reproduce", "speed", "-q").code == 2
    assert (done / "results.json").read_bytes() == before


def test_two_do_not_work_in_one_folder(study: Path, pisces: Pisces) -> None:
    with at_work(Path("runs/reproduce")):
        ran = pisces("reproduce", "speed", "-q")
        assert ran.code == 2
        assert "another pisces reproduce is at work in runs/reproduce: wait for it" in ran.err
        assert pisces("reproduce", "speed", "--pages-only").code == 0
    with at_work(Path("runs/reproduce")):
        pass  # the first has gone


def test_a_trial_has_no_verdict(study: Path, pisces: Pisces) -> None:
    told = pisces("reproduce", "speed", "--smoke", "--pages-only")
    assert told.out == "speed: a trial on digits: the numbers mean nothing\n"  # nor a page yet


def test_studies_are_listed(study: Path, pisces: Pisces) -> None:
    change(study, "seeds = 1", "seeds = 3\nrun_s = 20")
    row = next(line for line in pisces("reproduce").out.splitlines() if "speed" in line)
    assert row.split() == ["speed", "Figure", "0", "6", "0", "120", "s"]


def test_the_time_left_is_of_what_can_be_run(study: Path, pisces: Pisces) -> None:
    change(study, "seeds = 1", "seeds = 3\nrun_s = 20")
    shutil.copytree(study, study.parent / "again")  # asks for the same runs
    change(study, "[[claim]]", NO_DATA + "[[claim]]")
    rows = [line.split() for line in pisces("reproduce").out.splitlines()]
    assert ["speed", "Figure", "0", "8", "0", "120", "s", "2"] in rows
    assert ["again", "Figure", "0", "6", "0", "120", "s"] in rows
    assert ["together", "each", "run", "once", "8", "0", "120", "s", "2"] in rows


def test_the_time_left_follows_what_was_measured(done: Path, pisces: Pisces) -> None:
    change(done, "seeds = 1", "seeds = 3\nrun_s = 20")
    row = next(line for line in pisces("reproduce").out.splitlines() if "speed" in line)
    assert row.split()[3:5] == ["6", "2"]
    assert "80" not in row  # four runs of 20 s, had none been measured


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("sped",), "did you mean 'speed'?"),
        (("speed", "--case", "smal"), "did you mean 'small'?"),
        (("speed", "--folder", "nowhere"), "no studies in nowhere"),
        (("speed", "--seeds", "x"), "--seeds takes numbers"),
        (("speed", "--out", "small.toml"), "cannot make small.toml: File exists"),
        (("speed", "--smoke", "--out", "small.toml/a"), "cannot make small.toml/a: Not a dir"),
    ],
)
def test_bad_input(study: Path, pisces: Pisces, args: tuple[str, ...], message: str) -> None:
    ran = pisces("reproduce", *args)
    assert ran.code == 2
    assert message in ran.err


def interrupted(process: Any, once: str) -> tuple[str, str]:
    """Ctrl-C once there is such a file among the runs; what it said, and what it complained."""
    deadline = time.monotonic() + 100
    while not list(Path("runs").rglob(once)) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130
    return out, err


def test_ctrl_c_before_a_run_is_over_names_no_page(study: Path, start: Callable[..., Any]) -> None:
    change(study, "seeds = 1", 'seeds = 1\nset = ["stop.time_s=1e7"]')
    out, err = interrupted(start("reproduce", "speed", "-q", "--jobs", 1), "events.jsonl")
    assert out == "speed: not measured\n"
    assert "interrupted: 0 runs were finished" in err


def test_ctrl_c_keeps_what_is_finished(study: Path, start: Callable[..., Any]) -> None:
    slow = '\n[[variant]]\nname = "slow"\nprotocol = "pisces"\nset = ["stop.time_s=1e7"]\n'
    change(study, "[[case]]", slow + "[[case]]")
    _, err = interrupted(start("reproduce", "speed", "-q", "--jobs", 1), "slow-*/events.jsonl")
    assert "interrupted: 2 runs were finished and are kept" in err
    kept = json.loads((study / "results.json").read_text())["runs"]
    assert {run["variant"] for run in kept} == {"pisces", "fedavg"}
    assert (study / "RESULTS.md").exists()
