"""What runs on the server's side is killed: the same folder goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_laws import assert_moved, assert_sound, lasting
from flower_processes import Federation, Run, flower
from forking import becomes
from runs import of_kind

pytestmark = pytest.mark.long

BOTH = {"protocol": "fedbuff", "buffer_size": 2}


def assert_goes_on(federation: Federation, before: Run) -> Run:
    """Another run of Flower's, the same of ours: with every update there was."""
    had = lasting(before.lines)
    run = federation.run(**BOTH, versions=len(of_kind(had, "aggregated")) + 2)
    run.ended()
    lines = assert_sound(run)
    assert lines[-1]["reason"] == "versions"
    assert lasting(lines)[: len(had)] == had
    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_serverapp_is_killed(tmp_path: Path, number: int) -> None:
    with flower(tmp_path) as federation:
        federation.add(0, 1)
        run = federation.run(**BOTH)
        run.becomes("aggregated", 2)
        os.kill(run.serverapp(), number)
        becomes(lambda: not federation.pids("flwr-serverapp"))
        assert_moved(assert_goes_on(federation, run), [0, 1])


def killed(federation: Federation) -> Run:
    """A run whose SuperLink was: the ServerApp notices, and saves what there is."""
    run = federation.run(**BOTH)
    run.becomes("aggregated", 2)
    federation.link.kill()
    becomes(lambda: not federation.pids("flwr-serverapp"), 60.0, lambda: run.told)
    assert run.process.ended() != 0
    assert run.lines[-1]["reason"] == "interrupted"
    return run


def test_the_superlink_is_killed(tmp_path: Path) -> None:
    """With a database it knows its nodes again, and they find it; its runs are lost to it."""
    database = ("--database", tmp_path / "link.db")
    with flower(tmp_path, *database) as federation:
        federation.add(0, 1)
        run = killed(federation)
        federation.superlink(*database)
        assert_moved(assert_goes_on(federation, run), [0, 1])
        assert [node.process.code for node in federation.nodes.values()] == [None, None]
        assert {line["client"] for line in run.lines if "client" in line} == {0, 1}


def test_the_superlink_is_killed_and_forgets(tmp_path: Path) -> None:
    """Without one its nodes end, must be registered again, and are new to the run."""
    with flower(tmp_path) as federation:
        federation.add(0, 1)
        run = killed(federation)
        federation.superlink()
        for node in federation.nodes.values():
            assert node.process.ended() == 0  # as if all were well: let it be started always
            assert "SuperNode terminated gracefully" in node.process.said
        assert federation.come(0).ended() == 1
        federation.add(0, 1)
        again = assert_goes_on(federation, run)
        assert {again.client(0), again.client(1)} == {2, 3}
        left = again.of("left")
        assert {line["client"] for line in left} == {0, 1}
        assert {line["reason"] for line in left} == {"Flower takes no message for its node"}
