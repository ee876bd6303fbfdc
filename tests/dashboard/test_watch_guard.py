"""Who may ask, and what every answer carries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import pytest
from watching_pages import ask

from pisces.dashboard.guard import EMPTY, HEADERS, Guard

TOKEN = "abcdefghijklmnopqrstuvwx"


async def fine(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"secret"})


NEAR = Guard(fine)
FAR = Guard(fine, TOKEN, "kept", is_near=False)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8000", "127.0.0.1", "127.1.2.3:80", "localhost:1", "LOCALHOST"),
        *("[::1]:80", "[::1]", "[::ffff:127.0.0.1]:80", "[::FFFF:127.0.0.1]"),
        "[::ffff:7f00:1]:80",  # as browsers spell it
    ],
)
def test_this_machine_is_asked_by_its_own_names(host: str) -> None:
    assert ask(NEAR, "/", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", None),
        *("127.0.0.1@evil:80", "0.0.0.0", "[::]:80", "10.0.0.1", "[::ffff:10.0.0.1]", "localhost."),
    ],
)
def test_another_name_that_leads_here_is_refused(host: str | None) -> None:
    reply = ask(NEAR, "/api/runs", host=host)
    assert reply.status == 421
    assert b"secret" not in reply.body


def test_two_hosts_are_none() -> None:
    assert ask(NEAR, "/", headers=[("host", "evil.example")]).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_the_page_is_only_looked_at(method: str) -> None:
    reply = ask(NEAR, "/api/runs", method=method)
    assert (reply.status, reply.body) == (405, b"Only GET and HEAD are answered here.\n")


@pytest.mark.parametrize("guard", [NEAR, FAR])
def test_every_answer_carries_the_headers(guard: Guard) -> None:
    for reply in (ask(guard, "/"), ask(guard, "/", method="POST"), ask(guard, "/", host="evil")):
        assert reply.headers.items() >= HEADERS.items()
        assert reply.headers["cache-control"] == "no-store"


def test_the_policy_lets_nothing_in_but_our_own_files_and_nobody_frame_them() -> None:
    rules = [rule.split() for rule in HEADERS["content-security-policy"].split("; ")]
    own, nothing = ["'self'"], ["'none'"]
    assert {name: allowed for name, *allowed in rules} == {
        "default-src": nothing,
        "script-src": own,
        "connect-src": own,
        "style-src": own,
        "style-src-attr": EMPTY.split(),
        "img-src": ["'self'", "data:"],
        "font-src": own,
        "base-uri": nothing,
        "form-action": nothing,
        "frame-ancestors": nothing,
    }
    digest = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    assert f"'unsafe-hashes' 'sha256-{digest}'" == EMPTY


def test_without_the_token_nothing_is_seen() -> None:
    for path in ("/", "/api/runs", "/static/main.js"):
        reply = ask(FAR, path)
        assert reply.status == 401
        assert b"secret" not in reply.body
        assert "set-cookie" not in reply.headers


def test_the_link_lets_in_and_is_remembered_in_a_cookie_no_script_can_read() -> None:
    reply = ask(FAR, "/", {"token": TOKEN})
    assert reply.status == 200
    cookie = reply.headers["set-cookie"]
    assert cookie == f"kept={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert ask(FAR, "/api/runs", headers=[("cookie", f"kept={TOKEN}")]).status == 200


@pytest.mark.parametrize("wrong", ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 24])
def test_a_wrong_token_is_none(wrong: str) -> None:
    assert ask(FAR, "/", {"token": wrong}).status == 401
    assert ask(FAR, "/api/runs", headers=[("cookie", f"kept={wrong}")]).status == 401


def test_the_token_counts_in_the_address_of_the_page_only() -> None:
    assert ask(FAR, "/api/runs", {"token": TOKEN}).status == 401


@pytest.mark.parametrize("cookie", ['kept="', "kept", ";;;", "other=1", "kept=\x01", "=" * 5000])
def test_odd_cookies_are_no_trouble(cookie: str) -> None:
    assert ask(FAR, "/", headers=[("cookie", cookie)]).status == 401


def test_odd_queries_are_no_trouble() -> None:
    assert ask(FAR, "/", "token=%ff%fe&" + "a=1&" * 50).status == 401
    assert ask(FAR, "/", "token=\xff").status == 401


def test_web_sockets_are_not_let_in() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    asyncio.run(NEAR({"type": "websocket", "headers": [], "path": "/"}, receive, send))
    assert [message["type"] for message in sent] in ([], ["websocket.close"])
