"""A certificate authority in a folder: who may serve, who may join, and who may no longer.

    ca.pem, ca.key       the authority: its certificate, and its private key
    server.pem           the server's key and certificate, and the authority's certificate
    clients/NAME.pem     likewise of a client
    issued/SERIAL.pem    every certificate that was ever issued, without its key
    revoked.pem          those that are not to be let in any more: a revocation list (CRL)

A certificate is written to `issued` before anybody can have it, so none is forgotten that can be
used, whenever a command is killed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from pisces.errors import ConfigError
from pisces.execute.network.extra import needed
from pisces.execute.network.trust.keyfiles import (
    certificates_in,
    common_name,
    is_for,
    key_in,
    locked,
    read,
    read_private,
    write,
)
from pisces.execute.network.trust.names import NAME_RULE, is_name

with needed():
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    from pisces.execute.network.trust import signing

CERTIFICATE, KEY, SERVER, REVOKED = "ca.pem", "ca.key", "server.pem", "revoked.pem"
CLIENTS, ISSUED = "clients", "issued"
SERVER_NAME = "pisces server"  # has a space, so no client can be called that
Kind: TypeAlias = Literal["authority", "server", "client"]


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate, as it is remembered."""

    name: str
    kind: Kind
    serial: int
    expires_at: datetime
    is_revoked: bool
    hosts: tuple[str, ...] = ()


class Handed(NamedTuple):
    """An identity file to be handed out."""

    path: Path
    expires_at: datetime


def create(folder: Path, name: str, days: int) -> Authority:
    """Make an authority in a folder that has none, and the folder."""
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise ConfigError(f"an authority's name has 1 to 64 printable characters, not {name!r}")
    with locked(folder):
        _refuse_another(folder)
        key = signing.new_key()
        certificate = signing.authority(name, key, days)
        write(folder / KEY, signing.key_pem(key))
        write(folder / CERTIFICATE, signing.pem(certificate))
    return Authority(folder)


def _refuse_another(folder: Path) -> None:
    has_key, has_certificate = (folder / KEY).exists(), (folder / CERTIFICATE).exists()
    if has_key and has_certificate:
        raise ConfigError(
            f"{folder} has an authority already: use it, or choose another --folder; every "
            "certificate it signed would be worth nothing without it"
        )
    if has_key or has_certificate:
        there, lost = (KEY, CERTIFICATE) if has_key else (CERTIFICATE, KEY)
        raise ConfigError(
            f"{folder} has {there} but no {lost}: put that back or, if this was left by an init "
            f"that was broken off, remove {folder / there}"
        )


class Authority:
    """The authority of a folder; a folder without one is refused.

    Its private key is read only when something is to be signed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / CERTIFICATE
        if folder.is_dir() and not path.exists():
            raise ConfigError(f"{folder} has no authority: make one: pisces certs init")
        remedy = "name the right --folder, or make an authority: pisces certs init"
        self.certificate = certificates_in(read(path, remedy), path, remedy)[0]

    def server(self, hosts: Sequence[str], days: int, *, renew: bool = False) -> Handed:
        """A server's identity; `hosts` are the names and addresses that clients know it by."""
        names = signing.alternative_names(hosts)
        path = self.folder / SERVER
        with locked(self.folder):
            before = self._before("server", {SERVER_NAME: path}, renew)
            usage = ExtendedKeyUsageOID.SERVER_AUTH
            handed = self._issue(path, signing.Wanted(SERVER_NAME, usage, days, names))
            self._revoke(before)
        return handed

    def hosts(self) -> tuple[str, ...]:
        """What the server is known by; nothing if there never was one."""
        servers = [each for each in self.issued() if each.kind == "server"]
        return servers[-1].hosts if servers else ()

    def clients(self, names: Iterable[str], days: int, *, renew: bool = False) -> list[Handed]:
        """Identities of clients, of all of them or, if one cannot have one, of none."""
        paths = {name: self.folder / CLIENTS / f"{_checked(name)}.pem" for name in names}
        with locked(self.folder):
            before = self._before("client", paths, renew)
            usage = ExtendedKeyUsageOID.CLIENT_AUTH
            handed = [
                self._issue(path, signing.Wanted(name, usage, days)) for name, path in paths.items()
            ]
            self._revoke(before)
        return handed

    def revoke(self, name: str) -> int:
        """Revoke all that was ever issued to a client; how many were not revoked before."""
        with locked(self.folder):
            serials = {i.serial for i in self.issued() if (i.kind, i.name) == ("client", name)}
            if not serials:
                raise ConfigError(
                    f"no client called {name!r} was ever given a certificate: `pisces certs list` "
                    "shows who was"
                )
            return self._revoke(serials)

    def issued(self) -> list[Issued]:
        """Every certificate ever issued, the authority's own first; of a name the revoked first."""
        revoked = {entry.serial_number for entry in self._revoked() or ()}
        rows = [_described(certificate, revoked) for certificate in self._remembered()]
        rows.sort(key=lambda r: (r.kind == "client", r.name, not r.is_revoked, r.expires_at))
        own = self.certificate
        name, expires_at = common_name(own), own.not_valid_after_utc
        return [Issued(name, "authority", own.serial_number, expires_at, False), *rows]

    # --- what is signed -----------------------------------------------------------------------

    def _issue(self, path: Path, wanted: signing.Wanted) -> Handed:
        """Sign a certificate, remember it, and hand it out with its key."""
        key = signing.new_key()
        certificate = signing.issue(wanted, key, self.certificate, self._key())
        remembered = self.folder / ISSUED / f"{certificate.serial_number:040x}.pem"
        write(remembered, signing.pem(certificate))
        parts = (signing.key_pem(key), signing.pem(certificate), signing.pem(self.certificate))
        write(path, b"".join(parts))
        return Handed(path, certificate.not_valid_after_utc)

    def _key(self) -> ec.EllipticCurvePrivateKey:
        path, remedy = self.folder / KEY, "put it back from a copy"
        key = key_in(read_private(path, remedy), path, remedy)
        own = self.certificate
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != own.public_key():
            raise ConfigError(f"{path} is not the key of {CERTIFICATE}: {remedy}")
        if own.not_valid_after_utc <= datetime.now(UTC):
            raise ConfigError(
                f"the authority of {self.folder} expired on {own.not_valid_after_utc:%Y-%m-%d}: "
                "make another in a new --folder, and new certificates for the server and everybody"
            )
        return key

    # --- what is remembered -------------------------------------------------------------------

    def _before(self, kind: Kind, wanted: dict[str, Path], renew: bool) -> set[int]:
        """What those who are to get a certificate have already; refused unless to be renewed."""
        theirs = [i for i in self.issued() if i.kind == kind and i.name in wanted]
        having = {i.name for i in theirs} | {n for n, path in wanted.items() if path.exists()}
        for name in wanted:
            if name in having and not renew:
                raise ConfigError(
                    f"{name} has a certificate already ({wanted[name]}): add --renew to replace "
                    "it, which revokes the old one"
                )
        return {i.serial for i in theirs if not i.is_revoked}

    def _remembered(self) -> Iterator[x509.Certificate]:
        remedy = "put it back from a copy or, if there is none, remove it"
        for path in (self.folder / ISSUED).glob("*.pem"):
            yield certificates_in(read(path, remedy), path, remedy)[0]

    def _revoked(self) -> x509.CertificateRevocationList | None:
        path = self.folder / REVOKED
        if not path.exists():
            return None
        return signing.revoked_in(read(path, signing.LOST_LIST), path, self.certificate)

    def _revoke(self, serials: Collection[int]) -> int:
        """Add to the revocation list; how many were not in it."""
        old = self._revoked()
        new = set(serials) - {entry.serial_number for entry in old or ()}
        if new:
            made = signing.revocation_list(new, old, self.certificate, self._key())
            write(self.folder / REVOKED, signing.list_pem(made))
        return len(new)


def _described(certificate: x509.Certificate, revoked: Collection[int]) -> Issued:
    is_server = is_for(certificate, ExtendedKeyUsageOID.SERVER_AUTH)
    return Issued(
        common_name(certificate),
        "server" if is_server else "client",
        certificate.serial_number,
        certificate.not_valid_after_utc,
        certificate.serial_number in revoked,
        signing.hosts_of(certificate),
    )


def _checked(name: str) -> str:
    if not is_name(name):
        raise ConfigError(f"a client's name has {NAME_RULE}, unlike {name!r}")
    return name
