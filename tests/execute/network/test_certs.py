"""The authority of a folder: what it signs, remembers, revokes and refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import odd_certs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pisces.errors import ConfigError
from pisces.execute.network.trust import keyfiles
from pisces.execute.network.trust.certs import Authority, create
from pisces.execute.network.trust.names import is_name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "certs"


@pytest.fixture
def made(folder: Path) -> Authority:
    return create(folder, "Pisces authority", 3650)


def certificates(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def extension(certificate: x509.Certificate, kind: type) -> tuple[object, bool]:
    found = certificate.extensions.get_extension_for_class(kind)
    return found.value, found.critical


def test_what_an_authority_is(made: Authority, folder: Path) -> None:
    (own,) = certificates(folder / "ca.pem")
    assert own == made.certificate
    assert extension(own, x509.BasicConstraints) == (x509.BasicConstraints(True, 0), True)
    uses, is_critical = extension(own, x509.KeyUsage)
    assert isinstance(uses, x509.KeyUsage)
    assert is_critical
    assert (uses.key_cert_sign, uses.crl_sign, uses.digital_signature) == (True, True, False)
    key = own.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert own.signature_hash_algorithm is not None
    assert own.signature_hash_algorithm.name == "sha256"
    own.verify_directly_issued_by(own)
    assert own.not_valid_after_utc - own.not_valid_before_utc == timedelta(3650, minutes=5)


def test_what_a_client_gets(made: Authority, folder: Path) -> None:
    ((path, _),) = made.clients(["alice"], 825)
    assert path == folder / "clients" / "alice.pem"
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    own, authority = certificates(path)
    assert authority == made.certificate
    own.verify_directly_issued_by(authority)
    assert own.subject.rfc4514_string() == "CN=alice"
    assert extension(own, x509.BasicConstraints) == (x509.BasicConstraints(False, None), True)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    assert extension(own, x509.ExtendedKeyUsage) == (usage, False)
    whose, _ = extension(own, x509.AuthorityKeyIdentifier)
    signer, _ = extension(authority, x509.SubjectKeyIdentifier)
    assert whose.key_identifier == signer.digest  # type: ignore[attr-defined]
    assert extension(own, x509.SubjectKeyIdentifier)
    ago = datetime.now(UTC) - own.not_valid_before_utc
    assert timedelta(minutes=5) <= ago < timedelta(minutes=6)
    assert own.not_valid_after_utc - own.not_valid_before_utc == timedelta(825, minutes=5)
    assert own.serial_number.bit_length() > 100  # random


def test_what_a_server_gets(made: Authority, folder: Path) -> None:
    path, _ = made.server(["localhost", "127.0.0.1", "::1", "fl_server", "localhost"], 10)
    own = certificates(path)[0]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    assert extension(own, x509.ExtendedKeyUsage) == (usage, False)
    (row,) = [each for each in made.issued() if each.kind == "server"]
    assert row.hosts == ("localhost", "127.0.0.1", "::1", "fl_server")


def test_nothing_outlives_its_authority(folder: Path) -> None:
    made = create(folder, "short", 10)
    ((path, _),) = made.clients(["alice"], 825)
    assert certificates(path)[0].not_valid_after_utc == made.certificate.not_valid_after_utc


def test_only_the_owner_can_read(folder: Path) -> None:
    before = os.umask(0)  # the loosest
    try:
        made = create(folder, "x", 10)
        made.server(["localhost"], 10)
        made.clients(["alice"], 10)
        made.revoke("alice")
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 8  # authority 2, server, client, 2 issued, revoked, lock
    assert {mode(path) for path in files} == {0o600}
    assert {mode(path) for path in (folder, folder / "clients", folder / "issued")} == {0o700}


def test_a_key_is_nobody_elses_from_its_first_byte(
    made: Authority, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        seen.extend((p.name, mode(p)) for p in (folder / "clients").glob(".*.part"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    made.clients(["alice"], 10)
    assert (".alice.pem.part", 0o600) in seen


def test_an_authority_is_not_replaced(made: Authority, folder: Path) -> None:
    before = (folder / "ca.key").read_bytes()
    with pytest.raises(ConfigError, match="has an authority already: use it, or choose another"):
        create(folder, "x", 10)
    assert (folder / "ca.key").read_bytes() == before


@pytest.mark.parametrize(("lost", "there"), [("ca.key", "ca.pem"), ("ca.pem", "ca.key")])
def test_half_an_authority_is_not_replaced_either(
    made: Authority, folder: Path, lost: str, there: str
) -> None:
    (folder / lost).unlink()
    with pytest.raises(ConfigError, match=f"has {there} but no {lost}: put that back or, if"):
        create(folder, "x", 10)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_an_authoritys_name(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64 printable characters, not"):
        create(folder, name, 10)
    assert not folder.exists()


BAD_NAMES = ["", ".", "..", "a/b", "../x", "a b", "ü", "x" * 65, "a\n", "a\x00b", "*"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_client_has(made: Authority, folder: Path, name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ConfigError, match="a client's name has 1 to 64 letters"):
        made.clients(["alice", name], 10)
    assert not (folder / "clients").exists()  # nor has alice


@pytest.mark.parametrize("name", ["a", "x" * 64, "Alice-2_b.org", "...", "-x", ".part"])
def test_names_that_a_client_may_have(made: Authority, name: str) -> None:
    ((path, _),) = made.clients([name], 10)
    assert certificates(path)[0].subject.rfc4514_string().endswith(name)
    assert [each.name for each in made.issued() if each.kind == "client"] == [name]


HOSTS = [
    "",
    "192.0.2.300",
    "7",
    "a b",
    "fl.example.org:8080",
    "[::1]",
    "-x",
    "a..b",
    "ü.de",
    "x" * 64,
    "a/b",
    "a\n",
]


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_that_are_none(made: Authority, folder: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="must be a DNS name or an address, without a port"):
        made.server(["localhost", host], 10)
    assert not (folder / "server.pem").exists()


def test_a_second_certificate_only_if_told(made: Authority, folder: Path) -> None:
    ((path, _),) = made.clients(["alice"], 10)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"alice has a certificate already .* add --renew"):
        made.clients(["bob", "alice"], 10)
    assert path.read_bytes() == before
    assert not (folder / "clients" / "bob.pem").exists()
    path.unlink()  # handed over to alice, and removed here
    with pytest.raises(ConfigError, match="alice has a certificate already"):
        made.clients(["alice"], 10)


def test_the_old_one_is_revoked_when_renewed(made: Authority) -> None:
    ((path, _),) = made.clients(["alice"], 10)
    made.clients(["bob"], 10)
    old = certificates(path)[0].serial_number
    made.clients(["alice"], 10, renew=True)
    new = certificates(path)[0].serial_number
    rows = {each.serial: each.is_revoked for each in made.issued() if each.name == "alice"}
    assert rows == {old: True, new: False}
    assert [each.is_revoked for each in made.issued() if each.name == "bob"] == [False]
    made.clients(["carol"], 10, renew=True)  # who has none
    assert len(made.issued()) == 5


def test_a_server_is_renewed_likewise(made: Authority, folder: Path) -> None:
    made.server(["localhost"], 10)
    with pytest.raises(ConfigError, match="pisces server has a certificate already"):
        made.server(["localhost"], 10)
    made.server(["localhost"], 10, renew=True)
    assert [e.is_revoked for e in made.issued() if e.kind == "server"] == [True, False]


def listed(folder: Path) -> x509.CertificateRevocationList:
    return x509.load_pem_x509_crl((folder / "revoked.pem").read_bytes())


def test_the_revocation_list_is_a_real_one(made: Authority, folder: Path) -> None:
    made.clients(["alice", "bob"], 10)
    made.clients(["alice"], 10, renew=True)
    assert made.revoke("alice") == 1
    found = listed(folder)
    key = made.certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert found.is_signature_valid(key)
    assert found.issuer == made.certificate.subject
    assert found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 2
    theirs = {each.serial for each in made.issued() if each.name == "alice"}
    assert {entry.serial_number for entry in found} == theirs
    assert len(theirs) == 2


def test_to_revoke_again_changes_nothing(made: Authority, folder: Path) -> None:
    made.clients(["alice"], 10)
    assert made.revoke("alice") == 1
    before = (folder / "revoked.pem").read_bytes()
    assert made.revoke("alice") == 0
    assert (folder / "revoked.pem").read_bytes() == before


@pytest.mark.parametrize("name", ["bob", "server", "pisces server", "../alice", "Pisces authority"])
def test_only_clients_can_be_revoked(made: Authority, folder: Path, name: str) -> None:
    made.clients(["alice"], 10)
    made.server(["localhost"], 10)
    with pytest.raises(ConfigError, match=r"no client called .* was ever given a certificate"):
        made.revoke(name)
    assert not (folder / "revoked.pem").exists()


def test_a_revoked_client_can_be_taken_back(made: Authority) -> None:
    made.clients(["alice"], 10)
    made.revoke("alice")
    made.clients(["alice"], 10, renew=True)
    assert [e.is_revoked for e in made.issued() if e.name == "alice"] == [True, False]


# --- trouble --------------------------------------------------------------------------------------


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2] + b"\n-----END CERTIFICATE-----\n"


def refuses(folder: Path, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        Authority(folder).clients(["bob"], 10)
    assert "\n" not in str(refused.value)
    assert not (folder / "clients" / "bob.pem").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "ca.pem").unlink(), "has no authority: make one: pisces certs init"),
        (lambda f: (f / "ca.pem").write_text("x"), "ca.pem has no certificate in it"),
        (
            lambda f: (f / "ca.pem").write_bytes(cut((f / "ca.pem").read_bytes())),
            "ca.pem: a certificate is damaged",
        ),
        (lambda f: (f / "ca.key").unlink(), "cannot read .*ca.key: No such file"),
        (lambda f: (f / "ca.key").write_text("x"), "ca.key has no private key in it"),
        (
            lambda f: (f / "ca.key").write_text("-----BEGIN PRIVATE KEY-----\nx"),
            "ca.key: the private key is damaged; put it back from a copy",
        ),
        (
            lambda f: (f / "ca.key").write_bytes(odd_certs.authority().key_pem),
            "ca.key is not the key of ca.pem",
        ),
        (
            lambda f: next((f / "issued").iterdir()).write_text("x"),
            "pem has no certificate in it; put it back from a copy or",
        ),
        (lambda f: (f / "revoked.pem").write_text("x"), "is no revocation list, or damaged"),
        (lambda f: (f / "revoked.pem").mkdir(), "revoked.pem: Is a directory"),
    ],
)
def test_what_is_spoilt_is_refused(
    made: Authority, folder: Path, spoil: Callable[[Path], object], words: str
) -> None:
    made.clients(["alice"], 10)
    spoil(folder)
    refuses(folder, words)


def test_a_revocation_list_of_another_authority(
    made: Authority, folder: Path, tmp_path: Path
) -> None:
    other = create(tmp_path / "other", "Pisces authority", 10)
    other.clients(["alice"], 10)
    other.revoke("alice")
    (folder / "revoked.pem").write_bytes((tmp_path / "other" / "revoked.pem").read_bytes())
    refuses(folder, "revoked.pem is not signed by this authority, or damaged")


def test_an_authority_that_expired(folder: Path) -> None:
    create(folder, "x", 0)
    refuses(folder, "expired on .*: make another in a new --folder")


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write .*file: .*choose another folder"):
        create(tmp_path / "file", "x", 10)
    with pytest.raises(ConfigError, match=r"cannot read .*ca.pem: Not a directory"):
        Authority(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"cannot read .*ca.pem: No such file"):
        Authority(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".lock", "cannot write .*certs: Permission denied; mend the permissions"),
        (".alice.pem.part", "cannot write .*alice.pem: Permission denied; mend the permissions"),
        ("ca.key", "cannot read .*ca.key: Permission denied; put it back"),
    ],
)
def test_no_permission(
    made: Authority, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    """Root may do anything, so here the system is told to refuse."""
    open_file = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied")
        return open_file(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match=words):
        made.clients(["alice"], 10)
    assert not (folder / "clients" / "alice.pem").exists()


def test_a_disk_that_is_full(
    made: Authority, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"No space left on device; .*make room"):
        made.clients(["alice"], 10)
    assert not list(folder.rglob("*.part"))
    assert not list(folder.rglob("alice.pem"))


def test_a_key_that_others_can_read_is_warned_of(
    made: Authority, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made.clients(["alice"], 10)
    assert caplog.messages == []
    (folder / "ca.key").chmod(0o644)
    made.clients(["bob"], 10)
    (said,) = caplog.messages
    assert said.endswith(f"others may read it (mode 644): chmod 600 {folder / 'ca.key'}")


def test_killed_at_any_moment_nothing_is_forgotten(
    made: Authority, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each file that is written: whoever can have a certificate is known, and all goes on."""

    class Killed(BaseException):
        pass

    left = 0
    write = keyfiles.write

    def dies(path: Path, content: bytes) -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        write(path, content)

    monkeypatch.setattr("pisces.execute.network.trust.certs.write", dies)
    for allowed in range(9):
        left = allowed
        with suppress(Killed):
            made.clients(["alice", "bob"], 10, renew=True)
        known = {each.serial for each in made.issued()}
        held = {certificates(path)[0].serial_number for path in (folder / "clients").glob("*.pem")}
        assert held <= known
    rows = [each for each in made.issued() if each.kind == "client"]
    assert len([each for each in rows if not each.is_revoked]) == 2  # the last went to its end
    assert len(rows) > 8


AT_WORK = """
import sys
from pathlib import Path
from pisces.execute.network.trust.certs import Authority

for turn in range(10):
    Authority(Path(sys.argv[1])).clients(["alice"], 10, renew=True)
    Authority(Path(sys.argv[1])).clients([f"{sys.argv[2]}-{turn}"], 10)
    Authority(Path(sys.argv[1])).revoke(f"{sys.argv[2]}-{turn}")
"""


def test_commands_at_the_same_moment_lose_nothing(made: Authority, folder: Path) -> None:
    """Three at work, ten turns each: 30 certificates of alice's, and 30 of others, all revoked."""
    running = [
        subprocess.Popen([sys.executable, "-c", AT_WORK, folder, name])
        for name in ("bob", "carol", "dave")
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    rows = [each for each in made.issued() if each.kind == "client"]
    assert len(rows) == 60
    (valid,) = [each for each in rows if not each.is_revoked]
    own, _ = certificates(folder / "clients" / "alice.pem")
    assert (valid.name, valid.serial) == ("alice", own.serial_number)
    assert len(listed(folder)) == 59
