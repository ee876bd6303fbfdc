"""From lines to points, worked out by hand; and not one point per event."""

from __future__ import annotations

from typing import Any

from pisces.record.lines import Line
from pisces.record.trackers.base import Point, flat, outcome
from pisces.record.trackers.meter import EACH, Meter, has_point


def started(task: int, at: float) -> Line:
    return {"kind": "started", "at": at, "task": task, "client": task, "version": 0}


def arrived(task: int, at: float, loss: float | None) -> Line:
    return {"kind": "arrived", "at": at, "task": task, "client": task, "loss": loss}


def aggregated(version: int, at: float, tasks: list[int], **more: Any) -> Line:
    staleness = more.pop("staleness", [0] * len(tasks))
    line = {"kind": "aggregated", "at": at, "version": version, "tasks": tasks}
    return {**line, "staleness": staleness, "weights": [1.0] * len(tasks), **more}


def points_of(*lines: Line) -> list[Point]:
    meter = Meter()
    return [point for line in lines if (point := meter.add(line)) is not None]


def test_an_aggregation_by_hand() -> None:
    (point,) = points_of(
        {"kind": "picked", "at": 0.0, "clients": [0, 1, 2, 3, 4]},  # of no matter
        *(started(task, 0.0) for task in range(5)),
        arrived(0, 2.0, 1.0),
        arrived(1, 3.0, 2.0),
        arrived(2, 3.0, None),
        {"kind": "failed", "at": 3.5, "task": 3, "client": 3, "reason": "it crashed"},
        {"kind": "dropped", "at": 3.5, "task": 2, "reason": "late"},
        {"kind": "distrusted", "at": 3.5, "client": 3},
        aggregated(1, 4.0, [0], staleness=[3], pace={"limit_s": 2.5, "slowest_s": None}),
    )
    assert (point.number, point.version, point.at, point.is_evaluation) == (0, 1, 4.0, False)
    assert point.values == {
        "aggregation/size": 1.0,
        "aggregation/interval_s": 4.0,
        "staleness/mean": 3.0,
        "staleness/max": 3,
        "loss/train": 1.0,
        "clients/running": 1,  # task 4: 5 started, 3 arrived, 1 failed
        "clients/distrusted": 1,
        "updates/total": 3,
        "updates/buffered": 1,  # task 1: 0 was used, 2 was not wanted
        "updates/failed": 1,
        "updates/dropped": 1,
        "pace/limit_s": 2.5,  # what is not known is not drawn
    }


def test_what_was_called_off_did_not_fail_and_who_just_left_ran_nothing() -> None:
    (point,) = points_of(
        started(0, 0.0),
        started(1, 0.0),
        {"kind": "failed", "at": 1.0, "task": 0, "client": 0, "reason": "called off: late"},
        {"kind": "left", "at": 1.0, "client": 7, "reason": "went"},
        {"kind": "left", "at": 1.0, "task": 1, "client": 1, "reason": "went"},
        aggregated(1, 2.0, []),
    )
    values = point.values
    assert (values["clients/running"], values["updates/failed"]) == (0, 1)
    assert "staleness/mean" not in values  # of nothing
    assert "loss/train" not in values


def test_an_evaluation_is_told_by_its_own_names() -> None:
    line = {"kind": "evaluated", "at": 5.0, "version": 3, "accuracy": 0.5, "loss": None}
    assert points_of(line) == [Point(0, 3, 5.0, {"accuracy": 0.5}, is_evaluation=True)]


def test_points_become_rarer_and_speak_for_those_before() -> None:
    lines = []
    for version in range(1, EACH + 3):
        at = float(version)
        lines += [started(version, at), arrived(version, at, 1.0 * version)]
        lines += [aggregated(version, at, [version], staleness=[version % 2])]
    points = points_of(*lines)
    assert [point.version for point in points[-3:]] == [EACH - 1, EACH, EACH + 2]
    assert points[-1].values["loss/train"] == EACH + 1.5  # of two versions
    assert points[-1].values["aggregation/size"] == 1.0
    assert points[-1].values["aggregation/interval_s"] == 1.0
    assert points[-1].values["staleness/mean"] == 0.5
    assert points[-1].values["staleness/max"] == 1


def test_a_million_aggregations_have_some_six_thousand_points() -> None:
    num = sum(map(has_point, range(1, 1_000_001)))
    assert 5_000 < num < 7_000


def test_tables_become_flat() -> None:
    table = {"a": {"b": 1, "c": {"d": "x"}}, "e": [1, 2], "f": None, "g": True, "h": "y" * 1000}
    told = flat(table)
    assert {**told, "h": ""} == {"a.b": 1, "a.c.d": "x", "e": "1, 2", "g": True, "h": ""}
    assert len(str(told["h"])) < 500


def test_of_the_distrusted_a_summary_tells_how_many() -> None:
    told = outcome({"distrusted": [3, 4], "final": {"accuracy": 0.5}, "target": None})
    assert told == {"final.accuracy": 0.5, "num_distrusted": 2}


def test_a_metric_that_is_called_as_the_time_keeps_its_value() -> None:
    line = {"kind": "evaluated", "at": 5.0, "version": 3, "seconds": 0.5}
    assert points_of(line) == [Point(0, 3, 5.0, {"metric/seconds": 0.5}, is_evaluation=True)]
