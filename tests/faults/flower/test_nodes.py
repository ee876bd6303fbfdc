"""Nodes that come late, are killed, are too slow, or send what cannot be used: the run goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_laws import assert_sound
from flower_processes import Federation, Run, flower
from forking import becomes
from telling import TOLD

pytestmark = pytest.mark.long

GOOD, OTHER, THIRD = range(3)
NOTICED_S = (20.0, 90.0)  # Flower misses two heartbeats, 30 s apart, at different moments
AGAIN_S = 5.0  # as systemd would


def finish(run: Run, num_more: int = 2) -> None:
    """So many versions more, then an end from outside."""
    run.becomes("aggregated", len(run.of("aggregated")) + num_more)
    assert run.federation.flwr("stop", run.id, "here").code == 0
    run.is_over()
    assert_sound(run)


def test_a_node_comes_late(tmp_path: Path) -> None:
    with flower(tmp_path) as federation:
        federation.add(GOOD, OTHER)
        run = federation.run()
        run.becomes("aggregated")
        federation.add(THIRD)
        joined = run.becomes("joined", number=THIRD)[0]
        assert run.client(THIRD) == 2
        assert joined["at"] > run.of("aggregated")[0]["at"]
        arrived = run.becomes("arrived", number=THIRD)[0]
        finish(run)
    used = [task for line in run.of("aggregated") for task in line["tasks"]]
    assert arrived["task"] in used


def test_a_node_is_killed_and_comes_back(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Nobody hears of it, but its heartbeat stops; it is the same client when it is back."""
    with flower(tmp_path) as federation:
        federation.add(GOOD, OTHER)
        run = federation.run()
        run.becomes("arrived", number=OTHER)
        federation.does(OTHER, "sleep 8")
        becomes(lambda: federation.diary(OTHER)[-1]["does"] == "sleep")  # it is at a task
        killed_at = time.monotonic()
        federation.nodes[OTHER].process.kill()
        federation.does(OTHER, "train")
        refused = come_back(federation, OTHER)
        back_s = time.monotonic() - killed_at
        assert refused, "Flower let the same key in while the old one was thought alive"
        assert all("Failed to activate SuperNode" in word for word in refused), refused[0]
        (left,) = run.becomes("left", number=OTHER)
        assert left["reason"].endswith("(Flower's error 5)")
        assert NOTICED_S[0] < back_s < NOTICED_S[1]
        num_joins = len([x for x in run.of("joined", number=OTHER) if x["at"] < left["at"]])
        joined = run.becomes("joined", num_joins + 1, number=OTHER)[num_joins]
        assert (joined["client"], joined["num_examples"]) == (run.client(OTHER), 20)  # as it told
        num_arrived = len(run.of("arrived", number=OTHER))
        run.becomes("arrived", num_arrived + 1, number=OTHER)
        meanwhile = [x for x in run.of("aggregated") if left["at"] - 30 < x["at"] < left["at"]]
        assert meanwhile  # nobody waited
        finish(run)
        names = (run.folder / "clients.jsonl").read_text().splitlines()
        assert sum("name" in json.loads(line) for line in names) == 2
    record_property(TOLD, f"let in again after {back_s:.0f} s, refused {len(refused)} times")


def come_back(federation: Federation, number: int) -> list[str]:
    """Start a node until it is let in: what it said whenever it was not."""
    refused: list[str] = []
    until = time.monotonic() + 150
    while time.monotonic() < until:
        process = federation.come(number)
        becomes(lambda it=process: "SuperNode ID" in it.said or it.code is not None)
        if process.code is None:
            return refused
        refused.append(process.said)
        time.sleep(AGAIN_S)
    raise AssertionError(refused[-1])


def test_what_cannot_be_used(tmp_path: Path) -> None:
    with flower(tmp_path) as federation:
        federation.add(GOOD, OTHER, THIRD)
        federation.does(OTHER, "nan")
        federation.does(THIRD, "shape")
        run = federation.run(nodes=3)
        failed = run.becomes("failed", 3, number=THIRD)
        assert all("its reply cannot be used" in line["reason"] for line in failed)
        assert run.of("arrived", number=OTHER) == run.of("arrived", number=THIRD) == []
        run.process.says("failed 3 in a row, the last by: its reply cannot be used")
        federation.does(THIRD, "train")
        run.becomes("arrived", number=THIRD)
        run.becomes("distrusted", number=OTHER)  # it has used up its credits
        reasons = {line["reason"] for line in run.of("failed", number=OTHER)}
        assert reasons == {"update refused: weights that are not finite"}
        finish(run)


def test_the_process_of_a_task_is_killed(tmp_path: Path) -> None:
    """Flower takes a minute to notice; the node is there all the time."""
    with flower(tmp_path) as federation:
        federation.add(GOOD, OTHER)
        federation.does(OTHER, "die")
        run = federation.run(timeout=300.0)
        started = run.becomes("started", number=OTHER)[0]
        failed = run.becomes("failed", number=OTHER)[0]
        assert failed["reason"].endswith("(Flower's error 8)")
        assert 30.0 < failed["at"] - started["at"] < 110.0
        federation.does(OTHER, "train")
        run.becomes("arrived", number=OTHER, within_s=200.0)
        assert run.of("left") == []
        finish(run)


def test_too_late(tmp_path: Path) -> None:
    """Its task is over for all but itself; it is left alone for half a minute, and asked again."""
    with flower(tmp_path) as federation:
        federation.add(GOOD, OTHER)
        federation.does(OTHER, "sleep 40")
        run = federation.run(timeout=20.0)
        (left,) = run.becomes("left", number=OTHER)
        assert "deadline passed" in left["reason"] or "(Flower's error 3)" in left["reason"]
        started = run.of("started", number=OTHER)[0]
        assert 20.0 <= left["at"] - started["at"] < 25.0
        meanwhile = [x for x in run.of("aggregated") if x["at"] < left["at"]]
        assert len(meanwhile) >= 2
        assert run.of("failed", "left", number=GOOD) == []
        federation.does(OTHER, "train")
        num_joins = len(run.of("joined", number=OTHER))
        joined = run.becomes("joined", num_joins + 1, number=OTHER)[-1]
        assert joined["at"] >= left["at"] + 25.0
        run.becomes("arrived", number=OTHER)
        finish(run)
