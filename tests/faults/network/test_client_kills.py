"""A client killed between finishing a task and hearing that its result is safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from federation_processes import Part, Run, assert_sound
from forking import Processes, becomes
from journals import fates
from proxy import Proxy, Way


@pytest.mark.parametrize("way", ["swallow", "cut"])
def test_what_is_on_its_disk_is_sent_when_it_is_back(
    processes: Processes, certs: Path, way: Way
) -> None:
    run = Run(processes.folder, certs, 6, buffer_size=2, concurrency=2, terms={"beat_s": 30.0})
    server = run.start(processes)
    with Proxy(run.address) as proxy:
        part = Part(0, proxy.address, certs, processes.folder, train_s=(0.3, 0.3))
        process = part.start(processes)
        becomes(lambda: bool(part.noted("begun")))
        proxy.refuses = True  # nor does it come back by itself
        assert proxy.break_all(way) == 1
        becomes(lambda: part.num_held == 1)
        process.kill()
    assert not part.noted("Acknowledged")
    (task,) = [note["task"] for note in part.noted("trained")]
    parts = [
        Part(number, run.address, certs, processes.folder, train_s=(0.01, 0.02))
        for number in range(3)
    ]
    back = [part.start(processes) for part in parts]
    assert [process.ended() for process in (server, *back)] == [0] * 4
    lines = assert_sound(run, parts)
    assert fates(lines)[task] == ["aggregated"]
    first, second = part.noted("Welcome")[:2]
    assert (first["wanted"], second["wanted"]) == ([], [task])
    assert [note["task"] for note in part.noted("trained")].count(task) == 1
    assert [note["task"] for note in part.noted("Acknowledged")].count(task) == 1
    assert not [*part.keep.glob(f"*-{task}.held")]
