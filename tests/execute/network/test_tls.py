"""Identities, who is at the other end, and who is kept out by a real server, with the reason."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import odd_certs
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from odd_certs import SERVER, Odd

from pisces.errors import ConfigError
from pisces.execute.network.trust import signing
from pisces.execute.network.trust.certs import Authority, create
from pisces.execute.network.trust.core_log import heard
from pisces.execute.network.trust.names import is_name
from pisces.execute.network.trust.tls import (
    Identity,
    Peer,
    Revoked,
    channel_credentials,
    peer_name,
    server_credentials,
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine is set to."""
    monkeypatch.setenv("no_grpc_proxy", "localhost,127.0.0.1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = create(tmp_path_factory.mktemp("tls") / "certs", "Pisces authority", 3650)
    authority.server(["localhost", "127.0.0.1", "::1"], 825)
    authority.clients(["alice", "bob"], 825)
    return authority


@pytest.fixture(scope="module")
def signer(made: Authority) -> Odd:
    """The same authority, for certificates it would never sign."""
    return Odd(made.certificate, made._key())


@pytest.fixture(scope="module")
def server(made: Authority) -> Identity:
    return Identity.load(made.folder / "server.pem")


@pytest.fixture(scope="module")
def alice(made: Authority) -> Identity:
    return Identity.load(made.folder / "clients" / "alice.pem")


def test_an_identity(made: Authority, alice: Identity, server: Identity) -> None:
    rows = {each.name: each for each in made.issued()}
    assert (alice.name, alice.may_serve, alice.may_join) == ("alice", False, True)
    assert (alice.serial, alice.expires_at) == (rows["alice"].serial, rows["alice"].expires_at)
    assert (server.may_serve, server.may_join) == (True, False)
    assert alice.authority == server.authority == (made.folder / "ca.pem").read_bytes()
    assert "PRIVATE" not in repr(alice)


def test_identities_are_for_one_end_only(alice: Identity, server: Identity) -> None:
    with pytest.raises(ConfigError, match=r"of alice is a client's.*: pisces certs server"):
        server_credentials(alice)
    with pytest.raises(ConfigError, match=r"is a server's.*: pisces certs client NAME"):
        channel_credentials(server)


# --- files that are no identities -----------------------------------------------------------------


def parts(by: Odd, *, own: Odd | None = None, **odd: Any) -> tuple[bytes, bytes, bytes]:
    own = own or odd_certs.leaf(by, **odd)
    return own.key_pem, own.pem, by.pem


def damaged(text: bytes) -> bytes:
    """Still framed as PEM, but with its middle gone."""
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:2], *lines[-2:]])


