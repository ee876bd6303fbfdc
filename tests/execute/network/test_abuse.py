"""What no client says or does: refused, logged once and counted; honest ones are undisturbed."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Network, network
from rawclient import Good, HungUpError, Raw, said_result
from runs import START, task

from pisces.errors import MissingPackageError
from pisces.execute.network.coding import to_server
from pisces.execute.network.messages import (
    MOST_TASKS,
    Acknowledged,
    Beat,
    Bye,
    Chunk,
    Content,
    Failure,
    FromClient,
    Hello,
    Order,
    Result,
    Welcome,
)
from pisces.execute.network.packing import CHUNK_BYTES, digest, pack, pack_step
from pisces.execute.network.server.door import Guarded, Open
from pisces.execute.network.server.endings import Ending
from pisces.execute.network.trust import signing
from pisces.execute.network.trust.certs import Authority, create
from pisces.execute.network.trust.tls import Identity, Peer, Revoked, channel_credentials
from pisces.types import Arrived, Event, Failed, Layout, Left, Report, Slice, Weights

LOOPBACK = "ipv4:127.0.0.1"


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    """A server for all tests that do not need terms of their own."""
    with network(handshake_s=0.5) as there:
        there.executor.open()
        there.joined("honest")
        there.heard()
        yield there


@pytest.fixture(autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever happened, the honest client of the shared server is served."""
    yield
    if "net" in request.fixturenames:
        serve(request.getfixturevalue("net"))


NUMBERS = iter(range(1_000_000))
NAMES = (f"odd{number}" for number in NUMBERS)


def drain(net: Network) -> None:
    """Let the loop hear of all that was told by now."""
    heard_by_now(net)


def heard_by_now(net: Network) -> list[Event]:
    events: list[Event] = []
    while net.executor._inbox:
        events += net.executor.wait(net.executor._elapsed())
    return events


def serve(net: Network) -> None:
    drain(net)
    honest, number = net.clients[0], 10_000 + next(NUMBERS)
    net.executor.submit(task(number, 0))
    net.executor.send()
    honest.answer(honest.order())
    while True:
        events = net.executor.wait(net.executor.now + 5.0)
        assert events
        if any(isinstance(e, Arrived) and e.task_id == number for e in events):
            break
    net.executor.acknowledge()
    net.executor.send()
    assert honest.expect(Acknowledged) == Acknowledged(number)


def given_task(net: Network) -> tuple[Raw, Order]:
    """A client with a task."""
    [client] = net.joined(next(NAMES))
    number = 10_000 + next(NUMBERS)
    drain(net)
    who = net.executor._roster.number_of(client.name)
    net.executor.submit(task(number, who))
    net.executor.send()
    return client, client.order()


DIGEST = digest(START.layout)


def result(order: Order, layout: int = DIGEST, **content: Any) -> Result:
    plain = Content("float32", 16)
    return Result(order.task, Report(10), replace(plain, **content), layout)


SECOND_WORDS: dict[str, tuple[Callable[[Order], list[Any]], str]] = {
    "a second hello": (lambda _: [Hello(10)], "a second Hello"),
    "not to be read": (lambda _: [b"\xff\xff"], "cannot be read"),
    "nothing": (lambda _: [b""], "nothing known"),
    "oversized": (lambda _: [b"\0" * 2_000_000], "a message of 2000000 bytes"),
    "a chunk of nothing": (lambda _: [Chunk(b"x")], "weights that were not announced"),
    "another's task": (lambda o: [result(replace(o, task=1))], "word of task 1,"),
    "another's failure": (lambda o: [Failure(o.task + 1, "")], "which it was not given"),
    "huge": (lambda o: [result(o, num_bytes=2**62)], "more than any weights here take"),
    "huge and packed": (lambda o: [result(o, num_bytes=2**40, zstd=True)], "more than any"),
    "byte by byte": (lambda o: [result(o), Chunk(b"x")], "a chunk of 1 bytes, not of 16"),
    "an empty chunk": (lambda o: [result(o), Chunk(b"")], "a chunk of 0 bytes"),
    "too long a chunk": (lambda o: [result(o), Chunk(bytes(17))], "a chunk of 17 bytes"),
    "one in another": (lambda o: [result(o), result(o)], "in the middle of another"),
    "twice": (
        lambda o: [*said_result(o.task, *pack(np.zeros(4, np.float32)))] * 2,
        "which it was not given",
    ),
    "at once, too short": (lambda o: [result(o, data=bytes(15))], "15 bytes where 16"),
    "at once, too long": (lambda o: [result(o, data=bytes(17))], "17 bytes where 16"),
    "at once, and again": (
        lambda o: [result(o, data=bytes(16)), Chunk(bytes(16))],
        "weights that were not announced",
    ),
}


