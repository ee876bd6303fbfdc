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
from studyfiles import NO_DATA, change, folders, made_at

from pisces import build
from pisces.cli.studies import alone_in, alone_with
from pisces.errors import RunError
from pisces.study import plan, work
from pisces.study.runs import Wish, planned

Pisces = Callable[..., Any]


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


def test_two_do_not_work_in_one_folder(study: Path, pisces: Pisces) -> None:
    with alone_in(Path("runs/reproduce")):
        ran = pisces("reproduce", "speed", "-q")
        assert ran.code == 2
        assert "another pisces reproduce is at work in runs/reproduce: wait for it" in ran.err
        assert pisces("reproduce", "speed", "--pages-only").code == 0
    with alone_in(Path("runs/reproduce")):
        pass  # the first has gone


def test_two_do_not_work_on_one_study(done: Path, pisces: Pisces) -> None:
    shutil.copytree(done, done.parent / "again")
    before = (done / "results.json").read_bytes()
    with alone_with([Path("experiments/speed")]):
        ran = pisces("reproduce", "all", "-q", "--seeds", "1,2", "--out", "runs/elsewhere")
        assert ran.code == 2
        assert "another pisces reproduce is at work on experiments/speed: wait for it\n" in ran.err
        assert not Path("runs/elsewhere").exists()
        assert (done / "results.json").read_bytes() == before
        assert pisces("reproduce", "speed", "--pages-only").code == 0
        # Nothing is written there by a trial, nor by work on another study.
        assert pisces("reproduce", "again", "-q", "--out", "runs/elsewhere").code == 0
        trial = pisces("reproduce", "speed", "--smoke", "--out", "small.toml")
        assert trial.err.startswith("error: cannot make small.toml")  # its own mistake only
    assert pisces("reproduce", "all", "-q", "--out", "runs/elsewhere").code == 0


def test_records_are_read_when_nobody_else_can_add_to_them(
    done: Path, pisces: Pisces, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_alone(folder: Path, *args: Any) -> Any:
        with pytest.raises(RunError, match="at work on"), alone_with([folder]):
            pass
        opened.append(folder.name)
        return work.open_study(folder, *args)

    monkeypatch.setattr("pisces.cli.reproduce.open_study", open_alone)
    assert pisces("reproduce", "speed", "-q").code == 0
    assert opened == ["speed"]


def test_a_study_that_cannot_be_written_is_refused_before_anything_starts(
    study: Path, pisces: Pisces
) -> None:
    (study / ".lock").mkdir()  # as good as a folder that is read-only, which root may write
    ran = pisces("reproduce", "speed", "-q")
    assert ran.code == 2
    assert "cannot write in experiments/speed: Is a directory; mend the permissions" in ran.err
    assert not Path("runs").exists()


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
        (("speed", "--seeds", "0"), "--seeds: must be 1 or more, not 0"),
        (("speed", "--seeds", "2,0-1"), "--seeds: must be 1 or more, not 0"),
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
