"""A gRPC server that listens, and what it puts up with before anybody said a word."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from pisces.errors import ConfigError
from pisces.execute.network.address import parsed
from pisces.execute.network.extra import needed
from pisces.execute.network.packing import MOST_MESSAGE_BYTES
from pisces.execute.network.server.door import Door
from pisces.execute.network.server.files import most_lines
from pisces.execute.network.server.terms import Terms
from pisces.execute.network.wire import TALK

with needed():
    import grpc

log = logging.getLogger("pisces")

SPARE = 64  # connections
Talk = Callable[[Any, Any], Awaitable[None]]


def listening(door: Door, address: str, talk: Talk, terms: Terms) -> tuple[grpc.aio.Server, int]:
    """A server, not started yet, and its port; within a running event loop."""
    server = grpc.aio.server(options=list(_options(terms).items()))
    service, method = TALK.removeprefix("/").split("/")
    methods = {method: grpc.stream_stream_rpc_method_handler(talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    return server, _port(door, server, address)


def _options(terms: Terms) -> dict[str, int]:
    # Long, because on a slow line the answer waits behind weights.
    cut_after_ms = int(2000 * terms.silent_after_s)
    return {
        "grpc.so_reuseport": 0,  # two servers must not share a port unawares
        "grpc.max_receive_message_length": 4 * MOST_MESSAGE_BYTES,  # beyond: cut off silently
        "grpc.max_concurrent_streams": 1,
        "grpc.max_metadata_size": 8192,
        "grpc.server_handshake_timeout_ms": int(1000 * terms.handshake_s),
        "grpc.max_connection_idle_ms": int(1000 * terms.handshake_s),
        # A few more than there may be: they hear why they may not stay.
        "grpc.max_allowed_incoming_connections": most_lines(terms.max_connections + SPARE),
        "grpc.http2.max_ping_strikes": 2,
        # A line that was cut is noticed although nobody says so.
        "grpc.keepalive_time_ms": int(1000 * terms.beat_s),
        "grpc.keepalive_timeout_ms": cut_after_ms,
        "grpc.http2.ping_timeout_ms": cut_after_ms,
        "grpc.http2.max_pings_without_data": 0,
    }


def _port(door: Door, server: grpc.aio.Server, address: str) -> int:
    try:
        port = door.open(server, address)
    except RuntimeError as error:
        log.debug("%s", error)
        port = 0
    if port:
        return port
    raise ConfigError(
        f"--listen: cannot listen on {address}: {_why_not(address)}; choose another, such as "
        "127.0.0.1:0 for any port"
    )


def _why_not(address: str) -> str:
    """What the system says to it, which gRPC keeps to itself."""
    host, port = parsed(address) or ("", 0)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    return "is the port taken, or the address another machine's?"
