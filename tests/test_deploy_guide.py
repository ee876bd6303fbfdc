"""The guide to the network and the Dockerfile: what they say is what works."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from federation_processes import free_port
from forking import PATIENCE_S, Process, Processes

from pisces.record.reader import Run

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "deploy.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PORT = "8440"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shells differ")


def section(title: str) -> str:
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


FIRST = section("Two terminals, two minutes")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", FIRST, re.DOTALL)


def config() -> str:
    (text,) = [text for kind, text in BLOCKS if kind == "toml"]
    return str(text)


def terminals(port: int) -> list[list[str]]:
    """What is typed into each, with another port."""
    texts = [text.replace(PORT, str(port)) for kind, text in BLOCKS if kind == ""]
    return [text.splitlines() for text in texts]


def begin(processes: Processes, line: str) -> Process:
    """A command of the guide."""
    name, *args = shlex.split(line.removesuffix("&"))
    assert name == "pisces"
    return processes.pisces(*args)


def test_two_terminals(tmp_path: Path) -> None:
    (tmp_path / "fl.toml").write_text(config())
    first, second = terminals(free_port())
    with Processes(tmp_path) as processes:
        for line in first[:-1]:
            assert (ran := begin(processes, line)).ended() == 0, ran.said
        # Shorter than the guide's minute, and otherwise literally.
        server = begin(processes, f"{first[-1]} --set stop.time_s=3")
        server.says("listening on")
        clients = [begin(processes, line) for line in second]
        assert server.ended() == 0, server.said
        for client in clients:
            assert client.ended() == 0, client.said
            assert "the run is over" in client.said
    folder = tmp_path / "runs" / "first"
    summary = Run.open(folder).summary
    assert (summary["reason"], tomllib.loads(config())["stop"]) == ("time", {"time_s": 60.0})
    assert summary["versions"] > 0
    names = (folder / "clients.jsonl").read_text()
    assert all(f'"{name}"' in names for name in ("ann", "ben", "cleo", "dan"))


@pytest.mark.long
def test_two_terminals_literally(tmp_path: Path) -> None:
    """With a shell, and what comes after: killed, taken up, and drawn."""
    (tmp_path / "fl.toml").write_text(config())
    port = free_port()
    first, second = terminals(port)
    (again,) = re.findall(r"`(pisces serve --resume [^`]*)`", FIRST)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    where = {"cwd": tmp_path, "env": {**os.environ, "PATH": path, "HOME": str(tmp_path)}}
    subprocess.run(["sh", "-ec", "\n".join(first[:-1])], check=True, **where)
    last = f"exec {first[-1]}"  # so that it is the server that is killed, not its shell
    servers = [subprocess.Popen(["sh", "-ec", last], stderr=subprocess.PIPE, text=True, **where)]
    clients = None
    try:
        assert servers[0].stderr is not None
        assert "listening on" in servers[0].stderr.readline()
        clients = subprocess.Popen(["sh", "-ec", "\n".join([*second, "wait"])], **where)
        log = tmp_path / "runs" / "first" / "events.jsonl"
        while log.read_text().count('"aggregated"') < 2:
            assert servers[0].poll() is None
        servers[0].kill()
        told = f"exec {again.replace(PORT, str(port))}"
        servers.append(subprocess.Popen(["sh", "-ec", told], **where))
        assert servers[1].wait(PATIENCE_S) == 0
        assert clients.wait(PATIENCE_S) == 0
        subprocess.run(["sh", "-ec", "pisces report runs/first"], check=True, **where)
    finally:
        for process in (*servers, *([] if clients is None else [clients])):
            process.kill()
            process.wait()


# --- the Dockerfile -------------------------------------------------------------------------------


def told(word: str) -> list[str]:
    """What stands after an instruction, each time."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line.partition(" ")[2] for line in joined.splitlines() if line.startswith(f"{word} ")]


def test_what_the_image_is_made_of_is_there() -> None:
    for line in told("COPY"):
        *sources, _target = line.split()
        if not sources[0].startswith("--from"):
            assert all((ROOT / source).exists() for source in sources), line


def test_the_image_is_that_of_the_guide() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extra,) = set(re.findall(rf"{project['name']}\[(\w+)\]", DOCKERFILE))
    assert extra in project["optional-dependencies"]
    (entry,) = told("ENTRYPOINT")
    assert [entry] == [f'["{name}"]' for name in project["scripts"]]
    assert told("EXPOSE") == [PORT]
    assert f"({PORT} by convention" in GUIDE
    assert f"--publish {PORT}:{PORT}" in section("Containers")
    (user,) = told("USER")
    assert f"--uid {user} pisces" in DOCKERFILE  # whose who runs it is not, but by --user
    assert "--user $(id -u):$(id -g) --env HOME=" in section("Containers")
    (workdir,) = told("WORKDIR")[-1:]
    assert f"--volume $PWD:{workdir}" in section("Containers")
    minor = int(told("FROM")[-1].partition("python:3.")[2].partition("-")[0])
    assert minor >= int(project["requires-python"].removeprefix(">=3."))


def test_the_image_has_no_lint() -> None:
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which(
        "hadolint"
    )
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    told = [hadolint, "--no-color", str(ROOT / "Dockerfile")]
    ran = subprocess.run(told, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.returncode) == ("", 0)
