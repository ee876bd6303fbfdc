"""Who may come in: by certificate, or, on this machine only, by what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pisces.errors import ConfigError
from pisces.execute.network.messages import Hello
from pisces.execute.network.server.endings import EXPIRED, REVOKED, Ending, TurnedAwayError
from pisces.execute.network.trust.names import NAME_RULE, is_name
from pisces.execute.network.trust.tls import Identity, Peer, Revoked, peer_name, server_credentials
from pisces.loopback import is_loopback


class Door(Protocol):
    """Lets clients in."""

    def open(self, server: Any, address: str) -> int:
        """Make the gRPC server listen there; gives the port."""
        ...

    def who(self, shown: Mapping[str, Sequence[bytes]], hello: Hello) -> Peer:
        """Who is there; `shown` is what gRPC knows of its certificate."""
        ...

    def unwelcome(self, peers: Iterable[Peer]) -> dict[Peer, Ending]:
        """Who of those who came in may not stay, and why."""
        ...


class Guarded(Door):
    """Only those with a certificate of the server's authority that is not revoked."""

    def __init__(self, identity: Identity, revoked: Revoked) -> None:
        self._identity, self._revoked = identity, revoked

    @classmethod
    def of(cls, folder: str | Path) -> Guarded:
        """With what `pisces certs` keeps in a folder."""
        identity = Identity.load(Path(folder) / "server.pem")
        return cls(identity, Revoked(Path(folder) / "revoked.pem", identity.authority))

    def open(self, server: Any, address: str) -> int:
        """Listen with TLS."""
        return int(server.add_secure_port(address, server_credentials(self._identity)))

    def who(self, shown: Mapping[str, Sequence[bytes]], hello: Hello) -> Peer:
        """The name in the certificate, whatever it says."""
        peer = peer_name(shown)
        if peer is None:
            raise TurnedAwayError("its certificate is not a client's")
        if peer.serial in self._revoked:
            raise TurnedAwayError(f"the certificate of {peer.name} is revoked", kind="revoked")
        return peer

    def unwelcome(self, peers: Iterable[Peer]) -> dict[Peer, Ending]:
        """Those whose certificates were revoked or have expired meanwhile."""
        revoked, now = self._revoked.serials(), datetime.now(UTC)
        found: dict[Peer, Ending] = {}
        for peer in peers:
            if peer.serial in revoked:
                found[peer] = REVOKED
            elif peer.expires_at is not None and peer.expires_at <= now:
                found[peer] = EXPIRED
        return found


class Open(Door):
    """Everybody on this machine, by the name they say."""

    def open(self, server: Any, address: str) -> int:
        """Listen in the clear, where nobody else can hear it."""
        host = address.rpartition(":")[0]
        if not is_loopback(host):
            raise ConfigError(
                f"--insecure: without certificates a server listens on this machine only, such as "
                f"127.0.0.1, not on {host!r}; see pisces certs"
            )
        return int(server.add_insecure_port(address))

    def who(self, shown: Mapping[str, Sequence[bytes]], hello: Hello) -> Peer:
        """What it says."""
        if not is_name(hello.name):
            raise TurnedAwayError(f"a name has {NAME_RULE}")
        return Peer(hello.name, 0)

    def unwelcome(self, peers: Iterable[Peer]) -> dict[Peer, Ending]:
        """Nobody."""
        return {}
