"""Mixing by hand from the command line: runs, comparisons, studies, and the list of parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisces.cli.compare import all_that_run
from pisces.config import parse
from pisces.errors import ConfigError
from pisces.names import PARTS, PROTOCOLS
from pisces.record.reader import Run
from pisces.settings import defaults_of
from pisces.study import plan
from pisces.study.runs import Wish, planned

Pisces = Callable[..., Any]
MIXED = """
    [select]
    policy = "guided"
    exploration = 0.5
    [aggregate]
    policy = "clip"
    norm = 5.0
    [aggregate.inner]
    policy = "adam"
"""


def test_a_run_is_called_by_what_it_is_mixed_from(pisces: Pisces, small: str) -> None:
    Path(small).write_text(Path(small).read_text() + MIXED)
    ran = pisces(
        "run", small, "--set", "protocol=fedbuff", "--set", "stop.versions=3", "-q", "--json"
    )
    assert ran.code == 0
    summary = json.loads(ran.out)
    assert summary["protocol"] == "fedbuff+guided+clip+adam"
    folder = Path(summary["folder"])
    assert folder.name == "small-fedbuff+guided+clip+adam-seed1"
    assert Run.open(folder).protocol == summary["protocol"]
    told = Run.open(folder).config["aggregate"]
    assert told["inner"] == {
        "policy": "adam",
        "rate": 0.01,
        "beta1": 0.9,
        "beta2": 0.99,
        "tau": 1e-3,
    }
    # What it wrote down makes the same run again.
    again = pisces("run", folder / "config.toml", "--out", "again", "-q")
    assert again.code == 0
    assert Path("again/events.jsonl").read_bytes() == (folder / "events.jsonl").read_bytes()


def test_tables_hold_for_every_protocol_compared(pisces: Pisces, small: str) -> None:
    changes = ("--set", "aggregate.policy=adam", "--set", "stop.versions=2", "--jobs", 1, "-q")
    ran = pisces(
        "compare",
        small,
        "--protocols",
        "fedbuff,fedavg",
        "--seeds",
        1,
        *changes,
        "--target",
        0.9,
        "--out",
        "c",
    )
    assert ran.code == 0, ran.err
    runs = {path.name: Run.open(path) for path in Path("c").iterdir() if path.is_dir()}
    assert set(runs) == {"fedbuff+adam-seed1", "fedavg+adam-seed1"}
    assert {run.config["aggregate"]["policy"] for run in runs.values()} == {"adam"}
    assert "fedavg+adam" in ran.out
    assert "differ" not in ran.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("select.policy=gided", "did you mean 'guided'?"),
        ("select.exploration=0.5", "select: policy: this key is needed"),
        ("select.policy=tifl", "Tiers chooses whole cohorts"),
        ("select=guided", "select: must be a table"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    pisces: Pisces, small: str, changes: str, message: str
) -> None:
    ran = pisces("run", small, "--set", "protocol=fedbuff", "--set", changes, "--out", "r")
    assert (ran.code, ran.out) == (2, "")
    assert message in " ".join(ran.err.split())
    assert not Path("r").exists()


def test_parts_are_listed_and_explained(pisces: Pisces) -> None:
    ran = pisces("protocols", "--parts")
    assert (ran.code, ran.err) == (0, "")
    for table, makers in PARTS.items():
        assert f"[{table}]" in ran.out
        assert all(f" {name} " in ran.out for name in makers)
    one = pisces("protocols", "--parts", "port").out
    assert "[pace]" in one
    assert "[aggregate]" in one
    assert "[select]" not in one
    assert "half_staleness" in one


def test_parts_can_be_read_by_programs(pisces: Pisces) -> None:
    told = json.loads(pisces("protocols", "--parts", "--json").out)
    assert [(each["table"], each["name"]) for each in told] == [
        (table, name) for table, makers in PARTS.items() for name in makers
    ]
    for each in told:
        assert set(each["settings"]) == set(defaults_of(PARTS[each["table"]][each["name"]]))


def test_a_setting_without_a_default_is_told_to_be_needed(pisces: Pisces) -> None:
    (clip,) = json.loads(pisces("protocols", "--parts", "clip", "--json").out)
    assert clip["settings"] == {"norm": {"about": "longest an update may be"}}
    lines = [line.split() for line in pisces("protocols", "--parts", "clip").out.splitlines()]
    assert ["norm", "needed", "longest", "an", "update", "may", "be"] in lines


def test_an_unknown_part_is_refused(pisces: Pisces) -> None:
    ran = pisces("protocols", "--parts", "gided")
    assert ran.code == 2
    assert "did you mean 'guided'?" in ran.err


def test_variants_of_a_study_may_mix(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        """
        title = "Mixed"
        says = "A test."
        reference = "FedBuff"
        [[case]]
        name = "small"
        target = 0.5
        [[variant]]
        name = "FedBuff"
        protocol = "fedbuff"
        [[variant]]
        name = "FedBuff+guided"
        protocol = "fedbuff"
        set = ["select.policy=guided", "select.exploration=0.5"]
        """
    )
    (tmp_path / "small.toml").write_text("[clients]\nconcurrency = 5\n")
    runs = planned(
        plan.load(tmp_path), tmp_path, Wish(lambda config: config, lambda _config: (), seeds=[1])
    )
    assert [run.config.select for run in runs] == [None, {"policy": "guided", "exploration": 0.5}]
    assert runs[0].digest != runs[1].digest


# --- all protocols --------------------------------------------------------------------------------

EVERYWHERE = {name for name in PROTOCOLS if not name.startswith("pisces-without")}


def test_all_are_all_but_variants(capsys: pytest.CaptureFixture[str]) -> None:
    config = parse("", ["clients.deadline_s=600", "latency.kind=compute"])
    assert set(all_that_run(config)) == EVERYWHERE
    assert capsys.readouterr().err == ""


def test_what_the_settings_do_not_suit_is_left_out_aloud(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(all_that_run(parse(""))) == EVERYWHERE - {"port", "fedcompass"}
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "left out: port: protocols.port: a strict pace needs clients.deadline_s"
    )
    assert second.startswith("left out: fedcompass: latency: ")


def test_where_nobody_can_run_the_reason_is_told() -> None:
    with pytest.raises(ConfigError, match="Grouped waits for clients that are made to arrive"):
        all_that_run(parse('[pace]\npolicy = "fedcompass"\n[select]\npolicy = "uniform"'))


def test_comparing_all_that_suit(pisces: Pisces, small: str) -> None:
    changes = ("--set", "aggregate.policy=fedasync", "--set", "stop.versions=1", "--jobs", 1, "-q")
    args = ("--protocols", "all", "--seeds", 1, "--target", 0.9, "--out", "c")
    ran = pisces("compare", small, *args, *changes, "--set", "protocols.fedbuff.buffer_size=2")
    assert ran.code == 0, ran.err
    made = {path.name.partition("+")[0] for path in Path("c").glob("*-seed1")}
    assert {"fedasync", "hysync", "aso-fed"} <= made
    assert not {"fedbuff", "fedavg", "pisces"} & made  # they hand over several at once
    assert "left out: fedbuff: aggregate: Mixing mixes updates in one after the other" in ran.err


def test_a_refusal_names_the_protocol_it_is_about(pisces: Pisces, small: str) -> None:
    args = ("compare", small, "--set", "aggregate.policy=krum", "--protocols")
    ran = pisces(*args, "fedavg,fedasync")  # which takes updates one by one
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "error: fedasync: aggregate: RobustMean holds updates against each other"
    )
    alone = pisces(*args, "fedasync")
    assert alone.err.startswith("error: aggregate: RobustMean holds updates against each other")
    assert not Path("runs").exists()
