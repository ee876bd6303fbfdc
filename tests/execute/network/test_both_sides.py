"""The real client against the real server: what one says, the other understands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from networks import Network, flat, network
from runs import START, task

from pisces import client
from pisces.client import Update, Work
from pisces.execute.network.client import joining
from pisces.execute.network.server.door import Guarded
from pisces.execute.network.trust.certs import create
from pisces.types import Arrived, Failed, Joined, Left, Report

MORE = [value + 1 for value in flat(START)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SHORTEST_S", 0.05)


def plus_one(weights: dict[str, Any], work: Work) -> Update:
    return Update({name: array + 1 for name, array in weights.items()}, losses=[3.0, 4.0])


@contextmanager
def joined(
    net: Network, folder: Path, train: client.Train = plus_one, **door: Any
) -> Iterator[list[Any]]:
    """A client in a thread; how it ended, once the server is closed, is in the list."""
    ended: list[Any] = []
    door = door or {"insecure": True, "name": "a"}

    def run() -> None:
        try:
            made = client.join(net.executor.address, train, num_examples=10, keep=folder, **door)
            ended.append(made)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    net.executor.open()
    thread.start()
    assert net.heard() == [Joined(0.0, 0, 10)]
    yield ended
    net.executor.dismiss()
    net.executor.close()
    thread.join(10)
    assert not thread.is_alive()


def ordered(net: Network, number: int, **more: Any) -> None:
    net.executor.submit(task(number, 0, **more))
    net.executor.send()


def is_settled(folder: Path) -> bool:
    return not list(folder.glob("*.held"))


@pytest.mark.parametrize("how", [{}, {"zstd": True}, {"encoding": "float16"}])
def test_tasks_there_and_results_back(tmp_path: Path, how: dict[str, Any]) -> None:
    with network(**how) as net, joined(net, tmp_path) as ended:
        for number, version in enumerate((1, 1, 2)):
            ordered(net, number, version=version)
            [event] = net.heard()
            assert isinstance(event, Arrived)
            assert flat(event.weights) == pytest.approx(MORE, abs=1e-3)
            assert event.report == Report(10, 3.5, pytest.approx(3.5355, abs=1e-4))
            net.executor.acknowledge()
            net.executor.send()
        net.becomes(lambda: is_settled(tmp_path))
    assert [outcome.num_tasks for outcome in ended] == [3]


def test_with_certificates(tmp_path: Path) -> None:
    authority = create(tmp_path / "certs", "test", 30)
    authority.server(["localhost", "127.0.0.1"], 30)
    authority.clients(["ann"], 30)
    ann = {"identity": tmp_path / "certs" / "clients" / "ann.pem"}
    with (
        network(Guarded.of(tmp_path / "certs")) as net,
        joined(net, tmp_path / "held", **ann) as ended,
    ):
        ordered(net, 0)
        assert isinstance(net.heard()[0], Arrived)
    assert [outcome.num_tasks for outcome in ended] == [1]


def test_a_failure_is_told(tmp_path: Path) -> None:
    def train(weights: dict[str, Any], work: Work) -> Update:
        raise ValueError("no luck")

    with network() as net, joined(net, tmp_path, train):
        ordered(net, 3)
        [event] = net.heard()
        assert isinstance(event, Failed)
        assert (event.task_id, event.reason) == (3, "ValueError: no luck")


def test_a_task_past_its_deadline_ends_and_its_client_is_free_again(tmp_path: Path) -> None:
    def train(weights: dict[str, Any], work: Work) -> Update:
        while work.task == 0:
            work.check()
        return plus_one(weights, work)

    with network() as net, joined(net, tmp_path, train):
        ordered(net, 0, deadline_s=0.2)
        left, back = net.heard(2)
        assert isinstance(left, Left)
        assert left.task_id == 0
        assert isinstance(back, Joined)
        ordered(net, 1)
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert event.task_id == 1


def test_cancelled_and_pulled(tmp_path: Path) -> None:
    begun = threading.Semaphore(0)

    def train(weights: dict[str, Any], work: Work) -> Update:
        begun.release()
        while not work.wanted_now:
            work.check()
        return Update(weights, num_steps=work.task)

    with network() as net, joined(net, tmp_path, train):
        ordered(net, 1)
        assert begun.acquire(timeout=10)
        net.executor.cancel(1)
        net.executor.send()
        ordered(net, 2)
        assert begun.acquire(timeout=10)
        net.executor.pull(2)
        net.executor.send()
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert (event.task_id, event.report.num_steps) == (2, 2)


def test_a_result_nobody_acknowledged_outlives_another_run(tmp_path: Path) -> None:
    with network() as net, joined(net, tmp_path):
        ordered(net, 0)
        net.heard()
    assert not is_settled(tmp_path)
    with network() as net, joined(net, tmp_path):
        pass
    assert not is_settled(tmp_path)


def test_replaced_it_gives_up(tmp_path: Path) -> None:
    with network() as net, joined(net, tmp_path) as ended:
        net.joined("a")
        net.becomes(lambda: bool(ended))
    assert "has taken its place" in str(ended[0])
