"""What is known of a study, asked of it and left to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pisces import build
from pisces.study import plan, records
from pisces.study.page import Missing
from pisces.study.records import Record
from pisces.study.runs import Wish, planned
from pisces.study.work import Place, Work, collect, open_study

WISH = Wish(build.resolved, lambda _config: ())
THIRD = '\n[[case]]\nname = "third"\nconfig = "small.toml"\ntarget = 0.7\n'


@pytest.fixture
def opened(folder: Path) -> Callable[..., Work]:
    """The study as it is asked for."""
    return lambda smoke=False, **asked: open_study(
        folder, Place(folder.parent / "runs", smoke), replace(WISH, smoke=smoke, **asked)
    )


@pytest.fixture
def kept(folder: Path, record: Callable[..., Record]) -> None:
    """Records of every variant and point of the case small with the seeds 1 and 9."""
    runs = planned(plan.load(folder), folder, replace(WISH, cases=["small"], seeds=[1, 9]))
    made = [record(r.variant, r.seed, 10.0, x=r.x, digest=r.digest, wall_s=3.0) for r in runs]
    records.save(folder, made)


def counts(work: Work) -> tuple[int, int, int]:
    """How many records count, are of other settings, and are for another target."""
    return len(work.records), len(work.outdated), len(work.off_target)


def test_a_trial_is_of_two_cases_or_of_those_named(
    opened: Callable[..., Work], folder: Path
) -> None:
    (folder / "study.toml").write_text((folder / "study.toml").read_text() + THIRD)
    cases = {run.case for run in opened(smoke=True).asked}
    assert cases == {"small", "large"}
    assert {run.case for run in opened(smoke=True, cases=["third"]).asked} == {"third"}
    assert opened(smoke=True, cases=["of another study"]).asked == []


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("seeds", [None, [1], [9], [1, 2, 3, 4]])
@pytest.mark.parametrize("cases", [(), ("large",)])
def test_what_is_missing_does_not_depend_on_what_is_asked(
    opened: Callable[..., Work], seeds: list[int] | None, cases: tuple[str, ...]
) -> None:
    # Two variants at two points: small has two seeds of its own, one of them done; large has five.
    assert opened(seeds=seeds, cases=cases).missing() == {
        "small": Missing(num_runs=4, seconds=12.0, dataset="digits"),
        "large": Missing(num_runs=20, seconds=1200.0, dataset="digits"),
    }


@pytest.mark.usefixtures("kept")
def test_left_is_what_was_asked_and_has_no_record(opened: Callable[..., Work]) -> None:
    assert {(run.case, run.seed) for run in opened(cases=["small"]).left()} == {("small", 2)}
    assert {run.seed for run in opened(cases=["small"], seeds=[1, 9, 10]).left()} == {10}


@pytest.mark.usefixtures("kept")
def test_records_of_other_settings_are_left_out(opened: Callable[..., Work], folder: Path) -> None:
    assert counts(opened()) == (8, 0, 0)
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("target = 0.9", "target = 0.95"))
    assert counts(opened()) == (0, 0, 8)
    (folder / "small.toml").write_text((folder / "small.toml").read_text() + "patience = 9\n")
    assert counts(opened()) == (0, 8, 0)


def test_how_often_a_case_is_evaluated(opened: Callable[..., Work], folder: Path) -> None:
    assert opened().every_s() == {"small": 20.0, "large": 20.0}
    file = folder / "study.toml"
    file.write_text(
        file.read_text().replace('"train.epochs=2"', '"train.epochs=2", "evaluate.every_s=5"')
    )
    assert opened().every_s() == {}  # fast and slow differ


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("study.toml", "", ""),
        ("study.toml", "target = 0.9", "target = 0.95"),
        ("small.toml", "time_s = 50", "time_s = 60"),
    ],
)
def test_how_long_a_run_takes_is_known_from_those_left_out_too(
    opened: Callable[..., Work], folder: Path, file: str, old: str, new: str
) -> None:
    (folder / file).write_text((folder / file).read_text().replace(old, new))
    assert opened().run_s("small") == 3.0
    assert opened().run_s("large") == 60.0  # of it none was made: a guess


def test_records_of_a_study_with_seeds_of_its_own_are_known(
    opened: Callable[..., Work], folder: Path, record: Callable[..., Record]
) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("axis", "first_seed = 101\naxis"))
    runs = planned(plan.load(folder), folder, replace(WISH, cases=["small"], seeds=[1]))
    made = [record(r.variant, r.seed, 10.0, x=r.x, digest=r.digest) for r in runs]
    records.save(folder, made)
    assert counts(opened()) == (4, 0, 0)
    assert {run.seed for run in opened(cases=["small"]).left()} == {102}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("summary.json", "[]"),
        ("summary.json", '{"reason": "interrupted"}'),
        ("summary.json", '{"reason": "time", "wall_s": "long"}'),
        ("events.jsonl", "x\ny\n"),
        ("events.jsonl", '{"kind": "arrived", "at": 1.0}\n'),
        ("events.jsonl", '{"kind": "arrived", "at": "x"}\n'),
    ],
)
def test_a_damaged_run_is_not_finished_and_the_others_are(
    opened: Callable[..., Work], folder: Path, file: str, text: str
) -> None:
    work = opened(cases=["small"])
    damaged, *sound = work.asked
    for run in work.asked:
        made = work.runs / run.folder
        made.mkdir(parents=True)
        (made / "events.jsonl").write_text('{"kind": "stopped", "at": 1.0, "reason": "time"}\n')
        (made / "summary.json").write_text('{"reason": "time", "wall_s": 1.0}')
    (work.runs / damaged.folder / file).write_text(text)
    collect([work], Place(folder.parent / "runs", False))
    assert list(work.records) == [run.key for run in sound]
    assert work.left() == [damaged]
