"""Runs killed at any moment, taken up, and held to the run that nothing happened to."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from killing import Killer, assert_same

from pisces.names import PROTOCOLS

SEED = int(os.environ.get("PISCES_KILL_SEED", "20261116"))
FEW = {"pisces": 2, "fedbuff": 2, "oort": 1, "port": 1, "ca2fl": 1, "fedcompass": 1}  # kills each
MANY, LEAST = 64, 50  # runs, and kills
BY_STEPS = "latency={kind = 'compute', seconds_per_sample = 0.05}"
# Every protocol, and ticks, a pool of processes, clients trained all at once.
WORLDS: dict[str, list[str]] = {
    **{name: [f"protocol={name}"] for name in PROTOCOLS},
    "fedcompass": ["protocol=fedcompass", BY_STEPS],
    "ticks": ["tick_s=5"],
    "pool": ["train.backend=pool", "train.workers=2"],
    "batched": ["train.backend=batched", "stop.time_s=30"],
}
ON_GPU = ["train.device=cuda", "train.backend=batched"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


def kill(killer: Killer, name: str, number: int, times: int, also: Sequence[str] = ()) -> None:
    changes = [*WORLDS[name], *also, "clients.deadline_s=60"]
    whole = killer.whole(name, changes)
    assert_same(whole, killer.killed(name, number, changes, times))


def test_killed_runs_come_out_as_if_nothing_had_happened(tmp_path: Path) -> None:
    killer = Killer(tmp_path, SEED)
    for number, (name, times) in enumerate(FEW.items()):
        kill(killer, name, number, times)
    assert killer.num_kills == 8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_killed_on_a_gpu(tmp_path: Path) -> None:
    killer = Killer(tmp_path, SEED)
    for number, name in enumerate(("pisces", "fedbuff", "oort", "ca2fl")):
        kill(killer, name, number, times=2, also=ON_GPU)
    assert killer.num_kills == 8


@pytest.mark.long
def test_many_killed_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killer = Killer(tmp_path, SEED)
    names = list(WORLDS)
    for number in range(MANY):
        kill(killer, names[number % len(names)], number, times=1 + number % 2)
    num = killer.num_kills
    assert num >= LEAST
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{datetime.now(UTC):%Y-%m-%d}, seed {SEED}: {num} kills, {killer.moments}"
        )
