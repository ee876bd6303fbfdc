"""Tables as they look on a terminal of 80 columns."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from pisces.quantities import duration, in_bytes, percent
from pisces.record.reader import Run
from pisces.report.compare import Row
from pisces.report.estimate import Estimate
from pisces.report.goal import Goal
from pisces.report.table import comparison_table, run_table

AIM = Goal("accuracy", 0.84)
THREE = Estimate(3, least=1.4, most=1.4, min=1.25, max=1.5, low=1.25, high=1.5)
LATE = replace(THREE, most=math.inf, max=math.inf, high=math.inf)
ROW = Row(
    protocol="pisces",
    seeds=(1, 2, 3),
    reached=3,
    time_to_target_s=440.0,
    speedup=None,
    versions=1433.0,
    updates=12345.0,
    max_staleness=20,
    final=0.98765,
    wall_s=4.56,
)
OTHER = replace(
    ROW,
    protocol="fedbuff",
    time_to_target_s=616.0,
    speedup=THREE,
)


def lines(table: Table, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def test_protocols_side_by_side() -> None:
    late = replace(
        OTHER,
        protocol="oort",
        reached=1,
        time_to_target_s=None,
        speedup=LATE,
        max_staleness=None,
        final=None,
        wall_s=None,
    )
    some = replace(OTHER, protocol="fedavg", reached=2)
    shown = lines(comparison_table([ROW, OTHER, some, late], AIM))
    assert [" ".join(line.split()) for line in shown] == [
        "time to speed-up max final wall",
        "protocol 0.84 of pisces versions updates staleness accuracy time",
        "─" * len(shown[2].strip()),
        "pisces 440 s 1,433 12,345 20 0.9877 4.6 s",
        "fedbuff 616 s 1.40x 1,433 12,345 20 0.9877 4.6 s",
        "1.25-1.50",
        "fedavg 616 s 1.40x 1,433 12,345 20 0.9877 4.6 s",
        "reached 1.25-1.50",
        "2 of 3",
        "oort reached >= 1.40x 1,433 12,345 - - -",
        "1 of 3 1.25-?",
        "medians over seeds; below a speed-up: smallest to largest",
    ]


def test_runs_cut_short_are_counted_below_the_name() -> None:
    some = replace(ROW, num_cut_short=1)
    only = replace(
        ROW,
        protocol="oort",
        seeds=(),
        reached=0,
        time_to_target_s=None,
        versions=None,
        updates=None,
        max_staleness=None,
        final=None,
        wall_s=None,
        num_cut_short=12,
    )
    shown = lines(comparison_table([some, only], AIM))
    assert [" ".join(line.split()) for line in shown[3:]] == [
        "pisces 440 s 1,433 12,345 20 0.9877 4.6 s",
        "1 cut short",
        "oort - - - - - - -",
        "12 cut short",
    ]


def test_nothing_is_cut_off_at_80_columns() -> None:
    wide = replace(
        OTHER,
        protocol="pisces-without-adaptive-pace",
        reached=0,
        time_to_target_s=None,
        speedup=replace(LATE, least=12.25),
        versions=99999.0,
        updates=999999.0,
        max_staleness=12345,
        wall_s=123456.0,
    )
    shown = lines(comparison_table([ROW, wide], AIM))
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    assert "…" not in text
    for cell in ("0.84", ">= 12.25x", "99,999", "999,999", "12,345", "34.3 h", "0 of 3"):
        assert cell in text
    both = "\n".join(
        lines(
            comparison_table(
                [ROW, replace(wide, speedup=replace(THREE, least=12.25, most=20.5))], AIM
            )
        )
    )
    assert "12.25x to" in both  # the other end is below it
    assert "20.50x" in both
    # There is no room for the long name: it alone is broken, after a hyphen.
    assert [line.split()[0] for line in shown[4:6]] == ["pisces-without-", "adaptive-pace"]


def test_a_long_name_stays_whole() -> None:
    long = replace(OTHER, protocol="pisces-without-adaptive-pace", updates=987.0)
    for width, headings in ((80, "ver- up- max"), (120, "max")):
        shown = lines(comparison_table([ROW, long], AIM, width=width), width)
        assert max(map(len, shown)) <= width
        assert " ".join(shown[0].split()) == f"time to speed-up {headings} final wall"
        assert shown[-3].split()[:3] == ["pisces-without-adaptive-pace", "616", "s"]


@pytest.mark.parametrize(
    ("pairs", "caption"),
    [
        ((1,), None),
        ((2,), "smallest to largest"),
        ((5, 6), "95 % interval of the median"),
        ((5, 2), "95 % interval of the median, or smallest to largest of fewer than 5"),
    ],
)
def test_the_caption_says_what_the_spread_is(pairs: tuple[int, ...], caption: str | None) -> None:
    others = [replace(OTHER, speedup=replace(THREE, num=num)) for num in pairs]
    table = comparison_table([ROW, *others], AIM)
    expected = None if caption is None else f"medians over seeds; below a speed-up: {caption}"
    assert table.caption == expected


def speedup_cell(row: Row) -> list[str]:
    table = comparison_table([ROW, row], AIM)
    return str(list(table.columns[2].cells)[1]).split("\n")


def test_the_spread_below_a_speedup() -> None:
    five = replace(OTHER, seeds=(1, 2, 3, 4, 5), speedup=replace(THREE, num=5, low=1.3, high=1.45))
    assert speedup_cell(five) == ["1.40x", "1.30-1.45"]
    four = replace(five, speedup=replace(THREE, num=4))
    assert speedup_cell(four) == ["1.40x", "1.25-1.50", "4 of 5"]
    one = replace(OTHER, speedup=replace(THREE, num=1))
    assert speedup_cell(replace(one, seeds=(1,))) == ["1.40x"]
    assert speedup_cell(one) == ["1.40x", "1 of 3"]
    unknown = replace(THREE, least=-math.inf, most=math.inf)
    assert speedup_cell(replace(OTHER, speedup=unknown)) == ["-"]
    assert speedup_cell(replace(OTHER, speedup=None)) == ["-"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.421, "0.42 s"),
        (7.49, "7.5 s"),
        (440.4, "440 s"),
        (6660.0, "6,660 s"),
        (10_080.0, "2.8 h"),
    ],
)
def test_durations_in_few_letters(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def facts(table: Table) -> dict[str, str]:
    labels, values = (list(column.cells) for column in table.columns)
    return dict(zip(map(str, labels), map(str, values), strict=True))


def test_one_run(make_run: Callable[..., Run]) -> None:
    aggregated = {"kind": "aggregated", "at": 9.0, "version": 4, "tasks": [], "staleness": [1, 4]}
    run = make_run("pisces", 1, {20.0: 0.9, 40.0: 0.8}, lines=[aggregated], wall_s=3.0)
    table = run_table(run, Goal("accuracy", 0.85))
    assert max(map(len, lines(table))) <= 80
    assert table.title == "pisces (seed 1)"
    shown = facts(table)
    assert shown["ended"] == "time limit, at 100 s"
    assert shown["staleness, mean and max"] == "2.5, 4"
    assert shown["accuracy, final and best"] == "0.8, 0.9"
    assert shown["time to accuracy 0.85"] == "20 s"
    assert shown["wall time"] == "3 s"
    assert facts(run_table(run, Goal("accuracy", 0.95)))["time to accuracy 0.95"] == "not reached"


def test_a_run_that_has_just_begun(make_run: Callable[..., Run]) -> None:
    run = make_run("pisces", 1, {})
    (run.path / "events.jsonl").write_bytes(b"")
    shown = facts(run_table(run, Goal("accuracy")))
    assert shown["ended"] == "not finished, at 0 s"
    assert shown["staleness, mean and max"] == "-"
    assert not any(label.startswith("time to") for label in shown)


def test_no_task_of_a_run_is_lost(make_run: Callable[..., Run]) -> None:
    ends = [
        {"kind": "arrived", "task": 0},
        {"kind": "failed", "task": 1, "reason": "called off"},
        {"kind": "failed", "task": 2, "reason": "the run stopped"},
        {"kind": "failed", "task": 3, "reason": "crashed"},
        {"kind": "left", "task": 4},
        {"kind": "left"},  # a client with nothing to do
    ]
    tasks = [{"kind": "started", "task": t, "client": 0} for t in range(7)] + ends
    lines = [{"at": 1.0, **line} for line in tasks]
    over, growing = (
        facts(run_table(make_run("pisces", seed, {}, lines=lines, reason=reason), Goal("accuracy")))
        for seed, reason in enumerate(["time limit", None])
    )
    assert growing["tasks started"] == "7"
    assert growing["tasks called off"] == over["tasks called off"] == "1"
    assert growing["tasks failed, clients left"] == "1, 2"
    assert growing["tasks under way"] == "3"  # 2, 5 and 6
    assert over["tasks under way at the end"] == "1"


def test_what_is_not_whole_is_not_100_percent() -> None:
    told = ["0 %", "0 %", "34 %", "99 %", "100 %", "100 %"]
    assert [percent(share) for share in (-1.0, 0.0, 0.349, 0.997, 1.0, 2.0)] == told


def test_bytes_in_few_letters() -> None:
    found = [in_bytes(num) for num in (None, 0, 812, 999.6, 19_456, 1_204_000_000, 9_996, 4e15)]
    told = ["-", "0 B", "812 B", "1.00 kB", "19.5 kB", "1.20 GB", "10.0 kB", "4,000 TB"]
    assert found == told
