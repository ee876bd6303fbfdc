"""A federation of Flower's own processes: a SuperLink, SuperNodes and the apps they start.

All on this machine, over TLS, nodes by their keys. Each process inherits a word in its environment
by which it is found again, whoever started it; at the end there is none left.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from federation_processes import free_port
from flower_commands import Process, has_words, marked, write_key
from flower_tiny import APP
from forking import PATIENCE_S, becomes

from pisces.execute.network.trust.certs import create
from pisces.record.lines import Line

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
HOST = "127.0.0.1"
MARK = "PISCES_TEST_FEDERATION"
LINK = "here"  # what the connection to the SuperLink is called
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "UV_OFFLINE": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # a second, otherwise: tests have less of them
    "OMP_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "COLUMNS": "200",
}


@dataclass
class Node:
    """A SuperNode: its number, its key, and the process if there is one."""

    number: int
    id: int
    key: Path
    process: Process

    @property
    def name(self) -> str:
        """What the run calls it."""
        return str(self.id)


class Federation:
    """A SuperLink, and nodes to be added; `folder` has all they write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.nodes: dict[int, Node] = {}
        self._mark = secrets.token_hex(8)
        self._num_said = 0
        self._deeds = folder / "deeds"
        self._deeds.mkdir()
        self._app = write_app(folder / "app")
        authority = create(folder / "certs", "Test authority", 9)
        authority.server([HOST, "localhost"], 9)
        self.ca, self.pem = folder / "certs" / "ca.pem", folder / "certs" / "server.pem"
        self.connect(LINK, self.port)

    # --- processes --------------------------------------------------------------------------------

    def env(self) -> dict[str, str]:
        """What every process is told; no proxy, however this one is set."""
        ours = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
        path = [str(BIN), ours.get("PATH", "")]
        return {
            **ours,
            **QUIET,
            MARK: self._mark,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(ROOT / "src"),
            "FLWR_HOME": str(self.folder / "home"),
        }

    def start(self, *told: object) -> Process:
        """A command of this federation."""
        self._num_said += 1
        said = self.folder / f"{self._num_said}-{Path(str(told[0])).name}.said"
        return Process(said, [*told], self.env())

    def pids(self, *words: str) -> list[int]:
        """Of all its processes, or those with these words in their command."""
        return [pid for pid in marked(f"{MARK}={self._mark}") if has_words(pid, words)]

    def end(self) -> None:
        """Kill all there is, and see that nothing is left."""

        def is_over() -> bool:
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for node in self.nodes.values():
                node.process.code  # noqa: B018 (lets it go)
            return not self.pids()

        becomes(is_over, 30.0, lambda: f"left behind: {self.pids()}")

    # --- the SuperLink ----------------------------------------------------------------------------

    def superlink(self, *options: object) -> Process:
        """Start it, or start it again; returns when it is there."""
        told = ["--ssl-ca-certfile", self.ca, "--ssl-certfile", self.pem, "--ssl-keyfile", self.pem]
        process = self.start(
            *("flower-superlink", "--host", HOST, "--port", self.port, *told),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *options,
        )
        becomes(lambda: self.is_up(self.port) or process.code is not None)
        assert process.code is None, process.said
        self.link = process
        return process

    def is_up(self, port: int) -> bool:
        """Does the SuperLink answer there?"""
        with suppress(OSError):
            return self.status("/health", port, method="GET") == 200
        return False

    def status(self, path: str, port: int, *, method: str = "POST") -> int:
        """What a request as Flower makes them, with nothing in it, is answered with."""
        trusting = HTTPSHandler(context=ssl.create_default_context(cafile=str(self.ca)))
        kind = {"content-type": "application/protobuf", "accept": "application/protobuf"}
        request = Request(f"https://{HOST}:{port}{path}", b"", kind, method=method)
        try:
            with build_opener(ProxyHandler({}), trusting).open(request, timeout=10) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def connect(self, name: str, port: int) -> None:
        """Tell `flwr` of a SuperLink by that name."""
        config = self.folder / "home" / "config.toml"
        config.parent.mkdir(exist_ok=True)
        with config.open("a") as file:
            file.write(
                f'[superlink.{name}]\naddress = "{HOST}:{port}"\n'
                f'root-certificates = "{self.ca}"\n\n'
            )

    def flwr(self, *told: object) -> Process:
        """A command of Flower's own, to its end."""
        process = self.start("flwr", *told)
        process.ended()
        return process

    # --- nodes ------------------------------------------------------------------------------------

    def register(self, *numbers: int) -> None:
        """Let the SuperLink know nodes with these numbers, by keys that are made at first."""
        keys = {number: self.folder / f"node-{number}" for number in numbers}
        for key in keys.values():
            if not key.exists():
                write_key(key)
        register = ("flwr", "supernode", "register")
        told = [self.start(*register, f"{keys[number]}.pub", LINK) for number in numbers]
        for number, process in zip(numbers, told, strict=True):
            assert process.ended() == 0, process.said
            self.nodes[number] = Node(number, _id_in(process.said), keys[number], process)

    def add(self, *numbers: int) -> None:
        """Nodes with these numbers, registered and started; returns when they are there."""
        self.register(*numbers)
        started = [self.come(number) for number in numbers]
        for process in started:
            process.says("SuperNode ID")

    def come(self, number: int, *, port: int | None = None) -> Process:
        """Start a node's process, or start it again."""
        node = self.nodes[number]
        node.process = self.start(
            *("flower-supernode", "--superlink", f"{HOST}:{port or self.port}"),
            *("--root-certificates", self.ca, "--auth-supernode-private-key", node.key),
            *("--host", HOST, "--port", free_port(), "--node-config", f"partition-id={number}"),
        )
        return node.process

    def does(self, number: int, deed: str) -> None:
        """What a node's ClientApp does from its next task on; see `flower_tiny`."""
        path = self._deeds / f"{number}.new"
        path.write_text(deed)
        path.rename(self._deeds / str(number))

    def diary(self, number: int) -> list[dict[str, Any]]:
        """What its ClientApp was told and did, task by task."""
        path = self._deeds / f"{number}.diary"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    # --- runs -------------------------------------------------------------------------------------

    def run(self, name: str = "run", *, link: str = LINK, **config: object) -> Run:
        """`flwr run` of the tiny app; its run folder is called so."""
        told = {"out": str(self.folder / name), "deeds": str(self._deeds), **config}
        words = " ".join(f"{key.replace('_', '-')}={json.dumps(v)}" for key, v in told.items())
        command = ["flwr", "run", self._app, link, "--stream", "--run-config", words]
        return Run(self, self.folder / name, self.start(*command))


