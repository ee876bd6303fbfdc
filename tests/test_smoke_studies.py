"""Every study of the paper, small: one call runs them all, a second one runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pisces.study import plan

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
STUDIES = plan.find(EXPERIMENTS)
CASES = 2  # of each study, in a trial


def reproduce(out: Path) -> subprocess.CompletedProcess[str]:
    args = ["reproduce", "all", "--smoke", "--seeds", "1", "--jobs", "2"]
    command = [sys.executable, "-m", "pisces.cli.main", *args]
    places = ["--folder", str(EXPERIMENTS), "--out", str(out)]
    return subprocess.run([*command, *places], capture_output=True, text=True, cwd=out.parent)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the trial went."""
    place = tmp_path_factory.mktemp("trial") / "out"
    before = sorted(EXPERIMENTS.rglob("*"))
    ran = reproduce(place)
    assert ran.returncode == 0, ran.stderr
    assert sorted(EXPERIMENTS.rglob("*")) == before  # a trial touches nothing of the real ones
    return place


def test_every_study_has_its_page(out: Path) -> None:
    index = (out / "RESULTS.md").read_text()
    for name, folder in STUDIES.items():
        study, text = plan.load(folder), (out / name / "RESULTS.md").read_text()
        assert f"({name}/RESULTS.md)" in index
        assert f"# {study.title}" in text
        assert text.count("**Verdict: ") == 1
        assert all(f"| {claim.text} |" in text for claim in study.claim)
        for case in study.case[:CASES]:
            rows = text.split(f"\n## {case.name}\n")[1].split("\n## ")[0]
            for variant in study.variants_of(case):
                points = len(study.xs_of(case))
                assert rows.count(f"\n| {variant.name} | ") == points


def test_every_study_has_its_pictures(out: Path) -> None:
    for name, folder in STUDIES.items():
        study, text = plan.load(folder), (out / name / "RESULTS.md").read_text()
        for case in study.case[:CASES]:
            for kind in study.figures:
                picture = f"figures/{case.name}-{kind}.png"
                assert f"]({picture})" in text
                assert (out / name / picture).stat().st_size > 5000


def test_a_second_call_runs_nothing(out: Path) -> None:
    files = [path for path in out.rglob("*") if path.suffix in (".json", ".jsonl", ".png")]
    before = {path: os.stat(path).st_mtime_ns for path in files}
    ran = reproduce(out)
    assert ran.returncode == 0
    assert "done:" not in ran.stderr
    after = [path for path in out.rglob("*") if path.suffix in (".json", ".jsonl", ".png")]
    assert {path: os.stat(path).st_mtime_ns for path in after} == before