@pytest.mark.parametrize("kind", SECOND_WORDS)
def test_words_nobody_says(net: Network, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    make, why = SECOND_WORDS[kind]
    with caplog.at_level(logging.WARNING, "pisces"):
        client, order = given_task(net)
        before = net.stats.refused["malformed"]
        client.say(*make(order))
        ended = client.ended()
        assert ended.code.name == "INVALID_ARGUMENT"
        assert why in ended.details
        net.becomes(lambda: net.stats.refused["malformed"] == before + 1)
        assert caplog.messages == [f"hung up on {client.name} ({LOOPBACK}): {ended.details}"]


BAD_RESULTS: dict[str, tuple[Callable[[Order], list[Any]], str]] = {
    "too few bytes": (
        lambda o: [result(o, num_bytes=15), Chunk(bytes(15))],
        "15 bytes of weights, not 16",
    ),
    "of doubles": (
        lambda o: [result(o, encoding="float64", num_bytes=32), Chunk(bytes(32))],
        "weights of float64, not float32",
    ),
    "at once": (lambda o: [result(o, num_bytes=15, data=bytes(15))], "15 bytes of weights, not 16"),
    "nothing": (lambda o: [result(o, num_bytes=0)], "0 bytes of weights, not 16"),
    "another layout": (
        lambda o: [result(o, layout=DIGEST ^ 1), Chunk(bytes(16))],
        "weights in another layout",
    ),
    "packed badly": (
        lambda o: [result(o, num_bytes=4, zstd=True), Chunk(b"1234")],
        "compressed weights",
    ),
}


@pytest.mark.parametrize("kind", BAD_RESULTS)
def test_a_bad_result_fails_its_task_and_its_client_stays(net: Network, kind: str) -> None:
    make, why = BAD_RESULTS[kind]
    client, order = given_task(net)
    client.say(*make(order), Beat())
    assert client.expect(Acknowledged) == Acknowledged(order.task)  # it is to be forgotten
    assert isinstance(client.expect(Beat), Beat)
    [failed] = net.heard()
    assert isinstance(failed, Failed)
    assert failed.task_id == order.task
    assert failed.reason.startswith(f"its result cannot be used: {why}")


def test_what_the_server_cannot_decompress_fails_its_task(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been packed for another machine, where the package was."""
    client, order = given_task(net)
    packed = pack(np.zeros(4, np.float32), zstd=True)
    missing = MissingPackageError("zstandard is not here")
    monkeypatch.setattr("pisces.execute.network.packing._zstandard", Mock(side_effect=missing))
    client.say(*said_result(order.task, *packed))
    assert client.expect(Acknowledged) == Acknowledged(order.task)
    [failed] = net.heard()
    assert isinstance(failed, Failed)
    assert "zstandard is not here" in failed.reason


@pytest.mark.parametrize("encoding", ["float32", "float16"])
@pytest.mark.parametrize("was", ["float32", "float16"])
def test_what_was_packed_for_an_earlier_server_is_taken(encoding: str, was: str) -> None:
    """A resumed run may ask for another encoding while clients hold results in the old one."""
    with network(encoding=encoding) as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        began = client.weights[client.order().version]
        new = began + np.float32(0.25)
        client.say(*said_result(0, *(pack(new) if was == "float32" else pack_step(new, began))))
        [event] = net.heard()
        assert isinstance(event, Arrived)
        assert event.weights.flat.tolist() == [0.25, 0.25, 0.25, 1.25]


def test_a_flood_is_told_to_come_back_later(net: Network) -> None:
    [client] = net.joined(next(NAMES))
    client.say(*[Beat()] * 700)
    ended = client.ended()
    assert (ended.code.name, ended.details) == ("RESOURCE_EXHAUSTED", "it says too much at once")
    net.becomes(lambda: net.stats.refused["says too much"] == 1)


def test_word_of_tasks_that_were_given_is_never_too_much() -> None:
    with network(messages_per_s=1.0) as net:  # 100 at once
        [client] = net.begun("quick")
        for number in range(150):
            net.executor.submit(task(number, 0))
            net.executor.send()
            order = client.order()
            client.say(*(client.result(order) if number % 2 else [Failure(number, "no luck")]))
            net.heard()


def test_word_of_one_task_over_and_over_is_too_much() -> None:
    with network(messages_per_s=1.0) as net:
        [client] = net.begun("a")
        net.executor.submit(task(0, 0))
        net.executor.send()
        client.say(*[Failure(client.order().task, "no luck")] * 150)
        assert client.ended().code.name == "RESOURCE_EXHAUSTED"


FIRST_WORDS: dict[str, tuple[Any, str, str]] = {
    "a beat": (Beat(), "INVALID_ARGUMENT", "the first word was no Hello"),
    "a goodbye": (Bye(), "INVALID_ARGUMENT", "the first word was no Hello"),
    "garbage": (b"\x0a\xff", "INVALID_ARGUMENT", "cannot be read"),
    "oversized": (b"\0" * 2_000_000, "INVALID_ARGUMENT", "a message of 2000000 bytes"),
    "no name": (Hello(10), "PERMISSION_DENIED", "a name has 1 to 64 letters"),
    "no file's name": (Hello(10, name=".."), "PERMISSION_DENIED", "neither . nor .."),
    "an odd name": (Hello(10, name="../a"), "PERMISSION_DENIED", "a name has 1 to 64"),
    "no examples": (Hello(0, name="x"), "PERMISSION_DENIED", "0 examples, outside"),
    "a huge count": (Hello(2**62, name="x"), "PERMISSION_DENIED", "examples, outside"),
    "a huge number": (Hello(9, name="x", wished=2**62), "PERMISSION_DENIED", "beyond the"),
    "another's number": (Hello(9, name="x", wished=0), "PERMISSION_DENIED", "another client"),
    "a later protocol": (Hello(9, name="x", protocol=2), "PERMISSION_DENIED", "speaks version 2"),
}


@pytest.mark.parametrize("kind", FIRST_WORDS)
def test_first_words_nobody_says(net: Network, kind: str) -> None:
    word, code, why = FIRST_WORDS[kind]
    client = net.raw()
    client.say(word)
    ended = client.ended()
    assert ended.code.name == code
    assert why in ended.details


def test_a_first_word_far_too_long(net: Network) -> None:
    client = net.raw()
    client.say(b"\0" * 9_000_000)
    ended = client.ended()  # by gRPC itself: why, is heard unless the line is cut before
    assert ended.code.name in ("RESOURCE_EXHAUSTED", "UNAVAILABLE")


def test_nothing_said_in_time(net: Network) -> None:
    before = net.stats.refused["no hello"]
    client = net.raw()
    ended = client.ended()
    assert (ended.code.name, ended.details) == ("UNAVAILABLE", "no Hello came in time")
    assert net.stats.refused["no hello"] == before + 1


def test_many_lies_are_logged_once(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    name = next(NAMES)
    with caplog.at_level(logging.WARNING, "pisces"):
        for number in range(5):
            client = net.raw(name)
            client.join()
            client.say(Failure(number, ""))
            client.ended()
    assert len(caplog.messages) == 1


def test_who_connects_too_often_is_told_to_wait() -> None:
    with network(connects_per_minute=1.0) as net:
        net.executor.open()
        codes = []
        for _ in range(8):
            client = net.raw("pushy")
            client.say(Hello(10, name="pushy"))
            with suppress(Exception):
                client.expect(Welcome)
                continue
            codes.append(client.ended().code.name)
        assert codes == ["RESOURCE_EXHAUSTED"] * 3
        assert net.stats.refused["connects too often"] == 3
        net.joined("another")


def test_who_says_nothing_takes_a_place_until_its_time_is_up() -> None:
    """Connections are counted before it is known whose they are."""
    with network(max_connections=2, handshake_s=0.5) as net:
        net.executor.open()
        net.joined("a")
        net.raw()
        net.becomes(lambda: net.executor._service._num_talking == 2)
        assert net.raw("b").ended().details == "the server is full: try again later"
        net.becomes(lambda: net.executor._service._num_talking == 1)
        net.joined("b")
        assert net.stats.refused == {"full": 1, "no hello": 1}


def test_more_than_may_come_are_told_so_and_may_when_others_go() -> None:
    with network(max_connections=2) as net:
        net.executor.open()
        first, _ = net.joined("a", "b")
        third = net.raw("c")
        assert third.ended().details == "the server is full: try again later"
        assert net.stats.refused == {"full": 1}
        first.hang_up()
        net.becomes(lambda: net.stats.num_connected == 1)
        net.joined("c")


def port_of(net: Network) -> tuple[str, int]:
    host, _, port = net.executor.address.rpartition(":")
    return host, int(port)


def is_closed(line: socket.socket) -> bool:
    """Does the other end hang up, soon?"""
    line.settimeout(5.0)
    try:
        while line.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b"\0" * 999]
)
def test_raw_bytes_are_hung_up_on(net: Network, data: bytes) -> None:
    with socket.create_connection(port_of(net)) as line:
        line.sendall(data)
        assert is_closed(line)


def test_an_http2_connection_without_a_call_is_hung_up_on(net: Network) -> None:
    with socket.create_connection(port_of(net)) as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        assert is_closed(line)


def test_a_crowd_of_open_connections_disturbs_nobody(net: Network) -> None:
    lines = [socket.create_connection(port_of(net)) for _ in range(100)]
    serve(net)
    for line in lines:
        line.close()


def test_a_result_that_never_comes_to_its_end_counts_as_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beats do not help who is in the middle of one: only its chunks are signs of life."""
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)
    with network(beat_s=0.1, patience_s=0.1) as net:
        net.begun("honest")
        client = net.raw("slow")
        client.join()
        net.heard()
        net.executor.submit(task(0, 1))
        net.executor.send()
        client.say(result(client.order()))
        for _ in range(20):
            net.clients[0].say(Beat())
            client.say(Beat())
            time.sleep(0.03)
        assert client.ended().details == "nothing was heard of it"
        assert net.stats.num_connected == 1


def test_a_result_that_takes_long_is_not_taken_for_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)
    num_chunks = 6
    size = num_chunks * CHUNK_BYTES // 4
    large = Layout((Slice("w", (size,), "float32", "parameter", 0, size),))
    with network(layout=large, beat_s=0.3) as net:  # 0.9 s are silence
        [client] = net.begun("a")
        weights = Weights(torch.zeros(large.size), large)
        net.executor.submit(replace(task(0, 0), weights=weights))
        net.executor.send()
        announced, *chunks = client.result(client.order())
        assert len(chunks) == num_chunks
        client.say(announced)
        for chunk in chunks:
            time.sleep(0.25)
            client.say(chunk)
        assert [type(event) for event in net.heard()] == [Arrived]


