"""Runs of one protocol with other settings of it are told apart wherever runs are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledgers import HAND, ledger_of, line

from pisces.report.compare import by_protocol, compare
from pisces.report.costs import costs
from pisces.report.figures import compare_speedups
from pisces.report.goal import Goal
from pisces.report.ledger.summary import ReadRun
from pisces.report.page import page
from pisces.report.settings import told_apart

END = line("stopped", 20.0, reason="time")


def run_of(folder: Path, settings: str, *, protocol: str = "pisces", seed: int = 1) -> ReadRun:
    config = f'protocol = "{protocol}"\nseed = {seed}\n[stop]\ntarget = 0.5\n{settings}'
    return ReadRun.of(ledger_of(folder, [*HAND, END], config))


def bound(folder: Path, value: int, seed: int = 1) -> ReadRun:
    own = f"[protocols.pisces]\nstaleness_bound = {value}\nfull_share = 0.25\n"
    return run_of(folder / f"bound-{value}-{seed}", own, seed=seed)


def test_settings_that_differ_are_part_of_what_runs_are_called(tmp_path: Path) -> None:
    runs = [bound(tmp_path, 5), bound(tmp_path, 80), bound(tmp_path, 5, seed=2)]
    other = run_of(tmp_path / "other", "[protocols.fedbuff]\nbuffer_size = 3\n", protocol="fedbuff")
    told = told_apart([*runs, other])
    five, eighty = "pisces, staleness_bound=5", "pisces, staleness_bound=80"
    assert [run.protocol for run in told] == [five, eighty, five, "fedbuff"]
    assert told[1].name == f"{eighty} (seed 1)"
    assert [run.protocol for run in told_apart(told)] == [run.protocol for run in told]
    # So they are held against each other, and two seeds of one stay together.
    assert [len(seeds) for seeds in by_protocol(told).values()] == [2, 1, 1]
    rows = {row.protocol: row for row in compare(told, 0.5, reference=five)}
    assert rows[eighty].speedup is not None
    assert rows[eighty].speedup.num == 1
    assert [cost.protocol for cost in costs([run.ledger for run in runs])] == [five, eighty, five]


@pytest.mark.parametrize("values", [(5,), (5, 5), (80, 80, 80)], ids=str)
def test_who_differs_in_nothing_keeps_its_name(tmp_path: Path, values: tuple[int, ...]) -> None:
    runs = [bound(tmp_path, value, seed) for seed, value in enumerate(values, start=1)]
    assert {run.protocol for run in told_apart(runs)} == {"pisces"}


def test_parts_that_were_replaced_and_many_settings(tmp_path: Path) -> None:
    one, two = (
        run_of(
            tmp_path / str(size),
            f'[pace]\npolicy = "fedbuff"\nbuffer_size = {size}\n[protocols.pisces]\n'
            f'a = {size}\nb = "{"x" * size * 10}"\nc = {size / 4}\nd = {size}\n',
        )
        for size in (2, 9)
    )
    first, second = (run.protocol for run in told_apart([one, two]))
    assert first == "pisces+fedbuff, pace.buffer_size=2, a=2, b=xxxxxxxxxxxxxxxxxxxx, 2 more"
    assert second.endswith("a=9, b=xxxxxxxxxxxx...xxxxxxxxxxxxx, 2 more")  # of any length


def test_what_only_some_tell_of_is_no_difference(tmp_path: Path) -> None:
    told = told_apart([bound(tmp_path, 5), run_of(tmp_path / "bare", "")])
    assert [run.protocol for run in told] == ["pisces", "pisces"]


def test_a_page_compares_two_settings_of_one_protocol(tmp_path: Path) -> None:
    runs = [bound(tmp_path, 5), bound(tmp_path, 80)]
    for text in (page(runs), page(told_apart(runs))):  # the command has told them apart already
        assert "pisces, staleness_bound=5" in text
        assert "A closer look: pisces, staleness_bound=80 (seed 1)" in text


def test_names_with_settings_stand_in_lines(tmp_path: Path) -> None:
    runs = told_apart([bound(tmp_path, 5), bound(tmp_path, 80)])
    goal = Goal("accuracy", 0.5, reference=runs[0].protocol)
    figure = compare_speedups(runs, goal)
    assert figure.layout["yaxis"]["ticktext"] == ["pisces,<br>staleness_bound=80"]
    title = figure.layout["xaxis"]["title"]["text"]
    assert title == "speed-up of pisces,<br>staleness_bound=5<br>(1: none)"
