"""The app in Flower's layout: two lines make it asynchronous, and sooner at its target."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pytest
import torch
from federation_processes import free_port
from forking import PATIENCE_S, becomes
from telling import TOLD

import pisces.flower
from pisces.errors import ConfigError

pytest.importorskip("flwr")
from flowerbed import flowerbed
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

ROOT = Path(__file__).parents[1]
APP = ROOT / "examples" / "flower_app"
PACKAGE = APP / "digits_app"
MAX_LINES = 100
NUM_NODES = 8
NUM_ROUNDS, NUM_VERSIONS = 7, 40  # more than the target takes
TARGET = 0.75
Tell = Callable[[str, object], None]


def settings(**own: Any) -> dict[str, Any]:
    """Those of the app, and others of a test."""
    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert own.keys() <= config.keys()
    return {**config, **own}


def time_to_target(curve: Path, target: float = TARGET) -> float:
    told = json.loads(curve.read_text())
    reached = [seconds for seconds, accuracy in told if accuracy >= target]
    assert reached, f"{target} is not among {told}"
    return float(reached[0])


def gain(folder: Path, setting: str, tell: Tell) -> float:
    """How much sooner; printed at the end of all tests."""
    slow, quick = (time_to_target(folder / f"{name}.json") for name in ("fedavg", "pisces"))
    told = f"{slow:.1f} s with FedAvg, {quick:.1f} s with Pisces, {slow / quick:.1f}x"
    tell(TOLD, f"{TARGET:.0%} accuracy, {setting}: {told}")
    return slow / quick


# --- what it looks like ---------------------------------------------------------------------------


def changes() -> list[str]:
    """Lines of one server file that are not in the other, as `diff` tells them."""
    texts = [(PACKAGE / f"server_{name}.py").read_text() for name in ("fedavg", "pisces")]
    told = difflib.ndiff(*(text.splitlines() for text in texts))
    return [line for line in told if line[0] in "+-"]


def test_the_servers_differ_in_two_lines() -> None:
    assert changes() == [
        "- from flwr.serverapp.strategy import FedAvg",
        "+ from pisces.flower import Pisces",
        "-     strategy = FedAvg(fraction_evaluate=0.0)",
        "+     strategy = Pisces(concurrency=4)",
    ]


def test_nothing_else_of_it_knows_pisces() -> None:
    naming = {file.name for file in PACKAGE.glob("*.py") if "import Pisces" in file.read_text()}
    assert naming == {"server_pisces.py"}


@pytest.mark.parametrize("file", sorted(PACKAGE.glob("*.py")), ids=lambda file: file.name)
def test_its_files_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= MAX_LINES


def test_its_parts_are_where_flower_looks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(APP)
    told = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for part in told["components"].values():
        module, _, name = part.partition(":")
        assert hasattr(importlib.import_module(module), name)


# --- the guide ------------------------------------------------------------------------------------

GUIDE = (ROOT / "docs" / "flower.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_guide_shows_the_two_lines() -> None:
    [told] = blocks("diff")
    shown = [(line[0], line[1:].strip()) for line in told.splitlines() if line]
    assert shown == [(line[0], line[1:].strip()) for line in changes()]


def test_what_the_guide_says_in_python_works() -> None:
    given = lesson()
    named, telling, stopping, loading = blocks("python")
    for text in (named, telling, stopping):
        exec(compile(text, "docs/flower.md", "exec"), given)
    assert {"train_loss", "loss-rms", "loss-left", "num-examples"} == given["metrics"].keys()
    assert (given["strategy"].stop.target, given["strategy"].protocol) == (0.95, "pisces")
    assert Path(given["strategy"].out).is_absolute()
    compile(loading, "docs/flower.md", "exec")


def lesson() -> dict[str, Any]:
    """What a ClientApp has when it begins to train."""
    net = torch.nn.Linear(4, 3)
    data = [(torch.randn(5, 4), torch.randint(3, (5,))) for _ in range(2)]
    return {
        "net": net,
        "loader": data,
        "data": range(10),
        "epochs": 2,
        "cross_entropy": torch.nn.functional.cross_entropy,
        "optimiser": torch.optim.SGD(net.parameters(), lr=0.1),
        "MetricRecord": MetricRecord,
    }


def test_the_guide_knows_every_argument_of_fedavg() -> None:
    """Those of the constructor and of `start`, in its table or among what stays."""
    ours = inspect.signature(pisces.flower.Strategy).parameters
    told = GUIDE.partition("| FedAvg's argument | here |")[2].partition("\n\n")[0]
    for name in inspect.signature(FedAvg).parameters:
        assert f"`{name}`" in told, name
        assert name in ours or name in ("fraction_train", "min_train_nodes", "min_evaluate_nodes")
    theirs = inspect.signature(FedAvg.start).parameters
    assert {name: p.default for name, p in theirs.items()} == {
        name: p.default
        for name, p in inspect.signature(pisces.flower.Strategy.start).parameters.items()
    }
    [call] = re.findall(r"`strategy\.start\((.*?)\)`", GUIDE)
    assert re.findall(r"(\w+)=", call) == [name for name in theirs if name != "self"]


def test_protocols_of_which_the_guide_says_more() -> None:
    """Refused is the one that asks for half a task; the others are told to do without."""
    arrays = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    port = pisces.flower.Strategy(2, protocol="port")
    with flowerbed() as bed, pytest.raises(ConfigError, match="choose another protocol"):
        port.start(bed.grid, arrays)
    missing = GUIDE.partition("## What cannot be done")[2]
    assert all(f"`{name}`" in missing for name in ("port", "papaya", "fedcompass"))


# --- in one process -------------------------------------------------------------------------------


class Client:
    """The app's own ClientApp, on a node with a partition and settings."""

    def __init__(self, module: ModuleType, partition: int, config: dict[str, Any]) -> None:
        self._app, self._config = module.app, config
        self._node = {"partition-id": partition, "num-partitions": NUM_NODES}

    def __call__(self, message: Message, node: Context) -> Message:
        told = Context(node.run_id, node.node_id, self._node, node.state, self._config)
        return self._app(message, told)