def test_who_does_not_read_and_talks_all_the_time_is_cut_off() -> None:
    large = Layout((Slice("w", (4_000_000,), "float32", "parameter", 0, 4_000_000),))
    with network(layout=large, messages_per_s=1e6) as net:
        net.executor.open()
        deaf = net.raw("deaf", reads=False)
        deaf.say(Hello(10, name="deaf"))
        net.heard()
        weights = Weights(torch.zeros(large.size), large)
        net.executor.submit(replace(task(0, 0), weights=weights))
        net.executor.send()
        [honest] = net.joined("honest")
        net.heard()
        deaf.say(*[Beat()] * 1100)  # each of which is answered, when it can be
        net.becomes(lambda: net.stats.refused["does not read"] == 1)
        net.executor.submit(replace(task(1, 1), weights=weights))
        net.executor.send()
        honest.answer(honest.order())
        assert isinstance(net.heard()[0], Arrived)
        assert net.stats.num_connected == 1


def test_lines_that_are_not_read_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    large = Layout((Slice("w", (4_000_000,), "float32", "parameter", 0, 4_000_000),))
    with network(layout=large) as net:
        [first] = net.begun("deaf")
        weights = Weights(torch.zeros(large.size), large)
        net.executor.submit(replace(task(0, 0), weights=weights))
        net.executor.send()
        first.order()
        service = net.executor._service
        for number in range(1, 7):
            net.raw("deaf", reads=False).say(Hello(10, name="deaf"))
            net.becomes(lambda number=number: net.stats.refused["replaced"] == number)  # type: ignore[misc]
            time.sleep(0.05)  # to be sent weights, which it does not read
        assert service._num_lines["deaf"] <= 8
        net.joined("another")
        for client in net.clients:
            client.hang_up()
        net.becomes(lambda: service._num_talking == 0)
        assert not service._num_lines
    assert "Traceback" not in caplog.text


