"""`pisces serve` and `pisces join` as processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forking import Process, Processes, becomes

CONFIG = """
protocol = "fedbuff"
[clients]
count = 8
concurrency = 2
[data]
size = 32
[model]
hidden = [4]
[train]
device = "cpu"
[network]
at_least = 2
linger_s = 2.0
beat_s = 1.0
connects_per_minute = 6000.0
[evaluate]
every_s = 1000.0
[stop]
versions = 100_000
[protocols.fedbuff]
buffer_size = 2
"""
CODE = """
import time
from pisces import client

def train(weights, work):
    time.sleep(0.05)
    return client.Update({name: array + 0.001 for name, array in weights.items()}, loss=1.0)

def slow(weights, work):
    print("training", flush=True)
    time.sleep(1.0)
    return client.Update({name: array + 0.001 for name, array in weights.items()}, loss=1.0)
"""


@dataclass
class Scene:
    """`pisces serve` and `pisces join` in a folder that has a config and code."""

    processes: Processes
    certs: Path
    folder: Path

    def serve(self, *args: object, listen: str = "127.0.0.1:0") -> Process:
        """A server, which may not come to listen."""
        args = args or ("fl.toml", "--out", "run")
        return self.processes.pisces("serve", *args, "--listen", listen, "--certs", self.certs)

    def listening(self, *args: object, listen: str = "127.0.0.1:0") -> tuple[Process, str]:
        """A server, and its address."""
        process = self.serve(*args, listen=listen)
        said = process.says("listening on ").partition("listening on ")[2]
        return process, said.split()[0]

    def join(self, address: str, *args: object, train: str = "train") -> Process:
        """A client with code of its own."""
        code = ("--train", f"mycode:{train}", "--examples", 10)
        return self.processes.pisces("join", address, *code, *args)

    def named(self, address: str, name: str, train: str = "train") -> Process:
        """One with a good certificate."""
        identity = ("--identity", self.certs / "clients" / f"{name}.pem")
        return self.join(address, *identity, "--keep", self.folder / name, train=train)

    @property
    def num_arrived(self) -> int:
        path = self.folder / "run" / "events.jsonl"
        return path.read_bytes().count(b'"arrived"') if path.exists() else 0

    def goes_on(self) -> None:
        """Updates come in."""
        num = self.num_arrived
        becomes(lambda: self.num_arrived > num + 3)
