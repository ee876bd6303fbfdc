"""What runs on the server's side is killed: the same folder goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_laws import assert_moved, assert_sound
from flower_processes import Federation, Run, flower
from forking import becomes
from runs import of_kind

pytestmark = pytest.mark.long

BOTH = {"protocol": "fedbuff", "buffer_size": 2}


def assert_goes_on(federation: Federation, before: Run) -> Run:
    """Another run of Flower's, the same of ours: with every update there was."""
    had = before.lines
    run = federation.run(**BOTH, versions=len(of_kind(had, "aggregated")) + 2)
    run.ended()
    lines = assert_sound(run)
    assert lines[-1]["reason"] == "versions"
    for kind in ("arrived", "aggregated"):
        assert of_kind(lines, kind)[: len(of_kind(had, kind))] == of_kind(had, kind)
    return run


def test_the_serverapp_is_killed(tmp_path: Path) -> None:
    with flower(tmp_path) as federation:
        federation.add(0, 1)
        run = federation.run(**BOTH)
        run.becomes("aggregated", 2)
        os.kill(run.serverapp(), signal.SIGKILL)
        becomes(lambda: not federation.pids("flwr-serverapp"))
        assert_moved(assert_goes_on(federation, run), [0, 1])


def test_the_superlink_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a database it knows its nodes again, and they find it; its runs are lost to it."""
    with flower(tmp_path, "--database", tmp_path / "link.db") as federation:
        federation.add(0, 1)
        run = federation.run(**BOTH)
        run.becomes("aggregated", 2)
        (pid,) = federation.pids("flower-superlink")
        killed_at = time.monotonic()
        federation.link.kill()
        becomes(lambda: not federation.pids("flwr-serverapp"), 120.0, lambda: run.told)
        with capsys.disabled():
            print(f"\nthe ServerApp ended {time.monotonic() - killed_at:.0f} s later")
        federation.superlink("--database", tmp_path / "link.db")
        ids = [node.id for node in federation.nodes.values()]
        run = assert_goes_on(federation, run)
        assert_moved(run, [0, 1])
        assert [node.process.code for node in federation.nodes.values()] == [None, None]
