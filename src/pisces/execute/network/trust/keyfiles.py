"""Files with keys and certificates: whole or not there, and nobody else's to read."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pisces.errors import ConfigError
from pisces.execute.network.extra import needed

with needed():
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

log = logging.getLogger("pisces")
LOCK = ".lock"
MAX_BYTES = 16 << 20  # a revocation list of a quarter of a million clients
# What reading a file that is no certificate, or a strange one, comes to.
MISFITS = (
    *(ValueError, TypeError, LookupError, UnsupportedAlgorithm, InvalidSignature),
    *(x509.InvalidVersion, x509.DuplicateExtension),
)


def write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, and only its owner can read it."""
    beside = path.with_name(f".{path.name}.part")
    with writing(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)  # a crash has left it
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(content)
                f.flush()
                os.fsync(f.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        _sync(path.parent)


def _sync(folder: Path) -> None:
    with suppress(OSError):  # where the system can
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One command at a time; the end of a process, however it ends, gives the lock back."""
    import fcntl  # here, because a client locks nothing and may be where there are no such locks

    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system refuses into an error the user can mend."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; "
            "mend the permissions, make room or choose another folder"
        ) from error


def read(path: Path, remedy: str) -> bytes:
    """All of a file, if it is one that can be read: of a pipe nothing might ever come."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not an ordinary file")
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a zero byte is the latter
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {path}: {why}; {remedy}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} has more than {MAX_BYTES} bytes, no such file has; {remedy}")
    return content


def read_private(path: Path, remedy: str) -> bytes:
    """A file with a private key; that others can read it is worth a warning."""
    content = read(path, remedy)
    mode = path.stat().st_mode
    if mode & 0o077:
        log.warning(
            "%s has a private key, and others may read it (mode %03o): chmod 600 %s",
            *(path, mode & 0o777, path),
        )
    return content


def key_in(content: bytes, path: Path, remedy: str) -> PrivateKeyTypes:
    """The private key of a PEM file."""
    if b"PRIVATE KEY-----" not in content:
        raise ConfigError(f"{path} has no private key in it; {remedy}")
    try:
        return load_pem_private_key(content, None)
    except MISFITS as error:
        told = "needs a password" if isinstance(error, TypeError) else "is damaged"
        raise ConfigError(f"{path}: the private key {told}; {remedy}") from error


def certificates_in(content: bytes, path: Path, remedy: str) -> list[x509.Certificate]:
    """The certificates of a PEM file, in their order; one that cannot be read is refused."""
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise ConfigError(f"{path} has no certificate in it; {remedy}")
    try:
        found = x509.load_pem_x509_certificates(content)
        for certificate in found:  # these are read when they are asked for
            _ = (certificate.extensions, certificate.subject, certificate.public_key())
        return found
    except MISFITS as error:
        raise ConfigError(f"{path}: a certificate is damaged; {remedy}") from error


def is_authority(certificate: x509.Certificate) -> bool:
    """May it sign others?"""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def is_for(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> bool:
    """Was it issued for this use?"""
    try:
        return usage in certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False


def common_name(certificate: x509.Certificate) -> str:
    """The name it was issued to; empty if there is none, or more than one."""
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""
