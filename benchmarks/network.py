"""What the network costs: per task, per second, when idle, and in memory. Loopback, mutual TLS.

    python benchmarks/network.py [--folder FOLDER] [--quick]

Server and clients are processes of their own that share the machine's cores, so what clients cost
is part of every figure. Clients answer at once with what they were sent.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from results import collect, on_disk, parser, plainly, save, scratch, warn_if_busy

from pisces.execute.network.trust.certs import create
from pisces.machine import num_cores

HERE = Path(__file__).parent
SCRIPT = [sys.executable, str(HERE / "network_clients.py")]
SMALL, LARGE = 60_000, 11_000_000
NUM_PROCESSES = 2  # that clients are in
CAPTIONS = {
    "tasks": "From handing a task to the executor to taking its result out of it: weights there "
    "and back, one client, one task after the other, each from a version of its own.",
    "updates": "A whole server: coordinator, FedBuff with 100 of 500 clients at once, a version "
    "every 10 updates, its log and its journal (flushed: safe against power failures; written: "
    "against kills). The last column: how memory grew over the second half.",
    "idle": "Clients that are connected and are given nothing: share of one core of the server, "
    "memory of it for each.",
}
Row = dict[str, Any]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def certificates(folder: Path, num: int) -> Path:
    authority = create(folder / "certs", "benchmark", 365)
    authority.server(["localhost", "127.0.0.1"], 365)
    authority.clients([f"c{number}" for number in range(num)], 365)
    return folder / "certs"


def measured(kind: str, certs: Path, clients: int, **asked: Any) -> Row:
    """What a server of this kind found, with so many clients."""
    facts = {"certs": str(certs), "port": free_port(), "clients": clients, **asked}
    server = subprocess.Popen(
        [sys.executable, str(HERE / "network_server.py"), kind, json.dumps(facts)],
        stdout=subprocess.PIPE,
        text=True,
    )
    processes: list[subprocess.Popen[Any]] = [server]
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        processes += start_clients(f"127.0.0.1:{facts['port']}", certs, clients)
        found: Row = json.loads(server.stdout.readline())
        for process in processes:
            process.wait(60)
        return found
    finally:
        for process in processes:
            process.kill()  # those that are left


def start_clients(address: str, certs: Path, clients: int) -> list[subprocess.Popen[bytes]]:
    num = min(NUM_PROCESSES, clients)
    starts = [clients * part // num for part in range(num + 1)]
    return [
        subprocess.Popen(
            [*SCRIPT, address, str(certs), str(first), str(last - first)],
        )
        for first, last in pairwise(starts)
    ]


def measure(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    quick = args.quick
    num_idle = 200 if quick else 2000
    certs = certificates(folder, num_idle)
    for size, num in ((SMALL, 100 if quick else 2000), (LARGE, 5 if quick else 40)):
        found = measured("tasks", certs, 1, parameters=size, tasks=num, warm_up=num // 10)
        yield {"table": "tasks", "parameters": size, "tasks": num, **found}
    yield from updates(certs, folder, quick)
    found = measured("idle", certs, num_idle, parameters=SMALL, seconds=5.0 if quick else 120.0)
    yield {"table": "idle", "clients": num_idle, **found}


def updates(certs: Path, folder: Path, quick: bool) -> Iterator[Row]:
    """By how the journal is kept; the longest of them with the journal that people have."""
    clients, num = (50, 500) if quick else (500, 20_000)
    for journal, out in (("none", None), ("written", "written"), ("flushed", "flushed")):
        num_updates = num if quick or journal != "flushed" else 5 * num
        found = measured(
            "run",
            certs,
            clients,
            out=out and str(folder / out),
            sync=journal == "flushed",
            parameters=SMALL,
            concurrency=min(100, clients),
            updates=num_updates,
        )
        row = {"table": "updates", "clients": clients, "parameters": SMALL, "journal": journal}
        yield {**row, "updates": num_updates, **found}


def options() -> argparse.Namespace:
    return on_disk(parser(__doc__.splitlines()[0], quick="few of everything")).parse_args()


def main() -> None:
    args = options()
    warn_if_busy()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, most), most))
    with scratch(args) as folder:
        rows = collect(measure(args, folder))
    save(args, f"network-{num_cores()}cores", rows, captions=CAPTIONS)


if __name__ == "__main__":
    plainly(main)
