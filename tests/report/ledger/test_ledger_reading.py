"""Following a log: as it grows, is cut, replaced, damaged or not there."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import CONFIG, HAND, append, ledger_of, line, write
from runs import World, any_world, log_bytes, simulate, train_digits

from pisces.record.follower import CHUNK_BYTES
from pisces.record.lines import Line, encode
from pisces.record.reader import Run
from pisces.record.sound import is_line
from pisces.report.ledger import Ledger, client_rows, overview
from pisces.report.ledger.checks import USUAL, is_sound
from pisces.report.ledger.summary import counted, involvement


def told(ledger: Ledger) -> dict[str, Any]:
    """Everything there is to compare, but for clocks."""
    notes = ledger.notes
    tables = [notes.clients, notes.tasks, notes.arrivals, notes.aggregations, notes.shares]
    tables += [notes.evaluations, notes.comings, notes.picks.decisions, notes.picks.scores]
    tables += [notes.picks.values, *notes.metrics.values(), *notes.pace.values()]
    columns = [[str(table[name].tolist()) for name in table.FILLS] for table in tables]
    return {"counts": counted(ledger), "columns": columns, "reasons": notes.reasons}


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    text = log_bytes(HAND)
    ledger = Ledger(write(tmp_path, []))
    (tmp_path / "events.jsonl").write_bytes(text[:-20])
    assert ledger.read()
    assert ledger.notes.num_lines == len(HAND) - 1
    assert ledger.is_whole
    assert not ledger.read()
    (tmp_path / "events.jsonl").write_bytes(text)  # the same file, and the same beginning
    assert ledger.read()
    assert ledger.notes.num_lines == len(HAND)
    assert told(ledger) == told(ledger_of(tmp_path / "whole"))


def test_what_is_added_is_all_that_is_read(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, HAND[:10])
    revision, notes = ledger.revision, ledger.notes
    append(tmp_path, *HAND[10:])
    assert ledger.read()
    assert ledger.revision > revision
    assert ledger.notes is notes  # it did not begin anew
    assert told(ledger) == told(ledger_of(tmp_path / "whole"))


def test_a_log_cut_by_a_resume_is_read_anew(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, [*HAND, line("stopped", 11.0, reason="interrupted")])
    assert overview(ledger).state == "interrupted"
    os.truncate(tmp_path / "events.jsonl", len(log_bytes(HAND[:12])))
    assert ledger.read()
    assert (ledger.notes.num_lines, ledger.notes.reason) == (12, None)
    append(tmp_path, *HAND[12:])
    ledger.read()
    assert told(ledger) == told(ledger_of(tmp_path / "whole"))


def test_a_log_cut_and_grown_beyond_where_we_were_is_read_anew(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, [*HAND, line("stopped", 11.0, reason="time")])
    more = [line("evaluated", 12.0 + n, version=2, accuracy=0.7) for n in range(50)]
    with (tmp_path / "events.jsonl").open("r+b") as file:
        file.truncate(len(log_bytes(HAND)))
        file.seek(0, os.SEEK_END)
        file.write(log_bytes(more))
    ledger.read()
    assert ledger.notes.reason is None
    assert told(ledger) == told(ledger_of(tmp_path / "whole", [*HAND, *more]))


def test_another_run_in_the_same_folder_is_noticed(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, HAND)
    assert ledger.run.seed == 3
    (tmp_path / "events.jsonl").rename(tmp_path / "old")  # its inode is not given away meanwhile
    write(tmp_path, [*HAND, *HAND[-1:]], 'protocol = "fedbuff"\nseed = 9\n')
    assert ledger.read()
    assert ledger.run.seed == 9
    assert ledger.notes.num_lines == len(HAND) + 1


def test_a_config_that_comes_after_its_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    ledger = Ledger(tmp_path)
    ledger.read()
    assert overview(ledger).name == tmp_path.name
    revision = ledger.revision
    (tmp_path / "config.toml").write_text(CONFIG)
    assert ledger.read()
    assert ledger.revision > revision
    assert (overview(ledger).name, overview(ledger).target) == ("pisces (seed 3)", 0.5)
    assert not ledger.read()


def test_a_config_written_anew_is_read_though_its_log_only_grows(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert overview(ledger).target == 0.5
    notes = ledger.notes
    (tmp_path / "config.toml").write_text(CONFIG.replace("target = 0.5", "target = 0.75"))
    assert ledger.read()
    assert overview(ledger).target == 0.75
    assert ledger.notes is notes  # what was read stays


def test_a_folder_that_goes_and_comes_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "later")
    assert not ledger.read()
    assert (ledger.is_whole, ledger.problem, overview(ledger).state) == (True, None, "empty")
    write(tmp_path / "later", HAND)
    assert ledger.read()
    (tmp_path / "later" / "events.jsonl").unlink()
    assert ledger.read()  # what it told is gone
    assert ledger.notes.num_lines == 0


DAMAGED = [
    b"not json\n",
    b'{"kind":"started","at":1.0}\n',
    b'{"kind":"started","at":NaN,"task":1,"client":1,"version":0}\n',
    b'{"kind":"joined","at":1e400,"client":1,"num_examples":3}\n',
    b'{"kind":"joined","at":1' + b"0" * 400 + b',"client":1,"num_examples":3}\n',
    b'{"kind":"x","at":1.0},{"kind":"x","at":1.0}\n',
    b"\xff\xfe\n",
    b"[1,2]\n",
    b"\n",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_line_keeps_what_was_read_and_says_where(tmp_path: Path, text: bytes) -> None:
    write(tmp_path, HAND)
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(text + encode(line("stopped", 12.0, reason="time")))
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.problem is not None
    assert f"line {len(HAND) + 1}" in ledger.problem
    assert ledger.notes.num_lines == len(HAND)
    assert overview(ledger).problem == ledger.problem
    assert ledger.is_whole
    assert not ledger.read()


def test_objects_that_do_not_end_with_their_lines_are_damage(tmp_path: Path) -> None:
    one = b'{"kind":"joined","at":0.0,"client":%d,"num_examples":3}'
    halves = [b'{"kind": "joined", "at": 0.0', b'"client": 2, "num_examples": 3}']
    lines = [one % 0 + b"," + one % 1, *halves]  # as many objects as lines
    write(tmp_path, [])
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    ledger = Ledger.whole(tmp_path)
    assert ledger.is_damaged
    assert "line 1" in str(ledger.problem)


def test_a_sampled_log_that_is_gone_is_no_problem_any_more(tmp_path: Path) -> None:
    ledger = Ledger.whole(write(tmp_path, [line("sampled", 0.0, share=0.1), *HAND]))
    assert ledger.is_sampled
    (tmp_path / "events.jsonl").unlink()
    ledger.read()
    assert (ledger.problem, ledger.is_sampled) == (None, False)


def test_a_line_that_was_mended_is_read(tmp_path: Path) -> None:
    write(tmp_path, HAND)
    whole = log_bytes(HAND)
    (tmp_path / "events.jsonl").write_bytes(whole[:-30] + b"}" * 30 + b"\n" + whole[-5:])
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.problem is not None
    (tmp_path / "events.jsonl").write_bytes(whole)
    assert ledger.read()
    assert ledger.problem is None
    assert ledger.notes.num_lines == len(HAND)


def test_a_killed_run_ends_in_half_a_line_and_that_is_no_damage(tmp_path: Path) -> None:
    write(tmp_path, HAND)
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"kind":"sta\n')
    ledger = Ledger(tmp_path)
    ledger.read()
    assert (ledger.problem, ledger.notes.num_lines) == (None, len(HAND))
    assert len(list(Run(tmp_path).events())) == len(HAND)  # so does the reader


def test_a_pipe_in_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.notes.num_lines == 0
    assert ledger.problem is not None
    assert "not an ordinary file" in ledger.problem


def test_a_line_longer_than_a_chunk(tmp_path: Path) -> None:
    long = line("aggregated", 12.0, version=3, tasks=[2], staleness=[1], weights=[1.0])
    long["more"] = "x" * (2 * CHUNK_BYTES)
    ledger = ledger_of(tmp_path, [*HAND, long, line("stopped", 13.0, reason="time")])
    assert (ledger.notes.version, ledger.notes.reason) == (3, "time")


def test_reading_is_cut_into_slices_that_show_progress(tmp_path: Path) -> None:
    lines = [line("evaluated", float(n), version=0, accuracy=0.5) for n in range(20_000)]
    ledger, shares = Ledger(write(tmp_path, lines)), []
    while not ledger.is_whole:
        ledger.read(most_s=0.0)
        shares.append(ledger.share_read)
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert ledger.notes.num_lines == 20_000


@given(world=any_world(), cuts=st.lists(st.integers(0, 10**6), max_size=6))
@settings(max_examples=15)
def test_reading_in_slices_equals_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, world: World, cuts: list[int]
) -> None:
    text = log_bytes(simulate("pisces", world, decisions=True))
    folder = tmp_path_factory.mktemp("run")
    sliced = Ledger(folder)
    for cut in sorted(cut % len(text) for cut in cuts):
        (folder / "events.jsonl").write_bytes(text[:cut])
        sliced.read()
    (folder / "events.jsonl").write_bytes(text)
    sliced.read()
    at_once = Ledger(folder)
    at_once.read()
    assert told(sliced) == told(at_once)
    assert sliced.problem is None


@given(world=any_world(), protocol=st.sampled_from(["pisces", "fedavg", "fedbuff", "oort"]))
@settings(max_examples=15)
def test_it_counts_as_the_tally_does(
    tmp_path_factory: pytest.TempPathFactory, world: World, protocol: str
) -> None:
    ledger = ledger_of(tmp_path_factory.mktemp("run"), simulate(protocol, world), None)
    tally = Run(ledger.path).tally()
    assert counted(ledger) == tally.counts()
    rows = client_rows(ledger, num=100).rows
    for part in (tally.involvement(), involvement(ledger.notes)):
        assert [row.client for row in rows] == part.clients.tolist()
        assert [row.picks for row in rows] == part.num_started.tolist()
        assert [row.num_examples for row in rows] == part.num_examples.tolist()


VALUES: list[Any] = [None, True, -1, 0, 3, 2**63, 10**400, 1.5, float("nan"), float("inf"), "x"]
VALUES += [[], [1], [1.5, None], ["score"], [[1.0, None]], [[1]], [[float("nan")]], {}, {"a": 1.0}]


@pytest.mark.parametrize("usual", HAND, ids=lambda own: str(own["kind"]))
def test_the_quick_check_agrees_with_the_thorough_one(usual: Line) -> None:
    assert is_sound(usual)
    for key in (*usual, "loss", "pace", "extra"):
        for value in VALUES:
            changed = {**usual, key: value}
            assert is_sound(changed) == agreed(changed), changed
        assert is_sound({k: v for k, v in usual.items() if k != key}) == agreed(
            {k: v for k, v in usual.items() if k != key}
        )


def test_the_quick_check_takes_what_runs_write() -> None:
    lines, _ = train_digits("pisces")
    usual = [own for own in lines if own["kind"] in USUAL]
    assert {own["kind"] for own in usual} == USUAL.keys()
    assert all(USUAL[own["kind"]](own) for own in usual)


def agreed(own: Line) -> bool:
    try:
        return is_line(own)
    except OverflowError:  # what is beyond all floats is no number of a run's
        return False


def test_overviews_are_json_and_nothing_imports_torch(tmp_path: Path) -> None:
    json.dumps(dataclasses.asdict(overview(ledger_of(tmp_path))), allow_nan=False)
    code = "import sys, pisces.report.figures; sys.exit(len(set(sys.modules) & {'torch'}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
