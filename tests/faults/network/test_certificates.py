"""Certificates of every wrong kind: who is kept out, what is said, and that nobody else minds."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import grpc
import odd_certs
import pytest
from federation_commands import Scene
from forking import becomes
from odd_certs import SERVER, Odd, leaf

from pisces.execute.network.trust.certs import Authority

SAYS_MORE = tuple(map(int, grpc.__version__.split(".")[:2])) >= (1, 69)


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """With certificates of its own, of which some can be revoked."""
    scene.certs = Path(shutil.copytree(scene.certs, scene.folder / "certs"))
    return scene


@pytest.fixture
def signer(scene: Scene) -> Odd:
    """The authority, for what it would never sign."""
    ours = Authority(scene.certs)
    return Odd(ours.certificate, ours._key())


def knock(address: str, authority: bytes, shown: Odd | None) -> None:
    """Try to come in past everything a client checks by itself."""
    key, chain = (None, None) if shown is None else (shown.key_pem, shown.pem)
    credentials = grpc.ssl_channel_credentials(authority, key, chain)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(address, credentials, options) as channel:
        call = channel.stream_stream("/pisces.Federation/Talk")
        with pytest.raises(grpc.RpcError) as refused:
            list(call(iter([b""]), timeout=20.0))
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_what_tls_keeps_out_is_logged_once(scene: Scene, signer: Odd) -> None:
    server, address = scene.listening()
    honest = [scene.named(address, name) for name in ("c0", "c1")]
    wrong = {
        "a certificate of another authority": leaf(odd_certs.authority()),
        "an expired certificate": leaf(signer, days=(-3, -2)),
        "a certificate that is not valid yet": leaf(signer, days=(1, 2)),
        "a certificate for another purpose": leaf(signer, usage=SERVER),
        "a self-signed certificate": leaf(None),
        "no certificate": None,
    }
    for _ in range(3):
        for shown in wrong.values():
            knock(address, signer.pem, shown)
    said = server.says("kept out a connection: no certificate")
    whys = set(wrong) if SAYS_MORE else {"no certificate", "a certificate that is not good"}
    assert {why: said.count(f"kept out a connection: {why}") for why in whys} == dict.fromkeys(
        whys, 1
    )
    assert "Handshake failed" not in said
    scene.goes_on()
    assert [process.code for process in honest] == [None, None]
    assert "c0" not in server.said  # nor were they hung up on


def test_what_a_client_finds_out_by_itself(scene: Scene, signer: Odd) -> None:
    """It ends with 2 and one line, before it goes anywhere."""

    def file(name: str, own: Odd, by: Odd = signer) -> Path:
        return odd_certs.write(scene.folder / name, own.key_pem, own.pem, by.pem)

    other = odd_certs.authority()
    good = leaf(signer)
    cases = {
        "the certificate expired on": file("expired.pem", leaf(signer, days=(-3, -2))),
        "is not valid before": file("early.pem", leaf(signer, days=(1, 2))),
        "not signed by the authority": file("foreign.pem", leaf(other)),
        "is a server's": file("server.pem", leaf(signer, usage=SERVER)),
        "does not belong": file("stolen.pem", Odd(good.certificate, other.key)),
        "no-such.pem": scene.folder / "no-such.pem",
    }
    started = {
        words: scene.join("127.0.0.1:9", "--identity", path) for words, path in cases.items()
    }
    for words, process in started.items():
        assert process.ended() == 2, process.said
        assert process.said.count("error:") == 1
        assert words in process.said
        assert "Traceback" not in process.said


def test_what_the_server_refuses(scene: Scene, signer: Odd) -> None:
    """Its clients end with 3; one that does not trust the server, tries for ever."""
    Authority(scene.certs).revoke("c5")
    server, address = scene.listening()
    honest = [scene.named(address, name) for name in ("c0", "c1")]
    odd, other = leaf(signer, name="not a name"), odd_certs.authority()
    unnamed = odd_certs.write(scene.folder / "odd.pem", odd.key_pem, odd.pem, signer.pem)
    theirs = leaf(other)
    strange = odd_certs.write(scene.folder / "o.pem", theirs.key_pem, theirs.pem, other.pem)
    revoked = scene.named(address, "c5")
    nobody = scene.join(address, "--identity", unnamed, "--keep", scene.folder / "odd")
    stranger = scene.join(address, "--identity", strange, "--verbose")
    assert revoked.ended() == nobody.ended() == 3
    assert "does not let this client in: the certificate of c5 is revoked" in revoked.said
    assert "its certificate is not a client's" in nobody.said
    assert server.said.count("is revoked") == server.said.count("is not a client's") == 1
    stranger.says("not connected: ")
    scene.goes_on()
    stranger.signal(signal.SIGINT)
    assert stranger.ended() == 130
    assert "certificate" in stranger.said.lower()  # it hangs up: the server is told nothing
    assert [process.code for process in honest] == [None, None]


def test_revoked_while_connected_and_replaced(scene: Scene) -> None:
    server, address = scene.listening("fl.toml", "--out", "run", "--set", "clients.concurrency=3")
    honest = [scene.named(address, name) for name in ("c0", "c1")]
    first = scene.named(address, "c2")
    becomes(lambda: num_of(scene, "c2") is not None)
    identity = scene.certs / "clients" / "c2.pem"
    second = scene.join(address, "--identity", identity, "--keep", scene.folder / "another")
    assert first.ended() == 3
    assert "another client of the same name has taken its place" in first.said
    scene.goes_on()
    assert second.code is None
    revoking = scene.processes.pisces("certs", "revoke", "c2", "--folder", scene.certs)
    assert revoking.ended() == 0, revoking.said
    assert second.ended() == 3
    assert "its certificate is revoked" in second.said
    again = scene.named(address, "c2")
    assert again.ended() == 3
    assert server.said.count("its certificate is revoked") == 1
    scene.goes_on()
    assert [process.code for process in honest] == [None, None]


def num_of(scene: Scene, name: str) -> int | None:
    """The number a client was given, if it was."""
    path = scene.folder / "run" / "clients.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return next((line["client"] for line in lines if line.get("name") == name), None)
