"""The executor over a real network: where it begins, ends, goes on for another, and its bounds."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import Network, flat, network
from rawclient import Good, Raw, said_result
from runs import START, task

from pisces.errors import ConfigError
from pisces.execute.base import Handover
from pisces.execute.network.messages import (
    MOST_TASKS,
    Hello,
    Order,
    Over,
    Welcome,
)
from pisces.execute.network.packing import pack, pack_step
from pisces.execute.network.server.door import Guarded, Open
from pisces.execute.network.server.executor import NetworkExecutor
from pisces.execute.network.trust.certs import create
from pisces.execute.roster import Roster
from pisces.types import Arrived, Joined, Layout, Left, Slice, Task, Weights


def _run(net: Network) -> str:
    return net.executor._roster.run


# --- one server after another ---------------------------------------------------------------------


def test_takes_over_what_runs_is_held_or_was_never_sent() -> None:
    with network() as net:
        running = tuple((task(number, number), 4.0) for number in range(3))
        for name in "abc":
            net.executor._roster.number_of(name)
        net.executor.take_over(Handover(5.0, running, (0, 1, 2)))
        assert net.executor.now == 5.0
        net.executor.submit(task(9, 2))  # waits for its client
        holds, trains, never = net.raw("a"), net.raw("b"), net.raw("c")
        for client in (holds, trains):
            client.weights[0] = START.flat.numpy()
        assert holds.join(run=_run(net), holds=(0, 8)).settled == (8,)
        trains.join(run=_run(net), trains=(1,))
        never.join(run=_run(net))
        order = Order(0, 0, task(0, 0).plan, 0)
        holds.answer(order)
        trains.answer(replace(order, task=1))
        never.answer(never.order())
        events = net.heard(6)
        assert all(event.at >= 5.0 for event in events)
        assert {e.task_id for e in events if isinstance(e, Arrived)} == {0, 1, 2}
        assert {e.client for e in events if isinstance(e, Joined)} == {0, 1, 2}
        never.answer(never.order())
        assert [e.task_id for e in net.heard() if isinstance(e, Arrived)] == [9]


def test_takes_over_deadlines_and_patience() -> None:
    with network(patience_s=0.3) as net:
        running = ((task(0, 0, deadline_s=1.1), 4.0), (task(1, 1), 4.0))
        net.executor.take_over(Handover(5.0, running, (0, 1)))
        left = net.heard(2)
        assert left[0] == Left(left[0].at, 0, "deadline passed", 0)
        assert left[1] == Left(left[1].at, 1, "did not come back", 1)
        net.nothing_heard()


@pytest.mark.parametrize("for_good", [True, False])
def test_everybody_hears_of_the_end(for_good: bool) -> None:
    with network() as net:
        clients = net.begun("a", "b")
        if for_good:
            net.executor.dismiss()
            late = net.raw("c")
            late.join()
            clients.append(late)
        net.executor.close()
        for client in clients:
            said = client.expect(Over)
            assert said.again is not for_good
            client.ended()
        net.executor.close()  # again, in vain
        net.executor.submit(task(0, 0))
        net.executor.send()


def test_who_does_not_read_is_not_waited_for_at_the_end() -> None:
    layout = Layout((Slice("w", (4_000_000,), "float32", "parameter", 0, 4_000_000),))
    with network(layout=layout, linger_s=0.2) as net:
        net.executor.open()
        deaf = net.raw("deaf", reads=False)
        deaf.say(Hello(10, name="deaf"))
        net.heard()
        net.executor.submit(_large(layout, 0, 0))
        net.executor.send()
        time.sleep(0.1)
        began = time.monotonic()
        net.executor.close()
        assert time.monotonic() - began < 3.0


def _large(layout: Layout, number: int, client: int, version: int = 0) -> Task:
    weights = Weights(torch.arange(layout.size, dtype=torch.float32), layout)
    return Task(number, client, version, weights, task(0, 0).plan, 0)


def test_who_does_not_read_keeps_nobody_waiting() -> None:
    layout = Layout((Slice("w", (4_000_000,), "float32", "parameter", 0, 4_000_000),))
    with network(layout=layout) as net:
        net.executor.open()
        deaf = net.raw("deaf", reads=False)
        deaf.say(Hello(10, name="deaf"))
        net.heard()
        [other] = net.joined("b")
        net.heard()
        for client in range(2):
            net.executor.submit(_large(layout, client, client))
        began = time.monotonic()
        net.executor.send()
        assert time.monotonic() - began < 0.1
        other.answer(other.order())
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert event.weights.flat.equal(torch.arange(4_000_000, dtype=torch.float32) + 1)
        assert net.stats.sent_bytes < 30_000_000  # not 16 MB twice, and some
        assert net.stats.received_bytes > 16_000_000


def test_the_loop_says_what_it_has_to_say_at_once() -> None:
    with network() as net:
        net.begun("a")
        began = time.monotonic()
        for number in range(1000):
            net.executor.submit(task(number, 0))
            net.executor.pull(number)
            net.executor.cancel(number)
            net.executor.acknowledge()
            net.executor.send()
        assert time.monotonic() - began < 1.0


def test_nothing_piles_up() -> None:
    with network() as net:
        net.executor.open()
        good = Good(net.raw("a"))
        good.start()
        net.heard()
        for number in range(400):
            net.executor.submit(task(number, 0, version=number, deadline_s=1e6))
            assert isinstance(net.heard()[0], Arrived)
            net.executor.acknowledge()
        net.executor.send()
        executor, desk = net.executor, net.executor._desk
        net.becomes(lambda: not desk.unsafe)
        assert len(executor._due) <= 103
        assert executor._inbox._bell.qsize() <= 1
        for pile in (executor._running, executor._inbox, executor._handed_out, executor._unsaid):
            assert not pile
        assert (desk.given, desk.pulled) == ({}, set())
        [session] = executor._service._sessions
        assert not any(session._told.values())
        assert len(session._told) <= MOST_TASKS
        assert len(executor._service._shelf._kept) == 3
        assert net.stats.num_given == 0
        assert good.done == [*range(400)]


def test_what_is_counted_is_a_copy() -> None:
    with network() as net:
        before = net.stats
        before.refuse("never")
        net.begun("a")
        net.executor.submit(task(0, 0))
        assert (before.num_connected, before.num_given) == (0, 0)
        assert (net.stats.num_connected, net.stats.num_given) == (1, 1)
        assert not net.stats.refused


def test_can_be_broken_off_only_while_it_listens() -> None:
    with network() as net:
        net.begun("a")
        seen: list[bool] = []

        class Bell:
            def get(self, timeout: float) -> None:
                seen.append(net.executor.interruptible)
                raise KeyboardInterrupt

        assert not net.executor.interruptible
        bell, net.executor._inbox._bell = net.executor._inbox._bell, Bell()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            net.executor.wait(math.inf)
        assert seen == [True]
        assert not net.executor.interruptible
        net.executor._inbox._bell = bell
        net.joined("b")
        assert net.heard() == [Joined(net.executor.now, 1, 10)]


# --- before it begins -----------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_plainly() -> None:
    with network() as net, pytest.raises(ConfigError, match="Address already in use; choose"):
        NetworkExecutor(net.executor.address, START.layout, Open())


def test_an_address_of_another_machine_is_said_plainly(tmp_path: Path) -> None:
    create(tmp_path, "authority", 10).server(["localhost"], 10)
    with pytest.raises(ConfigError, match="Cannot assign requested address; choose"):
        NetworkExecutor("192.0.2.1:0", START.layout, Guarded.of(tmp_path))


def test_from_the_beginning_the_folder_is_seen_to_be_of_a_served_run(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    executor = NetworkExecutor("127.0.0.1:0", START.layout, Open(), roster=Roster(path))
    try:
        assert not path.exists()  # it may yet fail to begin
        executor.open()
        assert Roster(path).run == executor._roster.run
    finally:
        executor.close()


def test_without_certificates_only_this_machine() -> None:
    with pytest.raises(ConfigError, match="listens on this machine only"):
        NetworkExecutor("0.0.0.0:0", START.layout, Open())


def test_can_be_closed_before_anything_happened() -> None:
    executor = NetworkExecutor("127.0.0.1:0", START.layout, Open())
    executor.dismiss()
    executor.close()


@pytest.mark.parametrize(("encoding", "zstd"), [("float16", False), ("float32", True)])
def test_rounded_and_compressed_weights(encoding: str, zstd: bool) -> None:
    with network(encoding=encoding, zstd=zstd) as net:
        net.executor.open()
        plain, client = net.raw("a"), net.raw("b")
        assert not plain.join().zstd
        welcome = client.join(zstd=True)
        assert (welcome.encoding, welcome.zstd) == (encoding, zstd)
        net.heard(2)
        for number in range(2):
            net.executor.submit(task(number, number))
        net.executor.send()
        order = plain.order()
        assert order.content is not None
        assert not order.content.zstd
        order = client.order()
        assert order.content is not None
        assert order.content.zstd is zstd
        began = client.weights[0]
        new = began + np.float32(0.25)
        packed = pack_step(new, began) if encoding == "float16" else pack(new, zstd=True)
        client.say(*said_result(1, *packed))
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert flat(event.weights) == [0.25, 0.25, 0.25, 1.25]


def test_numbers_by_wish_and_by_name() -> None:
    with network() as net:
        net.executor.open()
        assert net.raw("a").join(wished=5).number == 5
        assert net.raw("b").join().number == 0
        assert net.raw("a").join().number == 5
        refused = net.raw("c")
        refused.say(Hello(10, name="c", wished=5))
        ended = refused.ended()
        assert ended.code.name == "PERMISSION_DENIED"
        assert "another client is number 5" in ended.details
        assert isinstance(net.raw("c").join(), Welcome)
        assert {e.client for e in net.heard(3)} == {5, 0, 1}


def test_what_no_client_could_be_told_is_refused_at_once() -> None:
    told = "a" * (1 << 20)
    with pytest.raises(ConfigError, match="more than the 1052672 of a message"):
        NetworkExecutor("127.0.0.1:0", START.layout, Open(), settings=told)


def test_numbers_are_on_the_disk_before_the_loop_hears_of_them(tmp_path: Path) -> None:
    roster = Roster(tmp_path / "clients.jsonl")
    made = NetworkExecutor("127.0.0.1:0", START.layout, Open(), roster=roster)
    client = None
    try:
        made.open()
        client = Raw(made.address, "a")
        client.join()
        assert [type(event) for event in made.wait(0.0)] == [Joined]
        assert Roster(tmp_path / "clients.jsonl").names == {0: "a"}
    finally:
        if client is not None:
            client.hang_up()
        made.close()
