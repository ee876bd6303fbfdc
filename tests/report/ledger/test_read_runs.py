"""Runs whose log is read already: nothing they are asked reads it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ledgers import CONFIG, HAND, line, write

from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.report.again import software
from pisces.report.goal import Goal
from pisces.report.ledger.summary import ReadRun, notes_of, read_once
from pisces.report.table import run_table

OVER = [*HAND, line("stopped", 12.0, reason="time")]


def test_what_is_asked_of_it_is_what_its_file_says(tmp_path: Path) -> None:
    for name, lines in (("going-on", HAND), ("over", OVER)):
        run = Run.open(write(tmp_path / name, lines))
        read = ReadRun.whole(run)
        assert read.summary == run.summary
        assert read.counts == run.counts
        assert read.aim == run.aim == ("accuracy", 0.5)
        assert read.time_to_target(0.5) == run.time_to_target(0.5) == 9.0


def test_its_log_is_not_read_again(tmp_path: Path) -> None:
    read = ReadRun.whole(Run.open(write(tmp_path, HAND)))
    (tmp_path / "events.jsonl").unlink()
    assert ReadRun.whole(read) is read
    assert read_once(read) is read
    assert read.summary["num_updates"] == 3
    assert (read.wall_s, read.sampled) == (None, None)
    assert notes_of(read).num_running == 0
    assert run_table(read, Goal.of([read])).row_count > 10
    assert "was not reached" in "".join(software([read]))


def test_a_summary_counts_where_the_log_has_an_end(tmp_path: Path) -> None:
    told = {**Run(write(tmp_path, OVER)).summary, "wall_s": 2.5, "made_with": "pisces 9"}
    (tmp_path / "summary.json").write_text(json.dumps(told))
    over = ReadRun.whole(Run(tmp_path))
    assert (over.summary, over.wall_s) == (told, 2.5)
    write(tmp_path, HAND)  # the summary is of before a resume
    going_on = ReadRun.whole(Run(tmp_path))
    assert (going_on.saved, going_on.wall_s, going_on.summary["reason"]) == ({}, None, None)
    assert "was not reached" in "".join(software([going_on]))


def test_what_is_beside_the_log_and_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (write(tmp_path, OVER) / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"cannot read .*summary.json.*remove it"):
        ReadRun.whole(Run(tmp_path))
    (tmp_path / "config.toml").write_text("seed = ")
    with pytest.raises(RunError, match=r"cannot read .*config.toml.*mend or remove it"):
        ReadRun.whole(Run(tmp_path))


def test_a_log_that_was_damaged_is_refused_in_the_words_of_all_readers(tmp_path: Path) -> None:
    run = Run(write(tmp_path, OVER))
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "events.jsonl").write_bytes(b"".join([*lines[:5], b"no line\n", *lines[5:]]))
    with pytest.raises(RunError, match="line 6: not an event") as error:
        read_once(run)
    with pytest.raises(RunError) as other:
        run.tally()
    assert str(error.value) == str(other.value)
    assert ReadRun.whole(run).counts.reason is None  # as far as it can be read


def test_a_sampled_run_has_its_metrics_and_its_summary_and_no_more(tmp_path: Path) -> None:
    run = Run(write(tmp_path, [line("sampled", 0.0, share=0.3), *OVER], CONFIG))
    kept = read_once(run)
    assert (kept.sampled, ReadRun.whole(run).sampled) == (0.3, 0.3)
    assert kept.time_to_target(0.5) == 9.0
    with pytest.raises(RunError, match="is sampled"):
        notes_of(kept)
