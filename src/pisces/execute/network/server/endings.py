"""Why a conversation ended, and with whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection is ended, and whether its client should try again."""

    reason: str
    status: str  # the name of a gRPC status
    kind: str = ""  # the reason in few words, without names and numbers


DEAF = Ending("it does not read what it is told", "RESOURCE_EXHAUSTED", "does not read")
GONE = Ending("it said goodbye", "OK")
FLOOD = Ending("it says too much at once", "RESOURCE_EXHAUSTED", "says too much")
FULL = Ending("the server is full: try again later", "RESOURCE_EXHAUSTED", "full")
LATE = Ending("no Hello came in time", "UNAVAILABLE", "no hello")
PUSHY = Ending("it connects too often", "RESOURCE_EXHAUSTED", "connects too often")
SILENT = Ending("nothing was heard of it", "UNAVAILABLE", "silent")
EXPIRED = Ending("its certificate has expired: renew it", "PERMISSION_DENIED", "expired")
REVOKED = Ending("its certificate is revoked", "PERMISSION_DENIED", "revoked")


class TurnedAwayError(Exception):
    """A client is not taken in, and should not try again."""

    def __init__(self, reason: str, *, kind: str = "not let in") -> None:
        super().__init__(reason)
        self.kind = kind  # the reason in few words


@dataclass(slots=True)
class Caller:
    """Who is at the other end, as far as that is known."""

    host: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.host})" if self.name else self.host
