"""Who may ask, and what every answer carries, before anything else is looked at.

A page of somebody else's that is open in the same browser must not read runs: whose name leads to
this machine by a trick (DNS rebinding) is told by the `Host` it asks for, and on other machines'
behalf everybody needs the token. Whatever comes out of a log, the browser runs none of it: see
`POLICY`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from pisces.loopback import is_loopback

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

# The charts set some style attributes to nothing at all: the hash of nothing lets them, and nothing
# else. All other styles of theirs go through the object model, which needs no leave.
EMPTY = "'unsafe-hashes' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; "
    f"style-src 'self'; style-src-attr {EMPTY}; "
    "img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
TOKEN = "token"  # as the address has it
NO_TOKEN = (
    "This page needs the whole link that `pisces watch` printed, with its token. "
    "Open it once from there; this browser remembers it until it is closed.\n"
)
BUSY = "Too many ask at once: try again.\n"


@dataclass(frozen=True, slots=True)
class Guard:
    """Around the app: refuses what must not come in.

    Where only this machine can reach it, it is asked for by a name of this machine, however that is
    spelt (a browser spells addresses its own way); elsewhere by any, since a token is demanded.
    `cookie` is where a browser keeps the token, named after the port because cookies do not know of
    ports.
    """

    app: App
    token: str | None = None
    cookie: str = "pisces-watch"
    is_near: bool = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] != "http":
            return
        is_first = self._brings_token(scope)
        guarded = self._sending(send, with_cookie=is_first)
        refusal = self._refusal(scope, is_first)
        if refusal is None:
            await self.app(scope, receive, guarded)
        else:
            await say(guarded, *refusal)

    def _refusal(self, scope: Scope, is_first: bool) -> tuple[int, str] | None:
        if self.is_near and not is_loopback(_name(_header(scope, b"host"))):
            return 421, "Ask for the address that `pisces watch` printed.\n"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "Only GET and HEAD are answered here.\n"
        if self.token is not None and not is_first and not self._is_remembered(scope):
            return 401, NO_TOKEN
        return None

    def _brings_token(self, scope: Scope) -> bool:
        """Is it in the address? The page takes it out of there as soon as it is open."""
        if self.token is None or scope["path"] != "/":
            return False
        try:
            given = parse_qs(scope["query_string"].decode("ascii"), max_num_fields=20)
        except ValueError:
            return False
        return any(self._is_token(value) for value in given.get(TOKEN, ()))

    def _is_remembered(self, scope: Scope) -> bool:
        """Among the cookies: those of other programs here may look like anything."""
        parts = (part.strip().partition("=") for part in _header(scope, b"cookie").split(";"))
        return any(name == self.cookie and self._is_token(value) for name, _, value in parts)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.token or "").encode())

    def _sending(self, send: Send, *, with_cookie: bool) -> Send:
        extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        if with_cookie:
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            extra.append((b"set-cookie", cookie.encode()))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name.lower() == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*headers, *extra]}
            await send(message)

        return guarded


class AtMost:
    """So many requests are answered at once; what is refused before does not count."""

    def __init__(self, app: App, most: int) -> None:
        self.app, self.free = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, if not too many others are being answered."""
        if not self.free:
            await say(send, 503, BUSY)
            return
        self.free -= 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.free += 1


def _header(scope: Scope, wanted: bytes) -> str:
    """The value of a header; nothing where it is not there exactly once."""
    values = [value for name, value in scope["headers"] if name == wanted]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _name(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


async def say(send: Send, status: int, text: str) -> None:
    """Refuse, and hang up: who may not ask need not stay."""
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
