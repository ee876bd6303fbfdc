"""What Pisces adds to Flower: time per task, memory over many tasks, fifty nodes at once.

    python benchmarks/flower.py [--quick]

On Flower's own in-memory grid, with nodes that are threads: what a SuperLink, a network and a
process per task cost (seconds) is not in here. Each row is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from flower_measured import KINDS, SMALL
from results import collect, parser, plainly, save, warn_if_busy

from pisces.machine import num_cores

LARGE = (11_000_000, 60)  # parameters, arrays
CAPTIONS = {
    "tasks": "A task handed to the executor until its result is taken out of it, one after the "
    "other, by one node that answers at once; beside it the same messages with Flower alone, "
    "asked for replies all the time. The difference is ours: `wall` is mostly the pause between "
    "two questions (0.05 s, or a tenth of the time nothing has happened for, up to 1 s).",
    "memory": "A whole run (FedBuff, 20 nodes, log and journal): how memory grew over the second "
    "half of its tasks.",
    "nodes": "A whole run with all nodes training at once, 0.5 to 2 s per task: results per second "
    "beside what the nodes could give if nobody ever waited, how long a result waited for us to "
    "ask, and the share of one core, nodes included.",
}
Row = dict[str, Any]


def measured(kind: str, **asked: Any) -> Row:
    command = [sys.executable, __file__, "--kind", kind, "--asked", json.dumps(asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return {"table": kind, **found}


def measure(quick: bool) -> Iterator[Row]:
    for (parameters, arrays), num in ((SMALL, 200), (LARGE, 30)):
        num_tasks = num // 20 if quick else num
        yield measured("tasks", parameters=parameters, arrays=arrays, tasks=num_tasks)
    yield measured("memory", parameters=SMALL[0], arrays=SMALL[1], tasks=100 if quick else 1000)
    yield measured("nodes", nodes=10 if quick else 50, seconds=3.0 if quick else 60.0)


def options() -> argparse.Namespace:
    made = parser(__doc__.splitlines()[0], quick="few of everything")
    made.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    made.add_argument("--asked", type=json.loads, help=argparse.SUPPRESS)
    return made.parse_args()


def main() -> None:
    args = options()
    if args.kind is not None:
        print(json.dumps(KINDS[args.kind](**args.asked)))
        return
    warn_if_busy()
    save(args, f"flower-{num_cores()}cores", collect(measure(args.quick)), captions=CAPTIONS)


if __name__ == "__main__":
    plainly(main)
