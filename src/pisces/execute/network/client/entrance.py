"""Which server a client goes to, and as whom."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pisces.errors import ConfigError
from pisces.execute.network.address import parsed
from pisces.execute.network.client.connection import Dial, dial
from pisces.execute.network.client.holding import Holding, default_folder
from pisces.execute.network.messages import Hello
from pisces.execute.network.trust.names import NAME_RULE, is_name
from pisces.execute.network.trust.tls import Identity, channel_credentials
from pisces.loopback import is_loopback


@dataclass(frozen=True, slots=True)
class Entrance:
    """An address and an identity, checked."""

    dial: Dial
    name: str
    authority: bytes  # that knows the name

    @classmethod
    def of(
        cls,
        address: str,
        identity: str | os.PathLike[str] | None,
        *,
        insecure: bool = False,
        name: str | None = None,
        number: int | None = None,
    ) -> Entrance:
        """By certificate; or without any, on this machine only."""
        host = host_of(address)
        if insecure == (identity is not None):
            raise ConfigError(
                "identity: give the file that `pisces certs client NAME` made, or insecure (for "
                "tests on one machine), and not both"
            )
        if identity is not None:
            return cls._by_certificate(address, host, Path(identity), name)
        return cls._insecure(address, host, name, number)

    @classmethod
    def _by_certificate(cls, address: str, host: str, file: Path, name: str | None) -> Entrance:
        identity = Identity.load(file)
        if name not in (None, identity.name):
            raise ConfigError(
                f"name: the certificate's is {identity.name!r}, not {name!r}; leave it out"
            )
        credentials = channel_credentials(identity)
        reach = dial(address, credentials, is_near=is_loopback(host))
        return cls(reach, identity.name, identity.authority)

    @classmethod
    def _insecure(cls, address: str, host: str, name: str | None, number: int | None) -> Entrance:
        if not is_loopback(host):
            raise ConfigError(
                f"insecure: only for servers on this machine, not on {host}; make certificates: "
                "pisces certs"
            )
        name = f"client-{number}" if name is None and number is not None else name
        if name is None or not is_name(name):
            raise ConfigError(
                f"name: without a certificate a client needs a name, of {NAME_RULE}, not {name!r}"
            )
        return cls(dial(address, None, is_near=True), name, address.encode())

    def hello(self, num_examples: int, number: int | None) -> Hello:
        """How it introduces itself."""
        return Hello(num_examples, name=self.name, wished=number)

    @contextmanager
    def holding(self, folder: Path | None) -> Iterator[Holding]:
        """The folder of its results, its own while it takes part."""
        holding = Holding(folder or default_folder(self.name, self.authority))
        try:
            yield holding
        finally:
            holding.close()


def host_of(address: str) -> str:
    """The host of "host:port"."""
    host, port = parsed(address) or ("", 0)
    if not (host and port):
        raise ConfigError(
            f"address: must be HOST:PORT, such as fl.example.org:8440, not {address!r}"
        )
    return host
