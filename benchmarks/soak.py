"""A million updates: does anything grow that should not?

    python benchmarks/soak.py [--updates 1000000] [--protocol pisces] [--folder FOLDER] [--quick]

10 000 clients come and go, and every tenth task fails; training takes no time. The run is written
to a folder, with its log and its checkpoints, as any other.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints import NUM_EACH, Untrained, num_bytes
from results import collect, on_disk, parser, plainly, save, scratch, warn_if_busy
from torch import nn

from pisces import build, simulation
from pisces.data.federated import FederatedData
from pisces.evaluate import Schedule
from pisces.execute.availability import Markov
from pisces.execute.failures import Failures
from pisces.execute.latency import PerClient, zipf
from pisces.machine import num_cores
from pisces.parts import Simulation
from pisces.record.checkpoint import Checkpoints
from pisces.record.lines import Memory
from pisces.record.writer import CHECKPOINTS, EVENTS
from pisces.seeds import generator
from pisces.stop import Stop
from pisces.types import Aggregated, Entry, Failed, Left, Task, Update, Weights

NUM_CLIENTS, CONCURRENCY, NUM_LOOKS = 10_000, 100, 20
SETTLED = 0.2  # of the updates: by then everybody was there, and what is kept of each client is
CAPTIONS = {
    "looks": "What the process holds along the way. rss_mb: resident memory; versions, tasks: "
    "objects that hold weights, and tasks, alive; files: open ones, and those in the run folder "
    "beside the log.",
    "slope": "Bytes of resident memory gained per update, by least squares over all looks but the "
    f"first {SETTLED:.0%}, and what that would come to after a hundred million updates.",
}
Row = dict[str, Any]


class Watch(Memory):
    """Counts what happens, and looks at the process every so many updates."""

    def __init__(self, folder: Path, every: int) -> None:
        super().__init__()
        self.counts = dict.fromkeys((Update, Failed, Left, Aggregated), 0)
        self.looks: list[Row] = []
        self._folder, self._every, self._began = folder, every, time.perf_counter()

    def record(self, entry: Entry) -> None:
        """Count it."""
        if type(entry) in self.counts:
            self.counts[type(entry)] += 1
        if isinstance(entry, Update) and self.counts[Update] % self._every == 0:
            self.looks.append(self._look(entry.arrived_at))
            collect([{"table": "looks", **self.looks[-1]}])

    def _look(self, at: float) -> Row:
        gc.collect()
        kinds = [type(held) for held in gc.get_objects()]
        return {
            "updates": self.counts[Update],
            "failed": self.counts[Failed],
            "left": self.counts[Left],
            "versions_made": self.counts[Aggregated],
            "virtual_days": at / 86400,
            "wall_s": time.perf_counter() - self._began,
            "rss_mb": resident_bytes() / 1e6,
            "versions": kinds.count(Weights),
            "tasks": kinds.count(Task),
            "open_files": len(os.listdir("/proc/self/fd")),
            "files": sum(path.is_file() for path in self._folder.rglob("*")),
            "checkpoints_mb": num_bytes(self._folder / CHECKPOINTS) / 1e6,
            "log_mb": (self._folder / EVENTS).stat().st_size / 1e6,
        }


def resident_bytes() -> int:
    """What the process takes of the machine's memory."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def parts(protocol: str, num_updates: int) -> Simulation:
    """Clients that come, go and fail."""
    rng = torch.Generator().manual_seed(1)
    targets = torch.zeros(NUM_EACH, dtype=torch.int64)
    pairs = [(torch.randn(NUM_EACH, 8, generator=rng), targets) for _ in range(NUM_CLIENTS)]
    return Untrained(
        policies=build.protocol(protocol, CONCURRENCY),
        model=nn.Linear(8, 2),
        data=FederatedData.from_clients(pairs, pairs[0]),
        latency=PerClient(zipf(NUM_CLIENTS, 1.2, 15.0, 180.0, generator(1, "latency"))),
        stop=Stop(updates=num_updates),
        schedule=Schedule(every_versions=100),
        availability=Markov(3600.0, 3600.0, seed=1),
        failures=Failures(crash=0.06, dropout=0.03, vanish=0.01, return_after_s=600.0, seed=1),
        deadline_s=600.0,
        device="cpu",
    )


def slope(looks: Sequence[Row]) -> Row:
    """What memory gains with every update."""
    later = [look for look in looks if look["updates"] > SETTLED * looks[-1]["updates"]]
    updates, memory = ([look[key] for look in later] for key in ("updates", "rss_mb"))
    per_update = float(np.polyfit(updates, memory, 1)[0]) * 1e6
    return {"table": "slope", "bytes_per_update": per_update, "gb_in_100m": per_update / 10}


def soak(args: argparse.Namespace, folder: Path) -> list[Row]:
    """The run; its looks, and the slope of its memory."""
    num = 4_000 if args.quick else args.updates
    watch = Watch(folder, num // NUM_LOOKS)
    often = Checkpoints(every_s=0.5 if args.quick else 60.0)
    run = parts(args.protocol, num)
    simulation.run(run, protocol=args.protocol, out=folder, listener=watch, checkpoints=often)
    rows = [*({"table": "looks", **look} for look in watch.looks), slope(watch.looks)]
    collect(rows[-1:])
    return rows


def options() -> argparse.Namespace:
    its = on_disk(parser(__doc__.splitlines()[0], quick="4 000 updates"))
    its.add_argument("--updates", type=int, default=1_000_000)
    its.add_argument("--protocol", default="pisces")
    return its.parse_args()


def main() -> None:
    args = options()
    warn_if_busy()
    torch.set_num_threads(1)
    with scratch(args) as folder:
        rows = soak(args, folder / "run")
    save(args, f"soak-{args.protocol}-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    plainly(main)
