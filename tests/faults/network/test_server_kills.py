"""A server killed at any moment and taken up again: its clients find it, and nothing is lost."""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from federation_processes import Part, Run, assert_sound
from forking import Process, Processes, becomes, go_home
from runs import of_kind

SEED = int(os.environ.get("PISCES_KILL_SEED", "20261116"))
NUM_CLIENTS = 6


class Hunt:
    """A federation whose server is killed, over and over."""

    def __init__(self, processes: Processes, certs: Path, num_versions: int) -> None:
        self._processes, self._rng = processes, random.Random(SEED)
        self.run = Run(processes.folder, certs, num_versions, concurrency=NUM_CLIENTS)
        self.parts = [
            Part(number, self.run.address, certs, processes.folder) for number in range(NUM_CLIENTS)
        ]

    def kill(self) -> None:
        """Go on, and be killed when nobody, some or all are back."""
        enough = self.num_welcomes + self._rng.randint(0, NUM_CLIENTS)
        server = self.run.start(self._processes)
        becomes(lambda: self.num_welcomes >= enough)
        time.sleep(self._rng.uniform(0.0, 0.5))
        assert server.code is None, f"the run is too short for so many kills: {server.said}"
        server.kill()

    def finish(self, clients: list[Process]) -> str:
        """What came of it: all is well, and something was at stake."""
        assert self.run.start(self._processes).ended() == 0
        go_home(clients)
        lines = assert_sound(self.run, self.parts)
        called_off = {line["task"] for line in of_kind(lines, "failed", "left")}
        assert sum(part.num_held for part in self.parts) <= len(called_off)
        num_again = sum(len(w["wanted"]) for p in self.parts for w in p.noted("Welcome"))
        num_settled = sum(len(w["settled"]) for p in self.parts for w in p.noted("Welcome"))
        assert num_again + num_settled > 0
        return (
            f"{len(of_kind(lines, 'started'))} tasks, {len(of_kind(lines, 'arrived'))} updates "
            f"used or dropped once, {num_again} sent again, {num_settled} found to be safe, "
            f"{self.num_welcomes} welcomes"
        )

    @property
    def num_welcomes(self) -> int:
        return sum(len(part.noted("Welcome")) for part in self.parts)


def hunt(processes: Processes, certs: Path, num_kills: int, num_versions: int) -> str:
    it = Hunt(processes, certs, num_versions)
    clients = [part.start(processes) for part in it.parts]
    for _ in range(num_kills):
        it.kill()
    return it.finish(clients)


def test_a_killed_server_takes_its_clients_back(processes: Processes, certs: Path) -> None:
    hunt(processes, certs, 3, 60)


@pytest.mark.long
def test_a_server_killed_many_times(
    processes: Processes, certs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    came = hunt(processes, certs, 50, 1500)
    with capsys.disabled():
        print(f"\n{datetime.now(UTC):%Y-%m-%d}, seed {SEED}: 50 kills, {came}")  # noqa: T201
