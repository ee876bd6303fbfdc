"""Serving the page until somebody has seen enough."""

from __future__ import annotations

import asyncio
import errno
import math
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any
from urllib.parse import quote

from pisces.dashboard.app import app
from pisces.dashboard.extra import needed
from pisces.dashboard.guard import TOKEN, AtMost, Guard
from pisces.dashboard.index import Index
from pisces.errors import ConfigError, RunError
from pisces.loopback import is_loopback

with needed():
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

MIN_TOKEN = 16  # characters of a token that somebody chose
MAX_OPEN = 200  # requests at once
# Whoever has no token can still connect: what follows keeps them from shutting out the others.
WHOLE_S = 10.0  # from a connection's beginning, or its last answer, to the next whole request
MAX_HEADER = 1 << 16  # bytes: our longest question has 16 000 characters
MAX_CONNECTED = 500  # asking or not; systems let a program have 1024 files or more


@dataclass(frozen=True, slots=True)
class Address:
    """Where the page is, and what whoever opens it must know."""

    host: str
    port: int
    token: str | None

    @property
    def link(self) -> str:
        """What to open; with the token, if there is one."""
        link = f"http://{_named(self.host)}:{self.port}/"
        return link if self.token is None else f"{link}?{TOKEN}={quote(self.token)}"

    @property
    def is_near(self) -> bool:
        """Can it be reached from this machine only?"""
        return is_loopback(self.host)


class Patient(H11Protocol):
    """A connection that ends when for too long no whole request comes, or no answer is taken."""

    _deadline: asyncio.TimerHandle | None = None
    _unread = math.inf  # bytes that were not taken at the last look

    def connection_made(self, transport: Any) -> None:
        """It has begun; where there are too many, the one that waits longest goes."""
        super().connection_made(transport)
        self._begin_to_wait()
        if len(self.connections) > MAX_CONNECTED:
            others = [c for c in self.connections if isinstance(c, Patient)]
            min(others, key=Patient._place).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        self._rest()

    def on_response_complete(self) -> None:
        """A request was answered, and the next may take its time."""
        super().on_response_complete()
        self._begin_to_wait()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_to_wait(self) -> None:
        self._rest()
        self._unread = math.inf
        self._deadline = self.loop.call_later(WHOLE_S, self._look)

    def _look(self) -> None:
        """Whoever takes what was answered, however slowly, has more time; so has the answer."""
        unread = self.transport.get_write_buffer_size()
        if 0 < unread < self._unread or (self._is_answering and not unread):
            self._unread = unread or math.inf
            self._deadline = self.loop.call_later(WHOLE_S, self._look)
        else:
            self._rest()
            self.transport.abort()

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _place(self) -> tuple[bool, float]:
        """The smaller, the sooner it goes where there are too many."""
        return self._is_answering, 0.0 if self._deadline is None else self._deadline.when()


def watch(
    folder: Path,
    tell: Callable[[Address], None],
    *,
    host: str,
    port: int,
    token: str | None,
) -> None:
    """Serve the page over the runs in `folder` until Ctrl-C; `tell` hears where it is."""
    host = host.removeprefix("[").removesuffix("]")  # as links have an address
    token = _token(host, token)
    listening = _listen(host, port)
    address = Address(host, listening.getsockname()[1], token)
    index = Index(folder.resolve())
    guarded = Guard(
        AtMost(app(index, pack_files=not address.is_near), MAX_OPEN),
        token,
        f"pisces-watch-{address.port}",
        is_near=address.is_near,
    )
    index.start()
    try:
        tell(address)
        _server(guarded).run(sockets=[listening])
    finally:
        index.stop()
        listening.close()


def _server(guarded: Guard) -> uvicorn.Server:
    config = uvicorn.Config(
        guarded,
        log_config=None,
        log_level="error",  # whoever sends what is no request does not get into the terminal
        access_log=False,  # it would hold the token
        server_header=False,
        lifespan="off",
        ws="none",
        http=Patient,
        h11_max_incomplete_event_size=MAX_HEADER,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def _token(host: str, token: str | None) -> str | None:
    if token is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if len(token) < MIN_TOKEN or not all(c.isascii() and (c.isalnum() or c in "-_") for c in token):
        raise ConfigError(
            f"--token: at least {MIN_TOKEN} letters, digits, - or _ (it has {len(token)} "
            "characters): leave it out, and where others can reach the page one is made"
        )
    return token


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no host is called so"
        raise ConfigError(f"--host {shortened(host)}: {why or error}; name another") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(128)
    except OSError as error:
        listening.close()
        hint = (
            "leave --port out, and a free one is chosen"
            if error.errno == errno.EADDRINUSE
            else ("choose another --host or --port")
        )
        raise RunError(f"cannot listen on {host}, port {port}: {error.strerror}; {hint}") from error
    return listening


def _named(host: str) -> str:
    """The host as a link has it; who listens everywhere is found by the machine's name."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
