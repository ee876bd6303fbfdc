"""`pisces serve` as a process of its own, with clients in threads of this one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from guests import guests
from rich.console import Console

from pisces.cli.serve import ServerBoard
from pisces.execute.network.server.stats import Stats
from pisces.progress.standing import Standing
from pisces.record.reader import Run
from pisces.tables import StopAt

CONFIG = """
protocol = "fedbuff"
[clients]
count = 4
concurrency = 2
[data]
size = 32
[model]
hidden = [4]
[train]
device = "cpu"
[latency]
kind = "constant"
seconds = 0.5
[network]
at_least = 2
linger_s = 1.0
[stop]
versions = 3
[protocols.fedbuff]
buffer_size = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(CONFIG)
    return path


@contextmanager
def server(*args: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that listens in the clear, and its address."""
    how = ("--insecure", "--listen", "127.0.0.1:0", "--quiet", "--json")
    told = [sys.executable, "-m", "pisces", "serve", *map(str, args), *how]
    process = subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("listening on 127.0.0.1:"), line + process.stderr.read()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def refused(ran: Any) -> str:
    assert ran.code == 2, ran.err
    assert ran.err.count("error:") == 1
    return " ".join(ran.err.split())


def test_a_run_is_served_and_clients_are_told_what_they_need(
    config: Path, tmp_path: Path, pisces: Callable[..., Any]
) -> None:
    out = tmp_path / "run"
    with server(config, "--out", out) as (process, address), guests(address, 2) as crowd:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    summary = json.loads(printed)
    assert (summary["reason"], summary["versions"]) == ("versions", 3)
    assert summary["folder"] == str(out)
    assert {"accuracy", "loss"} <= summary["final"].keys()
    welcome = crowd[0].welcome
    assert welcome is not None
    told: dict[str, Any] = json.loads(welcome.settings)
    assert told["model"]["name"] == "mlp"
    assert told["model"]["hidden"] == [4]
    assert told["train"] == {
        "optimizer": "sgd",
        "momentum": 0.0,
        "weight_decay": 0.0,
        "clip_norm": None,
    }
    assert (told["input_shape"], told["num_classes"]) == ([1, 8, 8], 10)
    assert told["objective"] == "labels"
    # A run that was served is not simulated on.
    assert "go on with pisces serve --resume" in refused(pisces("resume", out))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_when_told_to_and_goes_on(
    config: Path, tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "run"
    forever = ("--set", "stop.versions=none", "--set", "stop.time_s=600.0")
    with server(config, "--out", out, *forever) as (process, address), guests(address, 2) as crowd:
        while sum(len(guest.tasks) for guest in crowd) < 10:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
        process.communicate(timeout=60)
    if how == signal.SIGTERM:
        assert process.returncode == 143
        assert Run.open(out).summary["reason"] == "interrupted"
        assert [guest.over and guest.over.again for guest in crowd] == [True, True]
    enough = ("--set", "stop.versions=20")
    with server("--resume", out, *enough) as (process, address), guests(address, 2):
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(printed)["versions"] == 20


def test_a_protocol_that_counts_on_steps_asks_nothing_of_latencies_that_are_real(
    config: Path, tmp_path: Path, pisces: Callable[..., Any]
) -> None:
    how = ("--set", "protocol=fedcompass", "--out", tmp_path / "run")
    with server(config, *how) as (process, address), guests(address, 2):
        process.communicate(timeout=60)
    assert process.returncode == 0
    here = ("--insecure", "--listen", "127.0.0.1:0")
    emulated = pisces("serve", config, *how[:2], *here, "--emulate", "--out", tmp_path / "other")
    assert "these latencies do not grow with steps" in refused(emulated)


def test_latencies_are_emulated(config: Path, tmp_path: Path, pisces: Callable[..., Any]) -> None:
    out = tmp_path / "run"
    with server(config, "--out", out, "--emulate") as (process, address), guests(address, 2):
        process.communicate(timeout=60)
    assert process.returncode == 0
    events = list(Run.open(out).events())
    arrived = [line["latency_s"] for line in events if line["kind"] == "arrived"]
    assert len(arrived) >= 6
    assert arrived == pytest.approx([0.5] * len(arrived), abs=1e-6)
    again = ("--resume", out, "--insecure", "--listen", "127.0.0.1:0", "--set", "stop.versions=4")
    assert "emulated was True, and is False" in refused(pisces("serve", *again))


def test_how_to_go_on_is_said(config: Path, tmp_path: Path, start: Callable[..., Any]) -> None:
    here = ("--insecure", "--listen", "127.0.0.1:0")
    process = start("serve", config, *here, "--out", tmp_path / "run", "--metrics", "0")
    assert process.stderr.readline().startswith("listening")
    assert process.stderr.readline().startswith("metrics at http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    again = f"to go on: pisces serve --resume {tmp_path / 'run'} --listen 127.0.0.1:0 --insecure"
    assert again in printed


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((), "name a config file, or with --resume"),
        (("my.toml", "--resume", "."), "one of both"),
        (("my.toml", "--out", "run"), "certs"),  # there are none
        (("my.toml", "--out", "run", "--insecure", "--certs", "x"), "exclude each other"),
        (("my.toml", "--out", "run", "--insecure", "--metrics", "web"), "takes PORT or HOST:PORT"),
        (("my.toml", "--out", "run", "--insecure", "--listen", "0.0.0.0:0"), "this machine only"),
        (("my.toml", "--out", "run", "--insecure", "--listen", "127.0.0.1:x"), "must be HOST:PORT"),
        (("--resume", ".", "--out", "run"), "leave it out"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    config: Path, pisces: Callable[..., Any], args: Sequence[str], reason: str
) -> None:
    assert reason in refused(pisces("serve", "--listen", "127.0.0.1:0", *args))
    assert not (config.parent / "run").exists()


def test_the_board_says_who_is_there(config: Path) -> None:
    stop = StopAt()
    board = ServerBoard([Standing("fedbuff", 1, stop)])
    console = Console(width=80, record=True, file=StringIO())
    console.print(board)
    assert "connected" not in console.export_text()
    stats = Stats(num_connected=3, num_given=2)
    host = SimpleNamespace(stats=stats, terms=SimpleNamespace(at_least=3))
    board.host = host  # type: ignore[assignment]
    console.print(board)
    told = console.export_text()
    assert "3 connected, 2 running" in told
    assert "kept out" not in told
    stats.refused["no TLS"] = 4
    console.print(board)
    assert "3 connected, 2 running, 4 times kept out" in console.export_text()
    host.terms.at_least = 5
    console.print(board)
    assert "3 connected of 5 to begin with, 2 running" in console.export_text()


def test_what_only_simulated_clients_do_is_warned_of(
    config: Path, pisces: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    simulated = ("--set", "failures.crash=0.5", "--listen", "0.0.0.0:0", "--insecure")
    assert "this machine only" in refused(pisces("serve", config, *simulated))
    assert [m for m in caplog.messages if m.startswith("[failures]")]
