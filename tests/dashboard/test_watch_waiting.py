"""Whoever connects and does not ask keeps nobody else from the page."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from watching_pages import ask

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from pisces.dashboard import serving
from pisces.dashboard.guard import AtMost, Guard

TOKEN = "0123456789abcdef"
KNOWN = f"GET / HTTP/1.1\r\nHost: x\r\nCookie: pisces-watch={TOKEN}\r\n\r\n".encode()
UNKNOWN = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


LARGE = b"x" * 20_000_000  # more than systems take for somebody who does not read


async def much(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] != "/much":
        await hello(scope, receive, send)
        return
    headers = [(b"content-length", str(len(LARGE)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": LARGE})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A page for those who have the token, served in this process."""
    monkeypatch.setattr(serving, "WHOLE_S", 1.0)
    listening = serving._listen("127.0.0.1", 0)
    server = serving._server(Guard(AtMost(much, 2), TOKEN, is_near=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield int(listening.getsockname()[1])
    server.should_exit = True
    thread.join(timeout=20)
    listening.close()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def asked(port: int, request: bytes = KNOWN) -> bytes:
    with connected(port) as one:
        one.sendall(request)
        return one.recv(12)


def trickle(one: socket.socket) -> None:
    for _ in range(200):
        one.sendall(b"x")
        time.sleep(0.05)


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1000) == b""
    except ConnectionError:
        return True


def test_a_request_that_never_ends_is_not_waited_for_however_it_trickles(port: int) -> None:
    with connected(port) as silent, connected(port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            trickle(slow)
        assert 0.9 < time.monotonic() - began < 5
        assert is_closed(silent)


def test_who_goes_on_asking_may_stay(port: int) -> None:
    with connected(port) as one:
        for _ in range(5):
            one.sendall(KNOWN)
            told = one.recv(4000)
            while not told.endswith(b"hello"):  # it may come in parts
                told += one.recv(4000)
            assert told.startswith(b"HTTP/1.1 200")
            time.sleep(0.4)


def test_who_may_not_ask_need_not_stay(port: int) -> None:
    with connected(port) as one:
        one.sendall(UNKNOWN)
        told = b""
        while more := one.recv(4000):
            told += more
        assert told.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in told


def test_those_who_do_not_ask_do_not_count(port: int) -> None:
    with ExitStack() as all_of_them:
        for _ in range(50):
            all_of_them.enter_context(connected(port)).sendall(b"GET / HTTP/1.1\r\n")
        assert asked(port) == b"HTTP/1.1 200"


def test_of_too_many_connections_the_one_that_waits_longest_goes(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "WHOLE_S", 60.0)
    monkeypatch.setattr(serving, "MAX_CONNECTED", 3)
    with ExitStack() as all_of_them:
        ones = []
        for _ in range(5):
            ones.append(all_of_them.enter_context(connected(port)))
            time.sleep(0.05)
        assert [is_closed(one) for one in ones[:2]] == [True, True]
        for one in ones[2:]:
            one.sendall(KNOWN)
            assert one.recv(12) == b"HTTP/1.1 200"


def test_a_header_has_an_end(port: int) -> None:
    with connected(port) as one:
        try:
            one.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 100 * serving.MAX_HEADER)
            assert one.recv(12) == b"HTTP/1.1 400"
        except ConnectionError:
            pass  # it hung up meanwhile
    long = KNOWN.replace(b"GET /", b"GET /?find=" + b"x" * 16_000)
    assert asked(port, long) == b"HTTP/1.1 200"


def test_whoever_fails_makes_room_again() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        assert guarded.free == 0
        if scope["path"] == "/second":
            await hello(scope, receive, send)
        elif scope["path"] == "/first":
            inner.append(await asyncio.to_thread(ask, guarded, "/second"))
            await hello(scope, receive, send)
        else:
            raise ZeroDivisionError

    inner: list[Any] = []
    guarded = AtMost(broken, 1)
    with pytest.raises(ZeroDivisionError):
        ask(guarded, "/")
    assert ask(guarded, "/first").status == 200
    assert [reply.status for reply in inner] == [503]
    assert ask(guarded, "/second").status == 200


MUCH = KNOWN.replace(b"GET / ", b"GET /much ")


def test_who_never_reads_an_answer_is_hung_up_on(port: int) -> None:
    with connected(port) as one:
        one.sendall(MUCH)
        assert one.recv(12) == b"HTTP/1.1 200"
        time.sleep(3.0)  # two looks, and nothing was taken between them
        num_bytes = 0
        with suppress(ConnectionError):
            while part := one.recv(1 << 20):
                num_bytes += len(part)
        assert num_bytes < len(LARGE)


def test_answers_that_nobody_takes_make_room_for_others(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(2):  # as many as are answered at once, the second answers waiting to be sent
            stack.enter_context(connected(port)).sendall(2 * MUCH)
        until = time.monotonic() + 10.0
        while asked(port) != b"HTTP/1.1 200":
            assert time.monotonic() < until
            time.sleep(0.1)


def test_who_reads_slowly_gets_all(port: int) -> None:
    with connected(port) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        one.sendall(MUCH)
        num_bytes, began = 0, time.monotonic()
        while num_bytes < len(LARGE):
            part = one.recv(1 << 18)
            assert part
            num_bytes += len(part)
            time.sleep(0.04)
        assert time.monotonic() - began > 2.0  # it was looked at on the way


def test_many_who_never_read_keep_nobody_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTED", 6)
    monkeypatch.setattr(serving, "WHOLE_S", 60.0)  # nobody is hung up on for waiting
    with ExitStack() as stack:
        for _ in range(12):
            one = stack.enter_context(connected(port))
            with suppress(ConnectionError):
                one.sendall(MUCH)
        assert asked(port) == b"HTTP/1.1 200"
