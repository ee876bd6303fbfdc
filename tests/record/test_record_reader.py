"""Reading run folders, whole and broken."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces.errors import RunError
from pisces.record.lines import encode
from pisces.record.reader import Run, find_runs
from pisces.record.summary import Tally
from pisces.record.writer import RunFolder
from pisces.types import Aggregated, Evaluated, Stopped

LINES = [
    {"kind": "joined", "at": 0.0, "client": 0, "num_examples": 10},
    {"kind": "evaluated", "at": 1.0, "version": 1, "accuracy": 0.5, "loss": 2.0},
    {"kind": "failed", "at": 1.5, "client": 0, "reason": "evaluated"},
    {"kind": "evaluated", "at": 2.0, "version": 2, "accuracy": 0.75, "loss": None},
    {"kind": "evaluated", "at": 3.0, "version": 3, "f1": 0.1},
]
TEXT = b"".join(map(encode, LINES))


def folder(path: Path, text: bytes = TEXT, config: str | None = None) -> Run:
    path.mkdir(parents=True, exist_ok=True)
    (path / "events.jsonl").write_bytes(text)
    if config is not None:
        (path / "config.toml").write_text(config)
    return Run.open(path)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    writer = RunFolder.create(tmp_path, 'seed = 3\nprotocol = "pisces"\n')
    writer.record(Aggregated(1.0, 1, (0,), (2,), (1.0,)))
    writer.record(Evaluated(1.0, 1, {"accuracy": 0.5}))
    writer.record(Stopped(4.0, "time limit"))
    summary = {**Tally().summary(), "at": 4.5, "versions": 7}
    writer.finish(summary, {"w": torch.arange(3.0)}, wall_s=0.5)
    writer.close()
    run = Run.open(str(tmp_path))
    assert run.config == {"seed": 3, "protocol": "pisces"}
    assert (run.name, run.protocol, run.seed) == ("pisces (seed 3)", "pisces", 3)
    assert run.summary == {**summary, "wall_s": 0.5}  # as saved, not counted anew
    assert [line["kind"] for line in run.events()] == ["aggregated", "evaluated", "stopped"]
    assert run.tally().summary()["max_staleness"] == 2
    assert torch.equal(run.state_dict()["w"], torch.arange(3.0))


def test_what_an_older_summary_does_not_say_is_counted(tmp_path: Path) -> None:
    run = folder(tmp_path)
    (tmp_path / "summary.json").write_text('{"versions": 7}')
    assert run.summary["versions"] == 7
    assert run.summary["final"] == {"accuracy": 0.75, "loss": None, "f1": 0.1}


def test_an_unfinished_run_is_counted_from_its_events(tmp_path: Path) -> None:
    summary = folder(tmp_path).summary
    assert summary["reason"] is None
    assert summary["wall_s"] is None
    assert summary["final"] == {"accuracy": 0.75, "loss": None, "f1": 0.1}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (None, "some-run"),
        ("", "some-run"),
        ('protocol = "pisces"', "pisces"),
        ("[protocol]\nalpha = 1", "some-run"),
        ("seed = 0", "some-run (seed 0)"),
        ('seed = "many"', "some-run"),
    ],
)
def test_a_name_is_found_for_every_run(tmp_path: Path, config: str | None, name: str) -> None:
    assert folder(tmp_path / "some-run", config=config).name == name


def test_events_by_kind(tmp_path: Path) -> None:
    run = folder(tmp_path)
    assert list(run.events()) == LINES
    # The failure's reason is only called so.
    assert list(run.events("evaluated")) == [LINES[1], LINES[3], LINES[4]]
    assert list(run.events("stopped")) == []


@settings(max_examples=60)
@given(cut=st.integers(0, len(TEXT)), garbage=st.sampled_from([b"", b"\x00\x00", b"\xff{", b"[]"]))
def test_a_killed_run_loses_at_most_its_last_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    run = folder(tmp_path_factory.mktemp("run"), TEXT[:cut] + garbage)
    # A line counts when its closing brace is there, with nothing strange behind it.
    ends = np.cumsum([len(encode(line)) for line in LINES])
    whole = sum(cut >= end - (not garbage) for end in ends)
    assert list(run.events()) == LINES[:whole]


HUGE = b'{"kind":"stopped","at":1' + b"0" * 400 + b',"reason":"x"}\n'  # no float holds it


@pytest.mark.parametrize(
    "bad", [b"{\n", b"\n", b"[1]\n", b'{"kind":"joined"}\n', b"\xff\xfe\n", HUGE]
)
def test_a_bad_line_in_the_middle_is_named(tmp_path: Path, bad: bytes) -> None:
    lines = list(map(encode, LINES))
    run = folder(tmp_path, b"".join([*lines[:2], bad, *lines[2:]]))
    with pytest.raises(RunError, match="line 3: not an event"):
        list(run.events())


def test_a_line_cut_in_the_middle_is_seen_even_when_another_kind_is_wanted(tmp_path: Path) -> None:
    lines = list(map(encode, LINES))
    run = folder(tmp_path, lines[0][:20] + b"\n" + lines[1])
    with pytest.raises(RunError, match="line 1: not an event"):
        list(run.events("evaluated"))


def test_a_curve_leaves_out_nothing_but_what_was_not_measured(tmp_path: Path) -> None:
    run = folder(tmp_path)
    times, values = run.curve("loss")
    assert times.tolist() == [1.0, 2.0]
    assert values[0] == 2.0
    assert math.isnan(values[1])
    assert run.curve("f1")[1].tolist() == [0.1]
    assert run.time_to_target(0.6) == 2.0
    assert run.time_to_target(0.5, "loss") is None


def test_a_metric_nobody_measured_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no metric 'acuracy': choose one of accuracy, f1, loss"):
        folder(tmp_path).curve("acuracy")


def test_a_run_without_evaluations_has_an_empty_curve(tmp_path: Path) -> None:
    times, values = folder(tmp_path, b"").curve("anything")
    assert len(times) == len(values) == 0


def test_no_model_yet(tmp_path: Path) -> None:
    run = folder(tmp_path)
    with pytest.raises(RunError, match=r"no model.safetensors"):
        run.state_dict()
    (tmp_path / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(RunError, match=r"cannot read .*model.safetensors"):
        run.state_dict()


def test_damaged_files_are_named_with_a_remedy(tmp_path: Path) -> None:
    run = folder(tmp_path, config="seed = ")
    for _ in range(2):
        with pytest.raises(RunError, match=r"cannot read .*config.toml.*mend or remove"):
            _ = run.config
        (tmp_path / "config.toml").write_text("seed = 3")  # it is read once, whatever came of it


def test_a_config_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    run = folder(tmp_path, config="seed = 3\n" + "# nothing\n" * 1_000_000)
    with pytest.raises(RunError, match=r"config.toml: .*it is larger than 8388608 bytes"):
        _ = run.config
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"cannot read .*summary.json.*remove it"):
        _ = run.summary
    (tmp_path / "events.jsonl").unlink()
    with pytest.raises(RunError, match=r"cannot read .*events.jsonl"):
        list(run.events())


def test_runs_are_found_at_any_depth_in_order(tmp_path: Path) -> None:
    for name in ("b/2", "a", "b/1/deep"):
        folder(tmp_path / name)
    (tmp_path / "empty").mkdir()
    found = [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path)]
    assert found == ["a", "b/1/deep", "b/2"]
    assert [run.path for run in find_runs(str(tmp_path / "a"))] == [tmp_path / "a"]
    assert find_runs(tmp_path / "empty") == []
    with pytest.raises(RunError, match="check the path"):
        find_runs(tmp_path / "nowhere")


def test_a_path_that_is_no_run_says_which_are_nearby(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no events.jsonl; check the path"):
        Run.open(tmp_path)
    folder(tmp_path / "pisces-1")
    with pytest.raises(RunError, match=r"no events.jsonl; nearby are .*pisces-1$"):
        Run.open(tmp_path)
    with pytest.raises(RunError, match=r"not a folder; nearby are .*pisces-1$"):
        Run.open(tmp_path / "pices-1")
    with pytest.raises(RunError, match=r"not a folder; nearby are .*pisces-1$"):
        Run.open(tmp_path / "pisces-1" / "events.jsonl")
    with pytest.raises(RunError, match="not a folder; check the path"):
        Run.open(tmp_path / "no" / "such" / "place")


def test_many_runs_nearby_are_not_all_listed(tmp_path: Path) -> None:
    for number in range(7):
        folder(tmp_path / f"run-{number}")
    with pytest.raises(RunError, match=r"run-4 and 2 more$"):
        Run.open(tmp_path)


def test_lines_of_any_json_writer_are_read(tmp_path: Path) -> None:
    text = "".join(json.dumps(line, separators=(" , ", " : ")) + "\n" for line in LINES)
    assert next(folder(tmp_path, text.encode()).events("evaluated")) == LINES[1]


def test_what_is_no_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/events.jsonl")
    (tmp_path / "folder/events.jsonl").mkdir(parents=True)
    assert find_runs(tmp_path) == []
    with pytest.raises(RunError, match=r"its events.jsonl is no file; check the path"):
        Run.open(tmp_path / "pipe")
    with pytest.raises(RunError, match="not an ordinary file"):  # it became one since
        list(Run(tmp_path / "pipe").events())


@pytest.mark.parametrize("config", ["seed = 0x1" + "0" * 5000, "[a]\nb = [-1" + "0" * 400 + "]"])
def test_numbers_that_nobody_can_use_are_refused(tmp_path: Path, config: str) -> None:
    with pytest.raises(RunError, match=r"config.toml: a number in it is too large"):
        _ = folder(tmp_path, config=config).name


def test_a_long_seed_is_one_and_a_long_setting_is_none(tmp_path: Path) -> None:
    run = folder(tmp_path / "x", config=f"seed = {2**127}\n[clients]\ncount = {2**63}\nb = [1]")
    assert run.name == f"x (seed {2**127})"
    assert run.setting("clients", "count") is None
    assert run.setting("clients", "b") == [1]


def test_a_summary_need_not_say_how_long_the_run_took(tmp_path: Path) -> None:
    folder(tmp_path)
    counted = Run.open(tmp_path).summary
    del counted["wall_s"]
    (tmp_path / "summary.json").write_text(json.dumps(counted))
    assert Run.open(tmp_path).summary["wall_s"] is None
