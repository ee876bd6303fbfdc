"""`metrics.csv`, read back by csv."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from trackedruns import OFTEN, killed, points_of, simulated

import pisces
from pisces.record.trackers.base import Point, Subject
from pisces.record.trackers.csv import CSV


def rows_of(path: Path) -> list[dict[str, float]]:
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def test_every_point_is_a_row(tmp_path: Path) -> None:
    simulated(tmp_path / "r", trackers=["csv"])
    points = points_of(tmp_path / "r")
    assert len(points) > 20
    assert rows_of(tmp_path / "r" / "metrics.csv") == [
        {"version": p.version, "seconds": p.at, **p.values} for p in points
    ]


def test_it_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    simulated(tmp_path / "whole", trackers=["csv"])
    killed(tmp_path / "r", 12, trackers=["csv"])
    assert rows_of(tmp_path / "r" / "metrics.csv")
    simulated(tmp_path / "r", trackers=["csv"], resume=True, checkpoints=OFTEN)
    files = [tmp_path / name / "metrics.csv" for name in ("r", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_one_that_comes_later_knows_the_beginning(tmp_path: Path) -> None:
    simulated(tmp_path / "r")
    later = pisces.Stop(time_s=40.0)
    simulated(tmp_path / "r", trackers=["csv"], resume=True, stop=later)
    simulated(tmp_path / "whole", trackers=["csv"], stop=later)
    files = [tmp_path / name / "metrics.csv" for name in ("r", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_new_names_are_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    tracker = CSV(path)
    tracker.begin(Subject("r", "0123456789ab", 0.0))
    tracker.track([Point(0, 0, 0.0, {"a": 0.1})])
    tracker.track([Point(1, 1, 2.0, {"b, \n": 1e-17})])
    tracker.end(None)
    assert path.read_text() == 'version,seconds,a,"b, \n"\n0,0.0,0.1,\n1,2.0,,1e-17\n'


def test_a_file_of_another_run_is_not_written_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("mine")
    simulated(tmp_path / "r", trackers=[CSV(path)])
    assert path.read_text() == "mine"
    assert f"RunError: {path} exists already: name another file" in caplog.text
