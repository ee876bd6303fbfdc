"""Commands over logs of some of the clients: what they can tell, and what they refuse to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARE = 0.4


@pytest.fixture
def runs(pisces: Any, small: str, tmp_path: Path) -> Path:
    """A whole run and a sampled one."""
    for name, share in (("a", 1.0), ("b", SHARE)):
        told = ["--out", tmp_path / "runs" / name, "--set", f"record.share={share}"]
        assert pisces("run", small, "-q", *told).code == 0
    return tmp_path / "runs"


def test_a_report_of_one_has_a_table_and_no_pictures(pisces: Any, runs: Path) -> None:
    told = pisces("report", runs / "b", "--json")
    assert told.code == 0, told.err
    whole = json.loads((runs / "a" / "summary.json").read_text())
    assert json.loads(told.out)["num_updates"] == whole["num_updates"]
    assert "no pictures: " in told.err
    assert not list((runs / "b").glob("*.png"))


@pytest.mark.parametrize("wanted", ["--html", "--csv", "--pdf"])
def test_what_needs_all_clients_is_refused(pisces: Any, runs: Path, wanted: str) -> None:
    told = pisces("report", runs / "b", wanted, runs / "out")
    assert told.code == 2
    assert "is sampled" in told.err
    assert not (runs / "out").exists()
    assert pisces("report", runs / "a", runs / "b", "--target", "0.1").code == 2


def test_one_that_is_not_over_hides_no_other_run(pisces: Any, runs: Path) -> None:
    (runs / "b" / "summary.json").unlink()
    first, second = json.loads(pisces("runs", runs, "--json").out)
    assert first["versions"] > 0
    assert (second["sampled"], "versions" in second) == (SHARE, False)
    assert "not over (sampled)" in pisces("runs", runs).out