def test_who_is_hung_up_on_amid_weights_hears_why() -> None:
    """Or it would take its place back after a while, from who has it now."""
    large = Layout((Slice("w", (4_000_000,), "float32", "parameter", 0, 4_000_000),))
    with network(layout=large) as net:
        net.executor.open()
        slow = net.raw("a", reads=False)
        slow.say(Hello(10, name="a"))
        net.heard()
        weights = Weights(torch.zeros(large.size), large)
        net.executor.submit(replace(task(0, 0), weights=weights))
        net.executor.send()
        net.becomes(lambda: net.stats.sent_bytes > 0)
        time.sleep(0.1)  # for as much of the weights to be sent as goes without being read
        net.joined("a")
        net.becomes(lambda: net.stats.refused["replaced"] == 1)
        threading.Thread(target=slow._read, daemon=True).start()
        ended = slow.ended()
        assert (ended.code.name, ended.details) == ("ABORTED", "a newer connection has this name")
        net.becomes(lambda: net.executor._service._num_lines["a"] == 1)


def test_who_is_hung_up_on_while_it_is_greeted_hears_why() -> None:
    """It has more tasks to be told of than may wait to be said."""
    with network() as net:
        net.executor.open()
        run = net.executor._roster.run
        [client] = net.joined("a", run=run, trains=tuple(range(1, MOST_TASKS + 1)))
        ended = client.ended()
        assert ended.code.name == "RESOURCE_EXHAUSTED"
        assert ended.details == "it does not read what it is told"
        net.becomes(lambda: net.executor._service._num_talking == 0)