CA = odd_certs.authority()
OTHER = odd_certs.authority()
GOOD = parts(CA)
LOCKED = CA.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
BAD = {
    "empty": ((), "is no PEM file"),
    "no PEM": ((b"\x00\xff" * 99,), "is no PEM file"),
    "no key": (GOOD[1:], "has no private key in it"),
    "no certificate": (GOOD[:1], "has no certificate in it"),
    "only the authority": ((GOOD[0], GOOD[2]), "has no certificate but an authority's"),
    "no authority": (GOOD[:2], "has no certificate of an authority: add that of ca.pem"),
    "damaged key": ((damaged(GOOD[0]), *GOOD[1:]), "the private key is damaged"),
    "key with a password": ((LOCKED, *GOOD[1:]), "the private key needs a password"),
    "damaged certificate": ((GOOD[0], damaged(GOOD[1]), GOOD[2]), "a certificate is damaged"),
    "damaged authority": ((*GOOD[:2], damaged(GOOD[2])), "a certificate is damaged"),
    "another's key": ((CA.key_pem, *GOOD[1:]), "the private key does not belong to the cert"),
    "another authority": ((*GOOD[:2], OTHER.pem), "not signed by the authority beside it"),
    "expired": (parts(CA, days=(-3, -2)), r"the certificate expired on .*certs client alice --re"),
    "an expired server's": (parts(CA, days=(-3, -2), usage=SERVER), r"certs server --renew"),
    "not yet": (parts(CA, days=(1, 2)), r"not valid before .*: set the clock, or wait"),
    "expired authority": (parts(odd_certs.authority(days=0)), r"the authority expired on .*init"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_identity_is_refused(kind: str, tmp_path: Path) -> None:
    content, words = BAD[kind]
    path = odd_certs.write(tmp_path / "x.pem", *content)
    with pytest.raises(ConfigError, match=words) as refused:
        Identity.load(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def name_or_refusal(path: Path) -> str:
    try:
        return Identity.load(path).name
    except ConfigError as error:
        return str(error)


# A later version of the package will refuse what this one warns of.
WARNED = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")


@WARNED
@given(data=st.data())
def test_whatever_is_in_a_file_it_is_refused_in_a_line(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One byte or many of a good file are others: it is as good as before, or refused."""
    text = b"".join(GOOD)
    at, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 300))
    put = data.draw(st.binary(max_size=20) | st.sampled_from([b"A", b"\n", b"=", b"-----", *GOOD]))
    path = odd_certs.write(
        tmp_path_factory.getbasetemp() / "odd.pem", text[:at] + put + text[at + size :]
    )
    said = name_or_refusal(path)
    assert said == "alice" or (str(path) in said and len(said.splitlines()) == 1)


def test_parts_in_any_order(tmp_path: Path) -> None:
    assert Identity.load(odd_certs.write(tmp_path / "x.pem", *GOOD[::-1])).name == "alice"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe", Path("a\x00b")):
        with pytest.raises(ConfigError, match=r"cannot read .*: pisces certs server, or"):
            Identity.load(path)


def test_what_is_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = odd_certs.write(tmp_path / "x.pem", *parts(odd_certs.authority(days=99), days=(-1, 99)))
    Identity.load(path)
    assert caplog.messages == []
    path.chmod(0o640)
    Identity.load(path)
    assert caplog.messages == [
        f"{path} has a private key, and others may read it (mode 640): chmod 600 {path}"
    ]
    caplog.clear()
    path = odd_certs.write(tmp_path / "y.pem", *parts(odd_certs.authority(days=99)))
    Identity.load(path)
    (said,) = caplog.messages
    assert said.startswith(f"{path}: the certificate expires on ")


# --- who is there ---------------------------------------------------------------------------------


def shown(*certificates: bytes) -> dict[str, list[bytes]]:
    return {"transport_security_type": [b"ssl"], "x509_pem_cert": list(certificates)}


def test_who_is_at_the_other_end(alice: Identity, server: Identity) -> None:
    assert peer_name(shown(alice.certificate)) == Peer("alice", alice.serial, alice.expires_at)
    assert peer_name({}) is None
    assert peer_name({"x509_common_name": [b"alice"]}) is None
    assert peer_name(shown()) is None
    assert peer_name(shown(alice.certificate, alice.certificate)) is None
    assert peer_name(shown(server.certificate)) is None
    assert peer_name(shown(alice.authority)) is None
    assert peer_name(shown(b"junk")) is None
    assert peer_name(shown(damaged(alice.certificate))) is None


@pytest.mark.parametrize(
    "odd", [{"usage": None}, {"is_authority": True}, {"name": "../x"}, {"name": "a b"}]
)
def test_who_is_nobody(odd: dict[str, Any]) -> None:
    assert peer_name(shown(odd_certs.leaf(CA).pem)) is not None
    assert peer_name(shown(odd_certs.leaf(CA, **odd).pem)) is None


@WARNED
@pytest.mark.parametrize("byte", [0x00, 0x30, 0xFF])
def test_any_byte_may_be_another(byte: int) -> None:
    own = odd_certs.leaf(CA).certificate.public_bytes(Encoding.DER)
    for at in range(len(own)):
        der = base64.encodebytes(own[:at] + bytes([byte]) + own[at + 1 :])
        text = b"-----BEGIN CERTIFICATE-----\n" + der + b"-----END CERTIFICATE-----\n"
        found = peer_name(shown(text))
        assert found is None or is_name(found.name)


# --- who is revoked -------------------------------------------------------------------------------


@pytest.fixture
def fresh(tmp_path: Path) -> Authority:
    authority = create(tmp_path / "certs", "Pisces authority", 10)
    authority.clients(["alice", "bob"], 10)
    return authority


def serial(of: Authority, name: str) -> int:
    return next(each.serial for each in of.issued() if each.name == name)


def revoked(of: Authority) -> Revoked:
    return Revoked(of.folder / "revoked.pem", signing.pem(of.certificate))


def test_revoked_while_the_server_is_at_work(fresh: Authority) -> None:
    gone = revoked(fresh)
    assert serial(fresh, "alice") not in gone
    fresh.revoke("alice")
    assert serial(fresh, "alice") in gone
    assert serial(fresh, "bob") not in gone
    fresh.revoke("bob")
    assert serial(fresh, "bob") in gone
    assert serial(fresh, "bob") in revoked(fresh)


def test_an_older_list_lets_nobody_in_again(fresh: Authority) -> None:
    fresh.revoke("bob")
    path = fresh.folder / "revoked.pem"
    old = path.read_bytes()
    fresh.revoke("alice")
    gone = revoked(fresh)
    assert serial(fresh, "alice") in gone
    path.write_bytes(old)
    assert serial(fresh, "alice") in gone


def test_it_is_read_only_when_it_has_changed(
    fresh: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, reads = revoked(fresh), []
    read = Revoked._read

    def counted(self: Revoked) -> frozenset[int]:
        reads.append(1)
        return read(self)

    monkeypatch.setattr(Revoked, "_read", counted)
    fresh.revoke("alice")
    assert [serial(fresh, "alice") in gone for _ in range(5)] == [True] * 5
    assert len(reads) == 1


@pytest.mark.parametrize("how", ["damaged", "lost", "foreign"])
def test_a_list_that_is_spoilt_changes_nothing(
    fresh: Authority, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.revoke("alice")
    gone, was, path = revoked(fresh), serial(fresh, "alice"), fresh.folder / "revoked.pem"
    good = path.read_bytes()
    if how == "lost":
        path.unlink()
    elif how == "damaged":
        path.write_bytes(good[:150])
    else:
        other = create(tmp_path / "other", "Pisces authority", 10)
        other.clients(["alice"], 10)
        other.revoke("alice")
        path.write_bytes((other.folder / "revoked.pem").read_bytes())
    assert [was in gone for _ in range(3)] == [True] * 3
    (said,) = caplog.messages  # once
    assert said.endswith("until then, those stay revoked that were")
    path.write_bytes(good)
    fresh.revoke("bob")
    assert serial(fresh, "bob") in gone
    assert len(caplog.messages) == 1


def test_a_list_that_is_spoilt_at_first_is_an_error(fresh: Authority) -> None:
    path = fresh.folder / "revoked.pem"
    path.write_text("x")
    with pytest.raises(ConfigError, match="is no revocation list, or damaged"):
        revoked(fresh)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*revoked.pem"):
        revoked(fresh)
    with pytest.raises(ConfigError, match="Not a directory"):
        Revoked(fresh.folder / "ca.pem" / "revoked.pem", signing.pem(fresh.certificate))


# --- kept out -------------------------------------------------------------------------------------

HOST = "127.0.0.1"


class Greeter(grpc.GenericRpcHandler):
    """Tells clients who they are."""

    def service(self, details: Any) -> Any:
        async def greet(_: bytes, context: Any) -> bytes:
            return repr(peer_name(context.auth_context())).encode()

        return grpc.unary_unary_rpc_method_handler(greet)


async def started(credentials: grpc.ServerCredentials) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Greeter(),))
    port = server.add_secure_port(f"{HOST}:0", credentials)
    await server.start()
    return server, port


async def asked(channel: grpc.aio.Channel) -> str:
    """What the server says, or the status with which it could not be asked."""
    async with channel:
        try:
            answer: bytes = await channel.unary_unary("/x/y")(b"", timeout=10)
            return answer.decode()
        except grpc.aio.AioRpcError as error:
            return str(error.code())


def meet(serving: grpc.ServerCredentials, visit: Callable[[int], Any]) -> tuple[Any, list[str]]:
    """What comes of a visit to a server, and whom that refused."""

    async def both() -> Any:
        server, port = await started(serving)
        try:
            return await visit(port)
        finally:
            await server.stop(None)

    reasons: list[str] = []
    with heard(reasons.append):
        answer = asyncio.run(both())
    return answer, reasons


def join(port: int, credentials: grpc.ChannelCredentials, host: str = HOST) -> Any:
    return asked(grpc.aio.secure_channel(f"{host}:{port}", credentials))


def showing(who: Odd | None, authority: bytes) -> grpc.ChannelCredentials:
    if who is None:
        return grpc.ssl_channel_credentials(authority)
    return grpc.ssl_channel_credentials(authority, who.key_pem, who.pem)


@pytest.mark.parametrize("host", [HOST, "localhost"])
def test_a_good_client_is_let_in(server: Identity, alice: Identity, host: str) -> None:
    credentials = channel_credentials(alice)
    answer, reasons = meet(server_credentials(server), lambda port: join(port, credentials, host))
    assert answer == repr(Peer("alice", alice.serial, alice.expires_at))
    assert reasons == []


WRONG: dict[str, tuple[Callable[[Odd], Odd | None], str]] = {
    "foreign": (lambda _: odd_certs.leaf(OTHER), "a certificate of another authority"),
    "foreign by another name": (
        lambda _: odd_certs.leaf(odd_certs.authority("other")),
        "a certificate of another authority",
    ),
    "expired": (lambda ca: odd_certs.leaf(ca, days=(-3, -2)), "an expired certificate"),
    "not yet": (lambda ca: odd_certs.leaf(ca, days=(1, 2)), "a certificate that is not valid yet"),
    "none": (lambda _: None, "no certificate"),
    "server's": (lambda ca: odd_certs.leaf(ca, usage=SERVER), "a certificate for another purpose"),
    "self-signed": (lambda _: odd_certs.leaf(None), "a self-signed certificate"),
    "signed by a client": (
        lambda ca: odd_certs.leaf(odd_certs.leaf(ca, name="mallory")),
        "a certificate of another authority",
    ),
}


# What all others tell of a certificate, older cores do not.
SAYS_MORE = tuple(map(int, grpc.__version__.split(".")[:2])) >= (1, 69)
NOT_GOOD = "a certificate that is not good"


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_client_is_kept_out(server: Identity, signer: Odd, kind: str) -> None:
    make, why = WRONG[kind]
    credentials = showing(make(signer), server.authority)
    answer, reasons = meet(server_credentials(server), lambda port: join(port, credentials))
    assert answer == "StatusCode.UNAVAILABLE"
    assert set(reasons) == {why if SAYS_MORE or kind == "none" else NOT_GOOD}


def test_plain_text_is_kept_out(server: Identity) -> None:
    def visit(port: int) -> Any:
        return asked(grpc.aio.insecure_channel(f"{HOST}:{port}"))

    answer, reasons = meet(server_credentials(server), visit)
    assert answer == "StatusCode.UNAVAILABLE"
    assert set(reasons) == {"no TLS"}


def test_a_browser_is_kept_out(server: Identity) -> None:
    async def visit(port: int) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    answer, reasons = meet(server_credentials(server), visit)
    assert b"HTTP" not in answer
    assert reasons == ["no TLS"]


def serving(who: Odd, authority: bytes) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([(who.key_pem, who.pem)], authority, True)


FALSE: dict[str, tuple[Callable[[Odd], Odd], str]] = {
    "a client as server": (lambda ca: odd_certs.leaf(ca), "a certificate for another purpose"),
    "foreign": (
        lambda _: odd_certs.leaf(OTHER, usage=SERVER),
        "a certificate of another authority",
    ),
    "expired": (
        lambda ca: odd_certs.leaf(ca, usage=SERVER, days=(-3, -2)),
        "an expired certificate",
    ),
    "self-signed": (lambda _: odd_certs.leaf(None, usage=SERVER), "a self-signed certificate"),
}


@pytest.mark.parametrize("kind", FALSE)
def test_a_client_stays_away_from_a_false_server(alice: Identity, signer: Odd, kind: str) -> None:
    make, why = FALSE[kind]
    credentials = channel_credentials(alice)
    false = serving(make(signer), alice.authority)
    answer, reasons = meet(false, lambda port: join(port, credentials))
    assert answer == "StatusCode.UNAVAILABLE"
    assert (why if SAYS_MORE else NOT_GOOD) in reasons


def test_a_client_stays_away_from_a_server_by_another_name(alice: Identity, signer: Odd) -> None:
    own = odd_certs.leaf(signer, usage=SERVER)  # localhost and 127.0.0.1
    credentials = channel_credentials(alice)
    options = [("grpc.ssl_target_name_override", "fl.example.org")]

    def visit(port: int) -> Any:
        return asked(grpc.aio.secure_channel(f"{HOST}:{port}", credentials, options=options))

    answer, _ = meet(serving(own, alice.authority), visit)
    assert answer == "StatusCode.UNAVAILABLE"