@dataclass
class Run:
    """A run of Flower's: its folder, and `flwr run`, which shows its log."""

    federation: Federation
    folder: Path
    process: Process

    @property
    def id(self) -> int:
        words = self.process.says("Successfully started run").partition("started run ")[2]
        return int(words.split()[0])

    @property
    def lines(self) -> list[Line]:
        """Its events so far; a last line may be half written."""
        path = self.folder / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def of(self, *kinds: str, number: int | None = None) -> list[Line]:
        """Events of these kinds, of one node's client."""
        client = None if number is None else self.client(number)
        return [
            line
            for line in self.lines
            if line["kind"] in kinds and client in (None, line.get("client"))
        ]

    def client(self, number: int) -> int:
        """What number a node has in this run; -1: none yet."""
        path = self.folder / "clients.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        named = {line["name"]: line["client"] for line in map(json.loads, lines) if "name" in line}
        return int(named.get(self.federation.nodes[number].name, -1))

    def becomes(
        self,
        kind: str,
        count: int = 1,
        *,
        number: int | None = None,
        within_s: float = PATIENCE_S,
    ) -> list[Line]:
        """Wait until there are so many events of a kind."""

        def is_so() -> bool:
            return len(self.of(kind, number=number)) >= count

        becomes(lambda: is_so() or self.process.code is not None, within_s, lambda: self.told)
        assert is_so(), self.told
        return self.of(kind, number=number)

    @property
    def told(self) -> str:
        """All there is to know when something went wrong."""
        events = "\n".join(map(str, self.lines))
        return f"{self.process.said}\n{events}"

    def ended(self, within_s: float = PATIENCE_S) -> list[Line]:
        """All its events, when Flower says that it is over."""
        becomes(lambda: self.process.code is not None, within_s, lambda: self.told)
        return self.lines

    def serverapp(self) -> int:
        """The process of the ServerApp, of which there is one."""
        (pid,) = self.federation.pids("flwr-serverapp")
        return pid

    def is_over(self) -> None:
        """Wait until Flower says so, and the ServerApp is gone."""
        self.ended()
        becomes(lambda: not self.federation.pids("flwr-serverapp"), 60.0, lambda: self.told)


@contextmanager
def flower(folder: Path, *options: object) -> Iterator[Federation]:
    """A federation that is gone at the end; its SuperLink has these options."""
    federation = Federation(folder)
    try:
        federation.superlink(*options)
        yield federation
    finally:
        federation.end()


def _id_in(said: str) -> int:
    return int(said.partition("SuperNode ")[2].split()[0])


def write_app(folder: Path) -> Path:
    """The tiny app, as Flower wants it."""
    for name, text in APP.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
