"""`pisces join`: what it takes, what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripted import Talk, serving

from pisces.cli.joined import NowAndThen, line
from pisces.client import Progress
from pisces.execute.network.messages import Bye

Pisces = Callable[..., Any]
COMMAND = [sys.executable, "-m", "pisces.cli.main"]
CODE = """
import time
import numpy as np
from pisces.client import Update

def train(weights, work):
    if work.task == 9:
        print("training", flush=True)
        time.sleep(60)
    return Update({name: array + 1 for name, array in weights.items()}, losses=[2.0])

def nothing(): return None
def pair(): return np.zeros((4, 2)), np.zeros(4)
def failing(): raise OSError("the disk is\\nfull")
def numbered(number): return np.zeros((number, 2)), np.zeros(number)
value = 3
"""


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "joincode.py").write_text(CODE)


OWN = ("--insecure", "--name", "a", "--train", "joincode:train", "--examples", "5")


def test_code_of_ones_own(pisces: Pisces) -> None:
    async def script(talk: Talk) -> None:
        assert (await talk.welcome()).num_examples == 5
        await talk.order(1)
        await talk.result()
        await talk.acknowledge(1)
        await talk.over()

    with serving(script) as server:
        ran = pisces("join", server.address, *OWN)
    assert (ran.code, ran.out) == (0, "enough: 1 tasks trained, 1 handed in, 0 held\n")
    with serving(script) as server:
        ran = pisces("join", server.address, *OWN, "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "reason": "enough",
        "tasks": 1,
        "done": 1,
        "held": 0,
        "failed": 0,
    }


def test_in_a_log_it_says_when_it_is_connected(pisces: Pisces) -> None:
    async def lost(talk: Talk) -> None:
        await talk.welcome(number=3)

    async def over(talk: Talk) -> None:
        await talk.welcome(number=3)
        await talk.over()

    with serving(lost, over) as server:
        ran = pisces("join", server.address, *OWN)
        told = "connected as client 3: idle, done 0, held 0"
        assert ran.err.splitlines().count(told) == 2
        ran = pisces("join", server.address, *OWN, "-q")
        assert ran.err == ""
        ran = pisces("join", server.address, *OWN, "--json")
    (connected,) = map(json.loads, ran.err.splitlines())
    about = (connected["kind"], connected["state"], connected["number"], connected["num_held"])
    assert about == ("progress", "connected", 3, 0)


def test_in_a_log_there_is_a_line_now_and_then() -> None:
    lines: list[str] = []
    now = 100.0
    told = NowAndThen(line, lambda elapsed_s: 5.0 + elapsed_s, lines.append, lambda: now)

    def at(seconds: float, progress: Progress) -> int:
        nonlocal now
        now = 100.0 + seconds
        told.tell(progress)
        return len(lines)

    on = Progress("connected", number=1)
    assert at(1.0, Progress()) == 0
    assert at(2.0, on) == 1  # that is news; the next is due 7 s later
    assert at(8.9, on) == 1
    assert at(9.0, on) == 2
    assert at(10.0, Progress("retrying", "gone", 3.0)) == 2  # a warning says so
    assert at(11.0, on) == 3
    assert at(500.0, Progress("over", "enough")) == 3  # the result says so


def test_a_server_that_refuses(pisces: Pisces) -> None:
    async def script(talk: Talk) -> None:
        await talk.hear()
        await talk.refuse(grpc.StatusCode.PERMISSION_DENIED, "revoked")

    with serving(script) as server:
        ran = pisces("join", server.address, *OWN, "-q")
    assert ran.code == 3
    assert ran.err == "the server does not let this client in: revoked\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number: signal.Signals, code: int) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(9)
        assert await talk.hear() == Bye()

    with serving(script) as server:
        command = [*COMMAND, "join", server.address, *OWN, "-q"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, **pipes, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert err in ("interrupted\n", "told to end\n")  # not that it is not connected any more


WRONG: dict[str, tuple[list[str], str]] = {
    "nothing to do": ([], "give --data (what to learn from) or --train"),
    "both": (["--data", "a:b", "--train", "a:b"], "one of both"),
    "no examples": (["--train", "joincode:train"], "--examples: say how many"),
    "no function": (["--data", "joincode"], "must be MODULE:FUNCTION"),
    "no module": (["--data", "nowhere:load"], "cannot import nowhere:load"),
    "no such function": (["--data", "joincode:load"], "cannot import joincode:load"),
    "a value": (["--data", "joincode:value"], "is no function"),
    "no data": (["--data", "joincode:nothing"], "data: must be a pair"),
    "data that cannot be loaded": (
        ["--data", "joincode:failing"],
        "--data: joincode:failing failed: OSError: the disk is full (joincode.py, line 14)",
    ),
    "no number": (["--data", "joincode:numbered"], "--shard: joincode:numbered takes"),
    "no shard": (["--data", "some.toml"], "--shard: say which part"),
    "no config": (["--data", "some.toml", "--shard", "1"], "some.toml"),
    "a device": (["--data", "joincode:pair", "--device", "tpu"], "must be auto, cpu, cuda"),
    "no name": (["--data", "joincode:pair"], "needs a name"),
    "no identity": (["--data", "joincode:pair", "--identity", "none.pem"], "none.pem"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_a_line(pisces: Pisces, case: str) -> None:
    args, says = WRONG[case]
    insecure = [] if "--identity" in args else ["--insecure"]
    ran = pisces("join", "127.0.0.1:9", *insecure, *args)
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_status_line() -> None:
    trying = Progress("retrying", "gone", 3.0, num_held=1)
    assert line(trying) == "gone; again in 3.0 s: idle, done 0, held 1"
    at_it = Progress("connected", number=4, task=12, version=7, num_done=41, loss=0.25)
    assert line(at_it) == (
        "connected as client 4: task 12 of version 7, done 41, held 0, last loss 0.25"
    )