class Cable:
    """Between a client and the server, until it is cut: nobody hears of that."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_whole = threading.Event()
        self.is_whole.set()
        self._to = to
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._to)
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.is_whole.wait()
                target.sendall(data)


def test_a_cable_that_was_cut_in_the_middle_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)
    large = Layout((Slice("w", (4_000_000,), "float32", "parameter", 0, 4_000_000),))
    with network(layout=large, beat_s=0.2, patience_s=0.1) as net:
        net.executor.open()
        cable = Cable(port_of(net))
        client = Raw(cable.address, "a")
        net.clients.append(client)
        client.join()
        net.heard()
        cable.is_whole.clear()
        net.executor.submit(replace(task(0, 0), weights=Weights(torch.zeros(large.size), large)))
        net.executor.send()
        assert net.heard() == [Left(net.executor.now, 0, "did not come back", 0)]
        net.becomes(lambda: net.executor._service._num_talking == 0)
        cable.is_whole.set()


def test_a_part_of_the_weights_is_not_taken_for_all_of_them() -> None:
    large = Layout((Slice("w", (300_000,), "float32", "parameter", 0, 300_000),))
    with network(layout=large) as net:
        [client] = net.begun("a")
        weights = Weights(torch.zeros(large.size), large)
        net.executor.submit(replace(task(0, 0), weights=weights))
        net.executor.send()
        content = {"num_bytes": 1_200_000, "data": bytes(1 << 20)}
        client.say(result(client.order(), **content))
        assert client.ended().details == "1048576 bytes where 1200000 were announced"
        net.nothing_heard()


def test_lines_of_one_name_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.MOST_LINES", 1)
    with network() as net:
        [client] = net.begun("a")
        again = net.raw("a")
        again.say(Hello(10, name="a"))
        assert again.ended().code.name == "RESOURCE_EXHAUSTED"
        client.hang_up()
        net.becomes(lambda: net.stats.num_connected == 0)
        net.joined("a")


def test_a_mistake_of_the_server_is_logged_and_ends_only_that_conversation(
    net: Network, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    [client] = net.joined(next(NAMES))
    drain(net)
    with monkeypatch.context() as patched:
        patched.setattr(type(net.executor._desk), "bye", lambda *_: 1 / 0)
        client.say(Bye())
        assert client.ended().code.name == "INTERNAL"
    assert "ZeroDivisionError" in caplog.text
    net.executor._service.post(lambda: 1 // 0, lambda: caplog.set_level(logging.INFO))  # type: ignore[arg-type,return-value]
    net.becomes(lambda: "in what it was about to say" in caplog.text)


# --- with certificates ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    authority = create(folder, "Authority", 9)
    authority.server(["127.0.0.1"], 9)
    authority.clients(["honest", "revoked"], 9)
    return folder


def credentials(folder: Path, name: str) -> Any:
    return channel_credentials(Identity.load(folder / f"clients/{name}.pem"))


def test_names_are_those_of_certificates(folder: Path) -> None:
    with network(Guarded.of(folder), handshake_s=0.5) as net:
        net.executor.open()
        client = net.raw("another", credentials=credentials(folder, "honest"))
        client.join()
        assert net.executor._roster.names == {0: "honest"}


def test_garbage_and_stalled_handshakes_disturb_nobody(folder: Path) -> None:
    with network(Guarded.of(folder), handshake_s=0.5) as net:
        net.executor.open()
        good = Good(net.raw(credentials=credentials(folder, "honest")))
        good.start()
        net.heard()
        lines = [socket.create_connection(port_of(net)) for _ in range(4)]
        lines[0].sendall(b"garbage" * 9)
        lines[1].sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a handshake
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        lines[2].settimeout(5.0)
        with suppress(OSError):
            lines[2] = context.wrap_socket(lines[2])  # without a certificate
        for number in range(3):
            net.executor.submit(task(number, 0))
            assert isinstance(net.heard()[0], Arrived)
        assert all(map(is_closed, lines))


def test_who_is_revoked_meanwhile_has_to_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)
    with network(Guarded.of(folder)) as net:
        net.executor.open()
        honest = net.raw(credentials=credentials(folder, "honest"))
        revoked = net.raw(credentials=credentials(folder, "revoked"))
        honest.join()
        revoked.join()
        Authority(folder).revoke("revoked")
        ended = revoked.ended()
        assert (ended.code.name, ended.details) == (
            "PERMISSION_DENIED",
            "its certificate is revoked",
        )
        again = net.raw(credentials=credentials(folder, "revoked"))
        with pytest.raises(HungUpError, match="the certificate of revoked is revoked"):
            again.join()  # it is not even made welcome
        assert net.stats.refused == {"revoked": 2}
        honest.say(Beat())
        assert isinstance(honest.hear(), Beat)


def test_whose_certificate_expires_meanwhile_has_to_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)
    with monkeypatch.context() as patched:
        soon = datetime.now(UTC) + timedelta(seconds=3)
        patched.setattr(signing, "_in", lambda _: soon)
        Authority(folder).clients(["brief"], 1)
    with network(Guarded.of(folder)) as net:
        net.executor.open()
        brief = net.raw(credentials=credentials(folder, "brief"))
        brief.join()
        ended = brief.ended()
        assert ended.code.name == "PERMISSION_DENIED"
        assert ended.details == "its certificate has expired: renew it"
        assert datetime.now(UTC) >= soon.replace(microsecond=0)
        assert net.stats.refused == {"expired": 1}


def test_the_revocation_list_is_looked_at_once_a_round(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, looks = Guarded.of(folder), []
    stamp = Revoked._stamp
    monkeypatch.setattr(Revoked, "_stamp", lambda self: (looks.append(1), stamp(self))[1])
    assert door.unwelcome([Peer(f"c{number}", number) for number in range(9)]) == {}
    assert len(looks) == 1


def test_rounds_go_on_after_a_mistake(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pisces.execute.network.server.service.ROUND_S", 0.05)

    class Broken(Open):
        def unwelcome(self, peers: Iterable[Peer]) -> dict[Peer, Ending]:
            raise ZeroDivisionError

    with network(Broken(), beat_s=0.1) as net, caplog.at_level(logging.WARNING, "pisces"):
        [client] = net.begun("a")
        assert client.ended().details == "nothing was heard of it"
        said = "cannot see who has to go, and tries on: ZeroDivisionError()"
        assert caplog.messages.count(said) == 1


# --- anything -------------------------------------------------------------------------------------

TASK = 0  # stands for the one that was given
plain = Content("float32", 16)
contents = [
    plain,
    replace(plain, data=bytes(16)),
    replace(plain, num_bytes=15),
    Content("float16", 8, scale=1.0, data=bytes(8)),
    Content("float32", 15, zstd=True),
]
said = st.sampled_from(
    [
        *(Beat(), Bye(), Hello(10, name="fuzz"), Failure(TASK, "x"), Failure(1, "x")),
        *(Chunk(bytes(16)), Chunk(bytes(15)), Chunk(b"")),
        *(Result(TASK, Report(10), content, DIGEST) for content in contents),
        Result(1, Report(10), Content("float16", 8, zstd=True), DIGEST),
    ]
)
ENDS = ("OK", "INVALID_ARGUMENT", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAVAILABLE")


def of_task(word: FromClient, number: int) -> FromClient:
    is_of_it = isinstance(word, Result | Failure) and word.task == TASK
    return replace(word, task=number) if is_of_it else word  # type: ignore[type-var]


Damage = tuple[int, int] | None


def damaged(data: bytes, damage: Damage) -> bytes:
    if damage is None or not data:
        return data
    place, value = damage
    place %= len(data)
    return data[:place] + bytes([value]) + data[place + 1 :]


damages = st.none() | st.tuples(st.integers(0, 99), st.integers(0, 255))
spoken = st.tuples(said, damages) | st.binary(max_size=40)


@settings(max_examples=80)
@given(st.lists(spoken, max_size=12))
def test_any_words_in_any_order_of_who_has_a_task(
    net: Network, words: list[tuple[FromClient, Damage] | bytes]
) -> None:
    """The conversation ends in order, the task at most once, and with nothing but floats."""
    client, order = given_task(net)
    for word in words:
        if isinstance(word, bytes):
            client.say(word)
        else:
            client.say(damaged(to_server(of_task(word[0], order.task)), word[1]))
    client.stop_talking()
    assert client.ended().code.name in ENDS
    client.hang_up()
    net.clients.remove(client)
    ends = [e for e in heard_by_now(net) if getattr(e, "task_id", None) == order.task]
    assert len(ends) <= 1
    assert all(e.weights.flat.shape == (4,) for e in ends if isinstance(e, Arrived))
    net.executor.cancel(order.task)


@settings(max_examples=30)
@given(st.lists(spoken, max_size=6))
def test_any_words_of_who_was_not_let_in(
    net: Network, words: list[tuple[FromClient, Damage] | bytes]
) -> None:
    client = net.raw("fuzz")
    for word in words:
        client.say(word if isinstance(word, bytes) else damaged(to_server(word[0]), word[1]))
    client.stop_talking()
    assert client.ended().code.name in ENDS
    client.hang_up()
    net.clients.remove(client)


@settings(max_examples=40)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_to_the_port(net: Network, data: bytes, as_http2: bool) -> None:
    """They are hung up on, and whoever is there is answered meanwhile."""
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    with socket.create_connection(port_of(net)) as line:
        with suppress(OSError):
            line.sendall(start + data if as_http2 else data)
            line.shutdown(socket.SHUT_WR)
        net.clients[0].say(Beat())
        assert net.clients[0].expect(Beat) == Beat()
        assert is_closed(line)
