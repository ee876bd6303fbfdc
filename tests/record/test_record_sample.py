"""A log of some of the clients: whole histories of these, and nobody takes it for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pisces
from pisces.errors import RunError
from pisces.execute.failures import Failures
from pisces.names import PROTOCOLS
from pisces.record.reader import Run
from pisces.record.sample import Sample
from pisces.record.writer import RunFolder
from pisces.replaying import replay
from pisces.report.goal import Goal
from pisces.report.ledger.book import Ledger
from pisces.report.table import run_table
from pisces.stop import Stop

SHARE = 0.4


def simulated(out: Path, versions: int = 12, **more: Any) -> pisces.simulation.Result:
    rng = torch.Generator().manual_seed(1)
    pairs = [
        (torch.randn(6, 4, generator=rng), torch.randint(2, (6,), generator=rng)) for _ in range(30)
    ]
    torch.manual_seed(1)
    return pisces.simulate(
        "fedbuff",
        model=nn.Linear(4, 2),
        clients=pairs,
        test=pairs[0],
        concurrency=8,
        settings={"buffer_size": 3},
        stop=Stop(versions=versions),
        failures=Failures(crash=0.2, dropout=0.1, return_after_s=50.0, seed=1),
        backend="sequential",
        out=out,
        **more,
    )


def without_wall_time(result: pisces.simulation.Result) -> dict[str, Any]:
    return {key: value for key, value in result.summary.items() if key != "wall_s"}


def test_it_has_every_line_of_some_clients_and_the_summary_is_of_all(tmp_path: Path) -> None:
    whole, some = simulated(tmp_path / "a"), simulated(tmp_path / "b", share=SHARE)
    assert without_wall_time(whole) == without_wall_time(some)
    header, *lines = Run.open(tmp_path / "b").events(sampled_too=True)
    assert header == {"kind": "sampled", "at": 0.0, "share": SHARE}
    sample = Sample(SHARE)
    theirs = {line["task"] for line in whole.lines if line["kind"] == "started"}
    theirs -= {
        line["task"]
        for line in whole.lines
        if line["kind"] == "started" and not sample.has(line["client"])
    }
    expected = []
    for line in whole.lines:
        if line["kind"] == "aggregated":
            places = [i for i, task in enumerate(line["tasks"]) if task in theirs]
            of_these = {k: [line[k][i] for i in places] for k in ("tasks", "staleness", "weights")}
            expected.append(line | of_these)
        elif line["kind"] == "dropped":
            expected += [line] if line["task"] in theirs else []
        elif line["kind"] != "picked" and sample.has(line.get("client", 0)):
            expected.append(line)
    assert lines == expected
    assert 0 < len([line for line in lines if line["kind"] == "joined"]) < 30


def test_about_as_many_clients_as_asked_for() -> None:
    sample = Sample(0.01)
    assert sum(map(sample.has, range(100_000))) == pytest.approx(1000, abs=20)


def test_it_goes_on_with_the_same_clients_and_the_counts_of_all(tmp_path: Path) -> None:
    straight = simulated(tmp_path / "a", share=SHARE)
    simulated(tmp_path / "b", versions=5, share=SHARE)
    resumed = simulated(tmp_path / "b", resume=True)  # the log keeps the share it began with
    logs = [(tmp_path / name / "events.jsonl").read_bytes() for name in "ab"]
    assert logs[0] == logs[1]
    assert without_wall_time(resumed) == without_wall_time(straight)


def test_whoever_would_count_it_is_told(tmp_path: Path) -> None:
    result = simulated(tmp_path / "run", share=SHARE)
    run = Run.open(tmp_path / "run")
    assert run.sampled == SHARE
    times, _ = run.curve("accuracy")
    assert len(times) == len(result.curve()) > 5
    run_table(run, Goal.of([run]))  # from the summary, which is of all
    for count in (run.tally, lambda: list(run.events()), lambda: list(run.events("joined"))):
        with pytest.raises(RunError, match=r"events\.jsonl is sampled"):
            count()
    pacer = PROTOCOLS["fedbuff"](8).pacer
    with pytest.raises(RunError, match="is sampled"):
        replay(run, pacer=pacer, own=pacer)
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(RunError, match="is sampled"):
        _ = Run.open(tmp_path / "run").summary


def test_a_page_that_watches_it_says_so_and_shows_no_counts(tmp_path: Path) -> None:
    simulated(tmp_path / "run", share=SHARE)
    ledger = Ledger(tmp_path / "run")
    for _ in range(2):
        ledger.read()
        assert ledger.problem is not None
        assert "is sampled" in ledger.problem
        assert not ledger.notes.counts


def test_a_whole_log_is_not_sampled(tmp_path: Path) -> None:
    simulated(tmp_path / "run", versions=3)
    assert Run.open(tmp_path / "run").sampled is None


def test_what_has_ended_is_not_remembered(tmp_path: Path) -> None:
    result = simulated(tmp_path / "run", versions=30, share=SHARE)
    recalled = Sample(SHARE)
    for line in Run.open(tmp_path / "run").events(sampled_too=True):
        recalled.recall(line)
    running = result.summary["num_under_way"] + result.summary["num_dropped"]
    assert len(recalled._tasks) <= running < result.summary["num_started"] // 3


@pytest.mark.parametrize(
    "first", ["0", "[]", '{"kind": "sampled"}', '{"kind": "sampled", "share": 7}']
)
def test_a_log_that_begins_with_no_line_is_taken_for_none(tmp_path: Path, first: str) -> None:
    RunFolder.create(tmp_path / "r", "").close()
    (tmp_path / "r" / "events.jsonl").write_text(f"{first}\n")
    folder = RunFolder.reopen(tmp_path / "r")
    folder.write_sample(1.0)
    assert not folder.is_sampled
    folder.close()
