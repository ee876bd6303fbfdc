"""A server in real time killed at any moment: its clients come back, and no update is lost."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import zlib
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from forking import forking
from journals import fates, in_time
from runs import assert_lawful, of_kind
from safetensors.torch import load_file
from serving import CONCURRENCY, NUM_CLIENTS, Member, recomputed, serve

from pisces.record.lines import Line

SEED = int(os.environ.get("PISCES_KILL_SEED", "20261116"))
PATIENCE_S = 300.0  # a machine may be busy

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


class Hunt:
    """Serves a federation in processes that are killed."""

    def __init__(self, folder: Path, num_versions: int) -> None:
        self.folder, self.num_kills = folder, 0
        self._context = forking()
        self._rng = random.Random(SEED)
        self._args = (folder, str(folder / "socket"), num_versions)
        self.members = [
            Member(number, folder, str(folder / "socket"), SEED) for number in range(NUM_CLIENTS)
        ]

    def run(self, num_kills: int) -> None:
        for member in self.members:
            member.start()
        while self.num_kills < num_kills:
            self._kill(self._begun())
        process = self._started()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        time.sleep(0.5)  # the last words
        for member in self.members:
            member.leaves.set()
            member.join()

    def _started(self) -> BaseProcess:
        process = self._context.Process(target=serve, args=self._args)
        process.start()
        return process

    def _begun(self) -> BaseProcess:
        """One that serves: before that there is nothing to be lost."""
        (self.folder / "socket").unlink(missing_ok=True)
        process, began = self._started(), time.monotonic()
        while not (self.folder / "socket").exists() and process.is_alive():
            assert time.monotonic() < began + PATIENCE_S
            time.sleep(0.005)
        return process

    def _kill(self, process: BaseProcess) -> None:
        process.join(self._rng.uniform(0.0, 0.6))
        process.kill()
        process.join()
        assert process.exitcode != 0, "the run is too short for so many kills"
        self.num_kills += 1

    @property
    def num_sent_again(self) -> int:
        """Results that clients held when they found the server anew."""
        return sum(member.num_sent_again for member in self.members)

    @property
    def lines(self) -> list[Line]:
        text = (self.folder / "run" / "events.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def hunt(folder: Path, num_kills: int, num_versions: int) -> Hunt:
    """Kill so often; then hold the log, the clients and the model against each other."""
    it = Hunt(folder, num_versions)
    it.run(num_kills)
    lines = it.lines
    assert_lawful(in_time(lines), CONCURRENCY)
    became = fates(lines)
    assert all(len(fate) == 1 for fate in became.values())  # none twice
    called_off = {line["task"] for line in of_kind(lines, "failed", "left")}
    assert {line["reason"] for line in of_kind(lines, "failed", "left")} <= {"the run stopped"}
    weights, updates = recomputed(lines)
    for member in it.members:
        assert not member.lost
        assert set(member.safe) <= became.keys() | called_off  # none lost that was called safe
        assert set(member.held) <= called_off  # nor any other
        for number, checksums in member.done.items():
            assert {*checksums} == {zlib.crc32(updates[number].numpy().tobytes())}
    assert became.keys() <= {number for member in it.members for number in member.safe}
    saved = load_file(folder / "run" / "model.safetensors")
    assert weights.equal(torch.cat([saved["w"], saved["b"]]))
    assert lines[-1]["reason"] == "versions"
    assert it.num_sent_again > 0  # or nothing was at stake
    return it


def test_a_killed_server_takes_its_clients_back(tmp_path: Path) -> None:
    hunt(tmp_path, 4, 60)


@pytest.mark.long
def test_a_server_killed_many_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    it = hunt(tmp_path, 50, 900)
    num = len(of_kind(it.lines, "arrived"))
    num_tasks = len(of_kind(it.lines, "started"))
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{datetime.now(UTC):%Y-%m-%d}, seed {SEED}: {it.num_kills} kills, {num_tasks} "
            f"tasks, {num} updates used or dropped once, {it.num_sent_again} sent again"
        )
