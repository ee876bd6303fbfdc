"""Asking the live page without a browser, and run folders for it to show."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from runs import World, assemble

from pisces.dashboard.guard import App
from pisces.dashboard.index import Index
from pisces.record.lines import Line, encode

MARKUP = "<img src=x onerror=alert(1)>"
LINK = '<a href="javascript:alert(1)">here</a>'


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The answer, unpacked if need be."""
        packed = self.headers.get("content-encoding") == "gzip"
        return json.loads(gzip.decompress(self.body) if packed else self.body)


def ask(
    app: App,
    path: str,
    query: Mapping[str, Any] | str = "",
    *,
    method: str = "GET",
    headers: Iterable[tuple[str, str]] = (),
    host: str | None = "127.0.0.1:8000",
) -> Reply:
    """One request, as a server would hand it over."""
    text = query if isinstance(query, str) else urlencode(query, doseq=True)
    given = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    if host is not None:
        given.insert(0, (b"host", host.encode("latin-1")))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": text.encode("latin-1"),
        "headers": given,
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start = next(message for message in sent if message["type"] == "http.response.start")
    body = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], found, body)


def make_run(
    folder: Path, lines: Sequence[Line], *, protocol: str = "pisces", seed: int = 1, more: str = ""
) -> Path:
    """A run folder with these lines."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'protocol = "{protocol}"\nseed = {seed}\n{more}[stop]\ntime_s = 40.0\ntarget = 0.9\n'
    )
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, lines)))
    return folder


def some_lines(protocol: str = "pisces", seed: int = 1, num: int = 8) -> list[Line]:
    """The log of a short run of several clients, some of them odd."""
    latencies = [1.0 + client % 8 for client in range(num)]
    world = World(latencies=latencies, concurrency=max(3, num // 6), odd_every=4, seed=seed)
    made = assemble(protocol, world)
    made.coordinator._decisions._wanted = True  # as runs have it from their config
    return made.run()


def read_all(index: Index, most: int = 2000) -> Index:
    """Let the index look around until there is nothing left to read."""
    for _ in range(most):
        if not index.step():
            return index
    raise AssertionError("there is always something left to read")
