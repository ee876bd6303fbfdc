"""Every study of the paper, small: one call runs them all, a second one runs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pisces.study import plan
from pisces.study.runs import SMOKE_CASES

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def reproduce(out: Path) -> subprocess.CompletedProcess[str]:
    args = ["reproduce", "all", "--smoke", "--seeds", "1", "--jobs", "2"]
    command = [sys.executable, "-m", "pisces.cli.main", *args]
    places = ["--folder", str(EXPERIMENTS), "--out", str(out)]
    return subprocess.run([*command, *places], capture_output=True, text=True, cwd=out.parent)


def assert_has_its_page(name: str, study: plan.Study, folder: Path) -> None:
    text = (folder / "RESULTS.md").read_text()
    assert f"# {study.title}" in text
    assert "*A trial on digits: the numbers mean nothing.*" in text
    assert "**Verdict: " not in text
    cases = study.case[:SMOKE_CASES]
    small = {case.name for case in cases}
    assert all(f"| {claim.text} |" in text for claim in study.claim if small & {*claim.case})
    for case in cases:
        rows = text.split(f"\n## {case.name}\n")[1].split("\n## ")[0]
        for variant in study.variants_of(case):
            assert rows.count(f"\n| {variant.name} | ") == len(study.xs_of(case))
        for kind in study.figures:
            picture = f"figures/{case.name}-{kind}.png"
            assert f"]({picture})" in rows
            assert (folder / picture).stat().st_size > 5000


def state(folder: Path) -> dict[Path, int]:
    """Every file and when it was written, but for the index, which is written each time."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files if path != folder / "RESULTS.md"}


# One test, because the trial takes half a minute and tests of a file may run in several processes.
def test_every_study_runs_small_and_once(tmp_path: Path) -> None:
    out, untouched = tmp_path / "out", state(EXPERIMENTS)
    ran = reproduce(out)
    assert ran.returncode == 0, ran.stderr
    assert state(EXPERIMENTS) == untouched  # a trial leaves the real results alone
    index = (out / "RESULTS.md").read_text()
    for name, folder in plan.find(EXPERIMENTS).items():
        assert f"({name}/RESULTS.md)" in index
        assert_has_its_page(name, plan.load(folder), out / name)

    before = state(out)
    again = reproduce(out)
    assert (again.returncode, again.stdout, again.stderr) == (0, ran.stdout, "")
    assert state(out) == before
