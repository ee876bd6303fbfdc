"""A server and its clients in two networks, and a link between them that goes down or is bad."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from federation_processes import Part, Run, assert_sound, authority
from forking import Processes, becomes, go_home

HERE, THERE = "10.203.77.1", "10.203.77.2"
NUM_CLIENTS = 3
TERMS = {"beat_s": 0.3, "at_least": NUM_CLIENTS}
DELAYED = "delay 50ms loss 5%"


class Link:
    """Two networks and the wire between them."""

    def __init__(self) -> None:
        stamp = f"{os.getpid():x}"
        self.server, self.clients = f"pisces-s-{stamp}", f"pisces-c-{stamp}"
        self._ends = (f"ps{stamp}", f"pc{stamp}")

    def make(self) -> None:
        for name in (self.server, self.clients):
            ip("netns", "add", name)
        one, other = self._ends
        ip("link", "add", one, "netns", self.server, "type", "veth", "peer", "name", other)
        ip("link", "set", other, "netns", self.clients)
        for name, end, address in ((self.server, one, HERE), (self.clients, other, THERE)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            for device in (end, "lo"):
                ip("-n", name, "link", "set", device, "up")

    def delete(self) -> None:
        """Also what was made only in part."""
        for name in (self.server, self.clients):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def set(self, end: int, state: str) -> None:
        """One end up or down: the server's is 0."""
        name = (self.server, self.clients)[end]
        ip("-n", name, "link", "set", self._ends[end], state)

    def worsen(self, *how: str) -> bool:
        """Let both ends be bad; False: this kernel cannot."""
        for name, end in zip((self.server, self.clients), self._ends, strict=True):
            told = ["tc", "-n", name, "qdisc", "add", "dev", end, "root", "netem", *how]
            if subprocess.run(told, capture_output=True).returncode:
                return False
        return True


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


@pytest.fixture
def link() -> Iterator[Link]:
    """Where one may make networks."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root, and the command ip")
    link = Link()
    try:
        try:
            link.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"networks cannot be made here: {error.stderr.decode().strip()}")
        yield link
    finally:
        link.delete()


def begun(link: Link, processes: Processes, num_versions: int, size: int) -> tuple[Run, list[Part]]:
    certs = authority(processes.folder, NUM_CLIENTS, HERE)
    run = Run(
        processes.folder,
        certs,
        num_versions,
        size=size,
        concurrency=NUM_CLIENTS,
        buffer_size=2,
        host=HERE,
        inside=link.server,
        terms=TERMS,
    )
    parts = [
        Part(number, run.address, certs, processes.folder, (0.05, 0.1), inside=link.clients)
        for number in range(NUM_CLIENTS)
    ]
    return run, parts


def num_welcomes(parts: list[Part]) -> list[int]:
    return [len(part.noted("Welcome")) for part in parts]


def test_a_link_that_goes_down(link: Link, processes: Processes) -> None:
    """For longer than it takes both ends to notice; in training and amid uploads of two chunks.

    Clients find no way to the server where their own end is down; where it is the server's, all
    they send is swallowed.
    """
    run, parts = begun(link, processes, 20, 270_000)
    server = run.start(processes)
    clients = [part.start(processes) for part in parts]
    for num_cuts in (1, 2):
        becomes(lambda: run.num_arrived >= 8 * num_cuts)  # noqa: B023
        link.set(num_cuts % 2, "down")
        time.sleep(1.5)  # three beats are 0.9 s
        num = run.num_arrived
        time.sleep(0.2)
        assert run.num_arrived == num, "the link was not down"
        link.set(num_cuts % 2, "up")
        becomes(lambda: min(num_welcomes(parts)) > num_cuts)  # noqa: B023
    assert server.ended() == 0, server.said
    go_home(clients)
    assert_sound(run, parts)


@pytest.mark.long
def test_a_link_that_is_slow_and_loses_packets(link: Link, processes: Processes) -> None:
    if not link.worsen(*DELAYED.split()):
        pytest.skip("this kernel has no netem")
    run, parts = begun(link, processes, 20, 4)
    server = run.start(processes)
    clients = [part.start(processes) for part in parts]
    assert server.ended() == 0, server.said
    go_home(clients)
    assert_sound(run, parts)
