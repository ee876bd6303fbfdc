"""Where a server is: HOST:PORT."""

from __future__ import annotations


def parsed(address: str) -> tuple[str, int] | None:
    """Host (empty where none is told) and port; None: it is no such thing."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)