def run_in_memory(server: str, curve: Path, num_rounds: int) -> None:
    config = settings(**{"num-server-rounds": num_rounds, "straggler-s": 0.8, "curve": str(curve)})
    client = importlib.import_module("digits_app.client_app")
    with flowerbed(*(Client(client, n, config) for n in range(NUM_NODES))) as bed:
        app = importlib.import_module(f"digits_app.server_{server}").app
        app(bed.grid, Context(1, 0, {}, RecordDict(), config))


def test_it_is_sooner_at_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Tell
) -> None:
    """Most likely five times; on a busy machine what is computed takes a larger share."""
    monkeypatch.syspath_prepend(APP)
    run_in_memory("fedavg", tmp_path / "fedavg.json", NUM_ROUNDS)
    run_in_memory("pisces", tmp_path / "pisces.json", NUM_VERSIONS)
    assert gain(tmp_path, "8 nodes in one process, one slow", record_property) > 1.2


# --- with Flower's own processes ------------------------------------------------------------------

README = (APP / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "UV_OFFLINE": "1"}


class Typist:
    """Types the README's commands, each terminal a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {f"81{n:02}": str(free_port()) for n in range(5)}
        self.sessions: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = {"HOME": str(folder), "FLWR_HOME": str(folder / ".flwr"), "PATH": path}
        own = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.env = {**os.environ, **QUIET, **home, **own}

    def said(self, text: str) -> str:
        """What the README says, with other ports and files."""
        for port, own in self.ports.items():
            text = text.replace(port, own)
        return text.replace("/tmp/", f"{self.folder}/")

    def types(self, text: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"terminal-{len(self.sessions)}").open("wb") as file:
            session = subprocess.Popen(
                ["sh", "-ec", self.said(text)],
                cwd=self.folder / "flower_app",
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.sessions.append(session)
        return session

    def told(self) -> str:
        files = sorted(self.folder.glob("terminal-*"))
        return "\n".join(f"{f.name}: {f.read_text(errors='replace')[-3000:]}" for f in files)

    def is_up(self) -> bool:
        url = self.said("http://127.0.0.1:8100/health")
        try:
            with build_opener(ProxyHandler({})).open(url, timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    def pids(self) -> list[int]:
        """All that was started, by anybody: Flower starts processes in sessions of their own."""
        mark, found = f"FLWR_HOME={self.env['FLWR_HOME']}".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may have ended meanwhile
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def end(self) -> None:
        def is_over() -> bool:
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for session in self.sessions:
                session.poll()
            return not self.pids()

        becomes(is_over, 30.0, lambda: f"left behind: {self.pids()}")


@contextmanager
def typist(folder: Path) -> Iterator[Typist]:
    typing = Typist(folder)
    try:
        yield typing
    finally:
        typing.end()


def copy_of_the_app(folder: Path) -> Path:
    """As somebody would copy it; without what tools leave behind."""
    left = shutil.ignore_patterns("__pycache__", ".*")
    return Path(shutil.copytree(APP, folder / "flower_app", ignore=left)) / "pyproject.toml"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_its_readme_literally(tmp_path: Path, record_property: Tell) -> None:
    """SuperLink, SuperNodes and `flwr run`, as they are typed."""
    project = copy_of_the_app(tmp_path)
    link, nodes, pisces, fedavg, ask = (text for kind, text in BLOCKS if not kind)
    [config] = (text for kind, text in BLOCKS if kind == "toml")
    with typist(tmp_path) as hands:
        (tmp_path / ".flwr").mkdir()
        (tmp_path / ".flwr" / "config.toml").write_text(hands.said(config))
        hands.types(link)
        becomes(hands.is_up, PATIENCE_S, hands.told)
        hands.types(nodes)
        assert hands.types(pisces).wait(900) == 0, hands.told()
        project.write_text(project.read_text().replace("server_pisces:app", "server_fedavg:app"))
        assert hands.types(fedavg).wait(1800) == 0, hands.told()
        asked = hands.types(ask)
        assert asked.wait(PATIENCE_S) == 0, hands.told()
        assert gain(tmp_path, "4 SuperNodes, one slow", record_property) > 1
