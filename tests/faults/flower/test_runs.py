"""Runs over a SuperLink and SuperNodes, with TLS and node keys: to the end, whatever happens."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import flower_processes
from flower_laws import assert_moved, assert_sound, lasting
from flower_processes import Federation, Run, flower
from forking import becomes
from runs import of_kind

import pisces

ALONE = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import flower_processes, os
Path(sys.argv[2]).mkdir()
federation = flower_processes.Federation(Path(sys.argv[2]))
federation._mark = os.environ[flower_processes.MARK]
federation.superlink()
time.sleep(120)
"""
FAST, GOES, SLOW, RAISES = range(4)
SLEEP_S = 6.0
BOTH = {"protocol": "fedbuff", "buffer_size": 2}  # a version of both nodes' updates


def test_to_the_target(tmp_path: Path) -> None:
    """With a straggler, a node whose app raises, and one that is told to end."""
    with flower(tmp_path) as federation:
        federation.add(FAST, GOES, SLOW, RAISES)
        federation.does(SLOW, f"sleep {SLEEP_S}")
        federation.does(RAISES, "raise")
        run = federation.run(target=0.1, nodes=4)
        run.becomes("arrived", number=GOES)
        run.becomes("started", 2, number=GOES)
        federation.nodes[GOES].process.signal(signal.SIGTERM)
        assert_goes_at_once(run)
        assert federation.nodes[GOES].process.ended() == 0
        assert_comes_back(run)
        assert_raises(run)
        run.becomes("arrived", number=SLOW)
        federation.does(FAST, "jump")
        lines = run.ended()
        assert lines[-1] == {**lines[-1], "kind": "stopped", "reason": "target"}, run.told
        assert run.process.code == 0
        assert len(federation.pids()) >= 2 + 2 * 4  # each has a child that starts its apps
    assert federation.pids() == []
    assert not federation.is_up(federation.port)
    assert_sound(run)
    assert_nobody_waited(run)
    assert pisces.load(run.folder).summary["reason"] == "target"


def assert_goes_at_once(run: Run) -> None:
    """Flower takes 50 s for one that is killed."""
    num_versions = len(run.of("aggregated"))
    (left,) = run.becomes("left", number=GOES, within_s=30.0)
    assert left["reason"].endswith("(Flower's error 5)")
    run.becomes("aggregated", num_versions + 2)


def assert_comes_back(run: Run) -> None:
    """By its key, at once, as who it was."""
    num_joins, client = len(run.of("joined", number=GOES)), run.client(GOES)
    run.federation.come(GOES).says("SuperNode ID")
    joined = run.becomes("joined", num_joins + 1, number=GOES)[-1]
    assert (joined["client"], joined["num_examples"]) == (client, 20)  # what it told before


def assert_raises(run: Run) -> None:
    failed = run.becomes("failed", 3, number=RAISES)
    assert all("(Flower's error 2)" in line["reason"] for line in failed)
    assert run.of("arrived", number=RAISES) == []
    run.process.says(f"WARNING pisces: client {run.client(RAISES)} (node ")
    run.process.says("failed 3 in a row, the last by: ")


def assert_nobody_waited(run: Run) -> None:
    """Versions were made while the straggler was at it."""
    begun, done = run.of("started", "arrived", number=SLOW)[:2]
    assert (begun["kind"], done["kind"]) == ("started", "arrived")
    assert done["latency_s"] >= SLEEP_S
    assert [x for x in run.of("aggregated") if begun["at"] < x["at"] < done["at"]]


def test_nothing_outlives_a_test_that_is_killed(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    told = [sys.executable, "-c", ALONE, Path(flower_processes.__file__).parent, tmp_path / "alone"]
    with subprocess.Popen(told, env=federation.env()) as alone:
        try:
            becomes(lambda: bool(federation.pids("flower-superexec")))
            assert federation.pids("flower-superlink")
        finally:
            alone.kill()
    becomes(lambda: federation.pids() == [], 30.0, lambda: str(federation.pids()))


@pytest.mark.long
def test_stopped_and_started_again(tmp_path: Path) -> None:
    """By `flwr stop`: the same folder goes on, with every update it had."""
    with flower(tmp_path) as federation:
        federation.add(0, 1)
        run = federation.run(**BOTH)
        run.becomes("aggregated")
        stopped = federation.flwr("stop", run.id, "here")
        assert stopped.code == 0, stopped.said
        run.is_over()
        had = lasting(run.lines)
        run = federation.run(**BOTH, versions=len(of_kind(had, "aggregated")) + 1)
        lines = run.ended()
    assert lines[-1]["reason"] == "versions", run.told
    assert lasting(lines)[: len(had)] == had
    assert_sound(run)
    assert_moved(run, [0, 1])
    begun = {line["task"] for line in of_kind(had, "started")}
    ended = {line.get("task") for line in of_kind(lines, "arrived", "failed", "left")}
    assert begun <= ended  # what nodes were at was sent once more
