"""What training over a Ray cluster costs: per job, against the pool, in bytes, and to start.

    python benchmarks/cluster.py [--quick]

Every cluster is of this machine alone, in a network of its own with nothing but loopback, in which
everything that was started ends with it. Its nodes share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from results import collect, parser, plainly, save, warn_if_busy

from pisces.errors import RunError
from pisces.machine import num_cores

MEASURED = Path(__file__).parent / "cluster_measured.py"
SEALED = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
CAPTIONS = {
    "jobs": "A task that asks for no step: its weights there and back. `alone`: one task per call, "
    "each from a version of its own; `together`: one of 20 tasks of a call, all from one version. "
    "Where there are two nodes, the run is on one of them and its worker on the other.",
    "trained": "Clients of 500 samples, one epoch, LeNet-5: time per task by one worker of a "
    "cluster and by the sequential trainer in the run's own process, in turns; median of the "
    "differences.",
    "scaling": "Samples per second, LeNet-5, the tasks of `engine.py` (clients of 500 samples, 5 "
    "epochs), in turns; `of_pool`: median of the rounds' ratios to the pool with as many workers; "
    "`core_ms_per_task`: what all processes used of the cores, idle ones of Ray's included, which "
    "depends less on what else the machine does.",
    "dispatch": "Workers that sleep instead of training, so that there can be more of them than "
    "cores: what they did beside what they could do if nobody ever waited.",
    "bytes": "What came over the network between two nodes for each version of 11 M parameters, "
    "with all workers on the other node. `weights_moved`: what is left of it beside a result per "
    "task, in models.",
    "start": "With a cluster that is there (`auto`), or one of its own (`local`): until connected, "
    "and from there until the first result.",
}
Row = dict[str, Any]


# --- a network of its own -------------------------------------------------------------------------


def sealed() -> list[str] | None:
    """How to run something cut off from all networks; none where that is not possible."""
    for prefix in (SEALED, [*SEALED, "--user", "--map-root-user"]):
        whole = [*prefix, *WITH_LOOPBACK, "true"]
        if shutil.which("unshare") and not subprocess.run(whole, capture_output=True).returncode:
            return [*prefix, *WITH_LOOPBACK]
    return None


def measured(kind: str, nodes: list[int], **asked: Any) -> Iterator[Row]:
    """On nodes with so many CPUs each; the run is on the first."""
    prefix = sealed()
    if prefix is None:
        raise RunError(
            "Ray listens on all interfaces, and no network of its own can be made here: `unshare` "
            "and `ip` are needed, and the right to use them"
        )
    command = [sys.executable, str(MEASURED), kind, json.dumps({"nodes": nodes, **asked})]
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # sockets want short paths
        at = ["env", *(f"{key}={value}" for key, value in surroundings(folder).items())]
        done = subprocess.run([*prefix, *at, *command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RunError(f"{kind} failed; see above")
    for row in json.loads(done.stdout.splitlines()[-1]):
        yield {"table": kind, **row}


def surroundings(folder: str) -> dict[str, str]:
    """As a guide to clusters has it: with a token, and without telling anybody."""
    return {
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_worker_niceness": "0",  # by default 15: all else on a busy machine would come first
        "OMP_NUM_THREADS": "1",
    }


# --- what is measured -----------------------------------------------------------------------------


def measure(quick: bool) -> Iterator[Row]:
    for nodes in ([1], [0, 1]):
        for model, num in (("lenet5", 200), ("resnet18", 20)):
            yield from measured("jobs", nodes, model=model, num=num // 10 if quick else num)
    yield from measured("trained", [1], num=3 if quick else 20, rounds=1 if quick else 15)
    workers = [1, 2] if quick else [1, 2, 4, 8, 16]
    yield from measured("dispatch", [max(workers)], workers=workers, seconds=1 if quick else 10)
    versions = 2 if quick else 10
    yield from measured("bytes", [0, 2], cases=[[1, 1], [2, 2], [2, 8]], versions=versions)
    for address in ("auto", "local"):
        nodes = [1] if address == "auto" else []
        yield from measured("start", nodes, address=address, times=1 if quick else 5)
    yield from measured("scaling", [2], num=2 if quick else 12, rounds=1 if quick else 3)


def main() -> None:
    args: argparse.Namespace = parser(
        __doc__.splitlines()[0], quick="few of everything"
    ).parse_args()
    if find_spec("ray") is None:
        raise RunError("this measures Ray, which is not here: pip install 'pisces-fl[ray]'")
    warn_if_busy()
    notes = f"Ray {version('ray')}, with a token; one thread per process, all of one niceness."
    rows = collect(measure(args.quick))
    save(args, f"cluster-{num_cores()}cores", rows, notes, CAPTIONS)


if __name__ == "__main__":
    plainly(main)
