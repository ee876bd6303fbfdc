"""Whole runs over the network: to their end, and after an abrupt one to the same end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from networks import TERMS
from rawclient import HungUpError, Raw
from runs import START, policies

from pisces import running
from pisces.execute.base import Executor
from pisces.execute.network.messages import (
    Acknowledged,
    CalledOff,
    Failure,
    FromClient,
    Hello,
    Order,
    Over,
    Welcome,
)
from pisces.execute.network.server.door import Open
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.server.terms import Terms
from pisces.execute.roster import Roster
from pisces.federation import Federation
from pisces.record.checkpoint import Checkpoints
from pisces.record.reader import Run
from pisces.record.writer import CLIENTS
from pisces.stop import Stop


class Killed(BaseException):
    """The server's process is gone."""


class Keeper(threading.Thread):
    """A client that outlives its servers: keeps results until they are safe, and comes back."""

    def __init__(self, name: str, port: Any) -> None:
        super().__init__(daemon=True)
        self.client_name, self._port = name, port
        self.held: dict[int, list[FromClient]] = {}
        self.sent: list[int] = []
        self.safe: list[int] = []
        self.run_id = ""
        self.is_over = False
        self.problem: Exception | None = None

    def run(self) -> None:
        while not self.is_over:
            raw = Raw(f"127.0.0.1:{self._port()}", self.client_name)
            try:
                self._talk(raw)
            except HungUpError:
                time.sleep(0.02)
            except Exception as error:
                self.problem = error
                raise
            finally:
                raw.hang_up()

    def _talk(self, raw: Raw) -> None:
        raw.say(Hello(10, self.client_name, run=self.run_id, holds=(*self.held,)))
        while not self.is_over:
            self._hear(raw, raw.order_or_word())

    def _hear(self, raw: Raw, said: Any) -> None:
        match said:
            case Welcome():
                self.run_id = said.run
                for number in said.settled:
                    self._forget(number)
                for number in said.wanted:
                    raw.say(*self.held[number])
            case Order():
                time.sleep(0.005)
                self.held[said.task] = raw.result(said, 0.5)
                self.sent.append(said.task)
                raw.say(*self.held[said.task])
            case Acknowledged():
                self._forget(said.task)
            case CalledOff():
                self.held.pop(said.task, None)
                raw.say(Failure(said.task, "called off"))
            case Over():
                self.is_over = not said.again

    def _forget(self, number: int) -> None:
        assert number not in self.safe
        # What was called off while its result was under way is gone already: nobody wanted it.
        if self.held.pop(number, None) is not None:
            self.safe.append(number)


class Server:
    """One process after the other, as far as anybody outside can tell."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0

    def serve(self, num_versions: int, *, resume: bool = False, dies_at: int | None = None) -> Any:
        federation = Federation(
            policies=policies("fedbuff", 2, buffer_size=2),
            weights=START,
            stop=Stop(versions=num_versions),
            deadline_s=30.0,
        )
        return running.run(
            federation,
            lambda path: self._open(path, dies_at),
            protocol="fedbuff",
            by_whom="clients",
            made={},
            out=self.folder,
            checkpoints=Checkpoints(0.1),
            resume=resume,
        )

    def _open(self, path: Path | None, dies_at: int | None) -> Executor:
        assert path is not None
        made = Doomed if dies_at is not None else NetworkExecutor
        terms = Terms(**{**TERMS, "at_least": 3, "linger_s": 2.0})
        executor = made(
            f"127.0.0.1:{self.port}",
            START.layout,
            Open(),
            roster=Roster(path / CLIENTS),
            terms=terms,
        )
        self.port = int(executor.address.rpartition(":")[2])
        if isinstance(executor, Doomed):
            executor.num_left = dies_at or 0
        return executor


class Doomed(NetworkExecutor):
    """Dies in the middle of a wait, having heard things nobody will ever know of."""

    num_left = 0

    def wait(self, until: float) -> list[Any]:
        events = super().wait(until)
        self.num_left -= 1
        if self.num_left < 0:
            raise Killed
        return events

    def close(self) -> None:
        """No word to anybody: nothing that waits is said, and lines break."""
        self._is_over = True
        self._unsaid.clear()
        super().close()


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "run")


def keepers(server: Server) -> list[Keeper]:
    made = [Keeper(name, lambda: server.port) for name in "abc"]
    starting = threading.Thread(target=lambda: [_start(server, keeper) for keeper in made])
    starting.start()
    return made


def _start(server: Server, keeper: Keeper) -> None:
    while not server.port:
        time.sleep(0.01)
    keeper.start()


def test_a_run_to_its_end(server: Server) -> None:
    clients = keepers(server)
    weights = server.serve(5).weights
    for client in clients:
        client.join(10.0)
        assert client.is_over
        assert client.problem is None
    _check(server, clients, 5)
    # Every update adds 0.5 to the weights it began from.
    lines = [line for line in Run.open(server.folder).events() if line["kind"] == "aggregated"]
    added = 0.5 * sum(sum(line["weights"]) for line in lines)
    assert weights.parameters.tolist() == pytest.approx([added] * 3)


def _check(server: Server, clients: list[Keeper], num_versions: int) -> None:
    run = Run.open(server.folder)
    lines = list(run.events())
    used = [number for line in lines if line["kind"] == "aggregated" for number in line["tasks"]]
    assert len(used) == len(set(used)) >= 2 * num_versions  # more where two came at once
    assert run.summary["reason"] == "versions"
    # What was used is safe, and nobody keeps what is.
    safe = [number for client in clients for number in client.safe]
    assert len(safe) == len(set(safe))
    assert {*used} <= {*safe}


@pytest.mark.parametrize("dies_at", [1, 4, 7])
def test_an_abrupt_end_loses_nothing(server: Server, dies_at: int) -> None:
    clients = keepers(server)
    with pytest.raises(Killed):
        server.serve(8, dies_at=dies_at)
    server.serve(8, resume=True)
    for client in clients:
        client.join(10.0)
        assert client.is_over
        assert client.problem is None
    _check(server, clients, 8)
    # Nobody had to do again what it had done.
    for client in clients:
        assert len(client.sent) == len(set(client.sent))
    names = Roster(server.folder / CLIENTS).names
    assert sorted(names.values()) == ["a", "b", "c"]
