"""A client killed between finishing a task and hearing that its result is safe."""

from __future__ import annotations

from dataclasses import replace
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
    run = Run(processes.folder, certs, 6, buffer_size=1, concurrency=1, terms={"beat_s": 30.0})
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
    again = replace(part, address=run.address).start(processes)
    assert (server.ended(), again.ended()) == (0, 0)
    lines = assert_sound(run, [part])
    assert fates(lines)[task] == ["aggregated"]
    first, second = part.noted("Welcome")[:2]
    assert (first["wanted"], second["wanted"]) == ([], [task])
    assert [note["task"] for note in part.noted("trained")].count(task) == 1
    assert [note["task"] for note in part.noted("Acknowledged")].count(task) == 1
    assert not [*part.keep.glob(f"*-{task}.held")]
