"""What certificates of ours look like: ECDSA on P-256 with SHA-256, each for one use only."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from pisces.errors import ConfigError
from pisces.execute.network.extra import needed
from pisces.execute.network.trust.keyfiles import MISFITS

with needed():
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificateIssuerPublicKeyTypes,
        PrivateKeyTypes,
    )
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

CLOCKS_DIFFER = timedelta(minutes=5)  # a certificate is good from so long ago
LOST_LIST = "put it back from a copy or, if there is none, remove it and revoke again"
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate to be issued."""

    name: str
    usage: x509.ObjectIdentifier
    days: int
    hosts: x509.SubjectAlternativeName | None = None


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def authority(name: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    """The certificate of an authority, signed by itself; what it signs can sign nothing."""
    public = key.public_key()
    return (
        _begun(_named(name), _named(name), public, _in(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_uses("key_cert_sign", "crl_sign"), critical=True)
        .sign(key, SHA256())
    )


def issue(
    wanted: Wanted,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate, good for as long as it is wanted but no longer than the authority is."""
    until = min(_in(wanted.days), issuer.not_valid_after_utc)
    builder = (
        _begun(_named(wanted.name), issuer.subject, key.public_key(), until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_uses("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([wanted.usage]), critical=False)
        .add_extension(_issued_by(issuer_key), critical=False)
    )
    if wanted.hosts is not None:
        builder = builder.add_extension(wanted.hosts, critical=False)
    return builder.sign(issuer_key, SHA256())


def revocation_list(
    serials: Collection[int],
    old: x509.CertificateRevocationList | None,
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateRevocationList:
    """The old list, and these as well."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now)
        .next_update(issuer.not_valid_after_utc)
        .add_extension(x509.CRLNumber(1 + _number(old)), critical=False)
        .add_extension(_issued_by(issuer_key), critical=False)
    )
    for entry in old or ():
        builder = builder.add_revoked_certificate(entry)
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(issuer_key, SHA256())


def revoked_in(
    content: bytes, path: Path, issuer: x509.Certificate
) -> x509.CertificateRevocationList:
    """The revocation list of a PEM file, if the authority signed it."""
    try:
        found = x509.load_pem_x509_crl(content)
        key = cast(CertificateIssuerPublicKeyTypes, issuer.public_key())  # or a TypeError
        good = found.is_signature_valid(key)
    except MISFITS as error:
        raise ConfigError(f"{path} is no revocation list, or damaged; {LOST_LIST}") from error
    if not good:
        raise ConfigError(f"{path} is not signed by this authority, or damaged; {LOST_LIST}")
    return found


def alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """What a server is known by: DNS names and addresses."""
    if not hosts:
        raise ConfigError("a server needs a name or an address that clients know it by: --host")
    return x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])


def is_host(host: str) -> bool:
    """Can it be a DNS name?"""
    is_number = host.rpartition(".")[2].isdecimal()  # 192.0.2.300 is an address, but a wrong one
    return _HOST.fullmatch(host) is not None and not is_number


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """What a server is known by; nothing for others."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate as text."""
    return certificate.public_bytes(Encoding.PEM)


def list_pem(revoked: x509.CertificateRevocationList) -> bytes:
    """A revocation list as text."""
    return revoked.public_bytes(Encoding.PEM)


def key_pem(key: PrivateKeyTypes) -> bytes:
    """A private key as text, without a password: a server has nobody to type it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _begun(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - CLOCKS_DIFFER)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _in(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _uses(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in names for use in _USES})


def _issued_by(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _number(revoked: x509.CertificateRevocationList | None) -> int:
    if revoked is None:
        return 0
    return revoked.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not is_host(host):
        raise ConfigError(
            "--host must be a DNS name or an address, without a port, such as "
            f"fl.example.org or 192.0.2.7, not {host!r}"
        )
    return x509.DNSName(host)
