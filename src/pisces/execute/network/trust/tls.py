"""Who one is on the network, who the other end is, and who is not to be let in any more."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pisces.errors import ConfigError
from pisces.execute.network.extra import needed
from pisces.execute.network.trust import signing
from pisces.execute.network.trust.keyfiles import (
    MISFITS,
    certificates_in,
    common_name,
    is_authority,
    is_for,
    key_in,
    read,
    read_private,
)
from pisces.execute.network.trust.names import is_name

with needed():
    import grpc
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509.oid import ExtendedKeyUsageOID

log = logging.getLogger("pisces")
SOON = timedelta(days=14)
REMEDY = "get a good one: pisces certs server, or pisces certs client NAME"
RENEW = "renew it: pisces certs {} --renew"


@dataclass(frozen=True, slots=True)
class Identity:
    """Key, certificate and authority of a server or a client, in PEM, found to be good."""

    name: str
    serial: int
    may_serve: bool
    may_join: bool
    expires_at: datetime
    certificate: bytes
    authority: bytes
    key: bytes = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Identity:
        """Read an identity file; one that the other end would refuse is refused here."""
        path = Path(path)
        content = read_private(path, REMEDY)
        if b"-----BEGIN " not in content:
            raise ConfigError(f"{path} is no PEM file; {REMEDY}")
        key = key_in(content, path, REMEDY)
        found = certificates_in(content, path, REMEDY)
        own, authority = _own(found, key, path), _authority(found, path)
        _check_signature(own, authority, path)
        may_serve = is_for(own, ExtendedKeyUsageOID.SERVER_AUTH)
        renewal = RENEW.format("server" if may_serve else f"client {common_name(own)}")
        _check_time(own, "certificate", path, renewal)
        _check_time(authority, "authority", path, "make another authority: pisces certs init")
        return cls(
            common_name(own),
            own.serial_number,
            may_serve,
            is_for(own, ExtendedKeyUsageOID.CLIENT_AUTH),
            own.not_valid_after_utc,
            signing.pem(own),
            signing.pem(authority),
            signing.key_pem(key),
        )


def _own(found: list[x509.Certificate], key: PrivateKeyTypes, path: Path) -> x509.Certificate:
    others = [certificate for certificate in found if not is_authority(certificate)]
    if not others:
        raise ConfigError(f"{path} has no certificate but an authority's; {REMEDY}")
    for certificate in others:
        if certificate.public_key() == key.public_key():
            return certificate
    raise ConfigError(f"{path}: the private key does not belong to the certificate; {REMEDY}")


def _authority(found: list[x509.Certificate], path: Path) -> x509.Certificate:
    for certificate in found:
        if is_authority(certificate):
            return certificate
    raise ConfigError(f"{path} has no certificate of an authority: add that of ca.pem, or {REMEDY}")


def _check_signature(own: x509.Certificate, authority: x509.Certificate, path: Path) -> None:
    try:
        own.verify_directly_issued_by(authority)
    except MISFITS as error:
        raise ConfigError(
            f"{path}: the certificate is not signed by the authority beside it; {REMEDY}"
        ) from error


def _check_time(certificate: x509.Certificate, what: str, path: Path, remedy: str) -> None:
    now = datetime.now(UTC)
    starts_at, ends_at = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < starts_at:
        raise ConfigError(
            f"{path}: the {what} is not valid before {starts_at:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M} UTC by this machine's clock: set the clock, or wait"
        )
    if now >= ends_at:
        raise ConfigError(f"{path}: the {what} expired on {ends_at:%Y-%m-%d}; {remedy}")
    if ends_at - now < SOON:
        log.warning("%s: the %s expires on %s; %s", path, what, f"{ends_at:%Y-%m-%d}", remedy)


# --- both ends ------------------------------------------------------------------------------------


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Let only those in whose certificate the same authority signed."""
    if not identity.may_serve:
        raise ConfigError(
            f"the certificate of {identity.name} is a client's, which nobody would take for a "
            "server's: get one: pisces certs server"
        )
    return grpc.ssl_server_credentials(
        [(identity.key, identity.certificate)],
        root_certificates=identity.authority,
        require_client_auth=True,
    )


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Trust only servers of the same authority, and show them who this is."""
    if not identity.may_join:
        raise ConfigError(
            "the certificate is a server's, and no server would let it in as a client's: "
            "get one: pisces certs client NAME"
        )
    return grpc.ssl_channel_credentials(identity.authority, identity.key, identity.certificate)


class Peer(NamedTuple):
    """A client at the other end."""

    name: str
    serial: int
    expires_at: datetime | None = None  # None: it showed no certificate


def peer_name(auth_context: Mapping[str, Iterable[bytes]]) -> Peer | None:
    """The client that gRPC let in; nobody if it showed no certificate of a client."""
    shown = list(auth_context.get("x509_pem_cert", ()))
    if len(shown) != 1:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(shown[0])
        name, expires_at = common_name(certificate), certificate.not_valid_after_utc
        peer = Peer(name, certificate.serial_number, expires_at)
        is_client = is_for(certificate, ExtendedKeyUsageOID.CLIENT_AUTH)
        is_good = is_client and not is_authority(certificate) and is_name(peer.name)
    except MISFITS:
        return None
    return peer if is_good else None


class Revoked:
    """The serial numbers of a revocation list, as the file is now.

    A file that is damaged at first is an error. Later on, one that is damaged, lost or older
    changes nothing: those who are known to be revoked stay so.
    """

    def __init__(self, path: Path, authority: bytes) -> None:
        self._path = path
        self._authority = x509.load_pem_x509_certificate(authority)
        self._seen = self._stamp()
        self._serials = frozenset() if self._seen is None else self._read()

    def __contains__(self, serial: int) -> bool:
        """Is it revoked?"""
        return serial in self.serials()

    def serials(self) -> frozenset[int]:
        """All that are revoked. Looks whether the file has changed."""
        seen = self._stamp()
        if seen != self._seen:
            self._seen = seen
            self._look_again()
        return self._serials

    def _look_again(self) -> None:
        try:
            self._serials |= self._read()
        except ConfigError as error:
            log.warning("%s; until then, those stay revoked that were", error)

    def _read(self) -> frozenset[int]:
        content = read(self._path, signing.LOST_LIST)
        entries = signing.revoked_in(content, self._path, self._authority)
        return frozenset(entry.serial_number for entry in entries)

    def _stamp(self) -> tuple[int, ...] | None:
        """What changes when the file does; nothing where there is none."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError:  # there may be one: reading it says what is wrong
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino
