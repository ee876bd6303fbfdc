"""Certificates of every kind, also of those that ours never are."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID

from pisces.execute.network.trust import signing

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Odd:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return signing.pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        return signing.key_pem(self.key)


def authority(name: str = "Pisces authority", days: int = 9) -> Odd:
    key = signing.new_key()
    return Odd(signing.authority(name, key, days), key)


def leaf(
    by: Odd | None,
    name: str = "alice",
    usage: x509.ObjectIdentifier | None = CLIENT,
    days: tuple[float, float] = (-1, 1),
    is_authority: bool = False,
) -> Odd:
    """Signed by an authority, or by itself; good from and until so many days from now."""
    key, now = signing.new_key(), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days[0]))
        .not_valid_after(now + timedelta(days[1]))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Odd(builder.sign(by.key if by else key, SHA256()), key)


def write(path: Path, *parts: bytes) -> Path:
    """An identity file of these parts."""
    path.touch(mode=0o600)
    path.write_bytes(b"".join(parts))
    return path
