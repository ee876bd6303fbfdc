"""Processes of a test: forked from one that has imported everything, and gone at its end."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

PATIENCE_S = 120.0  # a machine may be busy
PRELOAD = [  # one server forks for all tests of a process: it has what any of them needs
    "pisces.resuming",
    "pisces.cli.main",
    "pisces.cli.serve",
    "pisces.cli.join",
    "pisces.hosting",
    "pisces.local",
    "pisces.client",
    "sklearn.datasets",
    "serving",
    "federation_processes",
]
NEWNET = 0x40000000  # CLONE_NEWNET


def forking() -> ForkServerContext:
    """Where processes are forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


class Process:
    """One process; what it says is in a file."""

    def __init__(self, said: Path, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._said = said
        said.touch()
        self._process = forking().Process(target=begin, args=(said, function, args))
        self._process.start()

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """How it ended; None: it runs."""
        return self._process.exitcode

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        pid = self._process.pid
        if self._process.is_alive() and pid is not None:
            os.kill(pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.join()

    def ended(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code, when it has ended by itself."""
        self._process.join(within_s)
        assert self.code is not None, f"it still runs after {within_s:g} s: {self.said}"
        return self.code

    def says(self, text: str, within_s: float = PATIENCE_S) -> str:
        """All it said, once this was among it."""
        becomes(lambda: text in self.said or self.code is not None, within_s, lambda: self.said)
        assert text in self.said, f"it ended with {self.code}: {self.said}"
        return self.said


class Processes:
    """All processes of a test; ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[Process] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._all:
            process.kill()

    def start(self, name: str, function: Callable[..., None], *args: Any) -> Process:
        """Call a function in a process of its own."""
        said = self.folder / f"{name}-{len(self._all)}.said"
        self._all.append(Process(said, function, args))
        return self._all[-1]

    def pisces(self, *args: object, within: Path | None = None, inside: str = "") -> Process:
        """`pisces ARGS` in a folder; `inside` a network namespace."""
        told = [str(arg) for arg in args]
        return self.start(told[0], command, within or self.folder, told, inside)


def go_home(clients: Sequence[Process], within_s: float = 5.0) -> None:
    """The run is over: who heard it ends by itself; who looked for the server just then, not."""
    until = time.monotonic() + within_s
    while any(client.code is None for client in clients) and time.monotonic() < until:
        time.sleep(0.01)
    for client in clients:
        client.signal(signal.SIGTERM)
    codes = [client.ended() for client in clients]
    assert 0 in codes
    assert {*codes} <= {0, 143}, codes


def begin(said: Path, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    """In the process: what it says goes to the file."""
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    function(*args)


def command(folder: Path, args: list[str], inside: str) -> None:
    """`pisces ARGS`."""
    from pisces.cli.main import main

    if inside:
        enter(inside)
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # what is held is held here
    sys.argv = ["pisces", *args]
    main()


def enter(namespace: str) -> None:
    """Let this process be in another network from now on, and no proxy of this one."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        assert libc.setns(file.fileno(), NEWNET) == 0, os.strerror(ctypes.get_errno())


def becomes(
    is_so: Callable[[], bool],
    within_s: float = PATIENCE_S,
    what: Callable[[], object] = lambda: "it never came true",
) -> None:
    """Wait until it is so."""
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, what()
        time.sleep(0.01)
