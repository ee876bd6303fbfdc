"""`pisces certs`: from an authority to a client that is not let in any more."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import odd_certs
import pytest

from pisces.cli.certs import _left
from pisces.execute.network.trust.tls import Identity

Pisces = Callable[..., Any]
COMMANDS = ("init", "server", "client", "revoke", "list")
FILES = [
    *(".lock", "ca.key", "ca.pem", "clients", "clients/alice.pem", "clients/bob.pem", "issued"),
    *("revoked.pem", "server.pem"),
]


@pytest.fixture
def made(pisces: Pisces, folder: Path) -> Path:
    assert pisces("certs", "init").code == 0
    return folder / "certs"


def rows(pisces: Pisces) -> list[dict[str, Any]]:
    ran = pisces("certs", "list", "--json")
    assert (ran.code, ran.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def test_from_an_authority_to_a_client_that_is_out(pisces: Pisces, folder: Path) -> None:
    today = datetime.now(UTC)
    ran = pisces("certs", "init")
    assert (ran.code, ran.err) == (0, "")
    first, second, third = ran.out.splitlines()
    assert first == f"certs/ca.pem: an authority, until {today + timedelta(3650):%Y-%m-%d}"
    assert second.startswith("certs/ca.key: its private key; keep it to yourself")
    assert third == "next: pisces certs server"
    ran = pisces("certs", "server", "--host", "fl.example.org", "--host", "192.0.2.7")
    until = f"{today + timedelta(825):%Y-%m-%d}"
    said = f"certs/server.pem: key and certificate of the server, until {until}"
    assert ran.out.splitlines() == [said, "next: pisces certs client NAME"]
    ran = pisces("certs", "client", "alice", "bob")
    assert ran.out.splitlines() == [
        f"certs/clients/{name}.pem: key and certificate of {name}, until {until}"
        for name in ("alice", "bob")
    ]
    ran = pisces("certs", "revoke", "alice")
    assert ran.out.startswith("alice is revoked: certs/revoked.pem; a server on another machine")
    assert pisces("certs", "revoke", "alice").out.startswith("alice was revoked before: ")
    found = [(r["name"], r["kind"], r["revoked"], r["days_left"]) for r in rows(pisces)]
    assert found == [
        ("Pisces authority", "authority", False, 3649),
        ("pisces server", "server", False, 824),
        ("alice", "client", True, 824),
        ("bob", "client", False, 824),
    ]
    assert rows(pisces)[1]["hosts"] == ["fl.example.org", "192.0.2.7"]
    there = sorted(str(path.relative_to(folder / "certs")) for path in folder.rglob("certs/**/*"))
    assert [name for name in there if not name.startswith("issued/")] == FILES
    assert len([name for name in there if name.startswith("issued/")]) == 3


def test_the_table(pisces: Pisces, made: Path) -> None:
    pisces("certs", "server", "--host", "x" * 60, "--days", 12)
    pisces("certs", "client", "alice", "a" * 64, "--days", 1)
    pisces("certs", "revoke", "alice")
    ran = pisces("certs", "list")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    serials = {row["name"]: row["serial"] for row in rows(pisces)}
    found = re.search(r"alice +client +(\w+) +(\S+) +(today|in \d+ days?) +revoked", ran.out)
    assert found
    assert found[1] == serials["alice"][:8]
    assert found[2] == f"{datetime.now(UTC) + timedelta(1):%Y-%m-%d}"
    assert re.search(r"server .* in 11 days", ran.out)


@pytest.mark.parametrize(
    ("days", "says"),
    [
        (-1, "[red]expired[/]"),
        (0, "[red]today[/]"),
        (1, "[red]in 1 day[/]"),
        (29, "[red]in 29 days[/]"),
        (30, "in 30 days"),
    ],
)
def test_how_long_it_lasts(days: int, says: str) -> None:
    assert _left(days) == says


def test_hosts_of_this_machine(pisces: Pisces, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "my-machine")
    pisces("certs", "server")
    usual = ["localhost", "127.0.0.1", "::1"]
    assert rows(pisces)[1]["hosts"] == [*usual, "my-machine"]
    monkeypatch.setattr(socket, "gethostname", lambda: "my machine")  # no DNS name
    pisces("certs", "init", "--folder", "other")
    pisces("certs", "server", "--folder", "other", "--renew")
    (_, row) = json.loads(pisces("certs", "list", "--folder", "other", "--json").out)
    assert row["hosts"] == usual


def test_a_server_that_is_renewed_keeps_its_hosts(pisces: Pisces, made: Path) -> None:
    pisces("certs", "server", "--host", "a.example.org", "--host", "192.0.2.7")
    assert pisces("certs", "server", "--renew").code == 0
    before = ["a.example.org", "192.0.2.7"]
    found = [(row["hosts"], row["revoked"]) for row in rows(pisces)[1:]]
    assert found == [(before, True), (before, False)]
    pisces("certs", "server", "--renew", "--host", "b.example.org")
    pisces("certs", "server", "--renew")
    assert rows(pisces)[-1]["hosts"] == ["b.example.org"]


def test_another_folder(pisces: Pisces, folder: Path) -> None:
    ran = pisces("certs", "init", "--folder", "a/b", "--days", 2, "--name", "Ours")
    assert ran.out.splitlines()[-1] == "next: pisces certs server --folder a/b"
    ran = pisces("certs", "server", "--folder", "a/b", "--days", 900)
    assert (ran.code, ran.err) == (0, "")
    assert Identity.load(folder / "a/b/server.pem").may_serve
    (authority, _) = json.loads(pisces("certs", "list", "--folder", "a/b", "--json").out)
    assert (authority["name"], authority["days_left"]) == ("Ours", 1)


def test_a_client_is_renewed(pisces: Pisces, made: Path) -> None:
    pisces("certs", "client", "alice")
    ran = pisces("certs", "client", "alice")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: alice has a certificate already (certs/clients/alice.pem): add --renew to replace "
        "it, which revokes the old one\n"
    )
    assert pisces("certs", "client", "alice", "--renew").code == 0
    assert [r["revoked"] for r in rows(pisces) if r["name"] == "alice"] == [True, False]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["init"], "certs has an authority already: use it, or choose another --folder"),
        (["init", "--folder", "file"], "cannot write file: File exists; mend the permissions"),
        (["init", "--folder", "file/x"], "cannot write file/x: Not a directory"),
        (["init", "--folder", "new", "--name", ""], "1 to 64 printable characters, not ''"),
        (["init", "--folder", "new", "--days", "0"], "Invalid value for '--days'"),
        (["server", "--host", "a b"], "--host must be a DNS name or an address, without a port"),
        (["server", "--days", "36501"], "Invalid value for '--days'"),
        (["client"], "Missing argument 'NAME...'"),
        (["client", "../x"], "a client's name has 1 to 64 letters"),
        (["client", "[red]"], "unlike '[red]'"),
        (["client", "alice", "--folder", "none"], "cannot read none/ca.pem: No such file"),
        (["client", "alice", "--folder", "empty"], "empty has no authority: make one"),
        (["client", "alice", "--folder", "file"], "cannot read file/ca.pem: Not a directory"),
        (["revoke", "bob"], "no client called 'bob' was ever given a certificate"),
        (["list", "--folder", "empty"], "empty has no authority: make one: pisces certs init"),
        (["list", "--folder", "spoilt"], "spoilt/ca.pem: a certificate is damaged; name the right"),
        (["revoke"], "Missing argument 'NAME'"),
        (["xyzzy"], "No such command 'xyzzy'"),
    ],
)
def test_bad_input_is_one_line(
    pisces: Pisces, made: Path, folder: Path, args: list[str], says: str
) -> None:
    (folder / "file").touch()
    (folder / "empty").mkdir()
    (folder / "spoilt").mkdir()
    begin = odd_certs.authority().pem[:200]
    (folder / "spoilt" / "ca.pem").write_bytes(begin + b"\n-----END CERTIFICATE-----\n")
    before = sorted(made.rglob("*"))
    ran = pisces("certs", *args)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert sorted(made.rglob("*")) == before
    assert not (folder / "new").exists()


WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from pisces.cli.main import main
main()
"""


def test_without_the_package(folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "cryptography", "certs", "init"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the network needs packages that are not all here (")
    assert done.stderr.endswith(": pip install 'pisces-fl[network]'\n")
    assert not (folder / "certs").exists()


@pytest.mark.parametrize("args", [[], ["--help"]])
def test_help_names_every_command(pisces: Pisces, args: list[str]) -> None:
    ran = pisces("certs", *args)
    assert (ran.code, ran.err) == (0, "")
    for command in COMMANDS:
        assert f"│ {command} " in ran.out
    assert "│ certs " in pisces("--help").out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_fits(pisces: Pisces, command: str) -> None:
    out = pisces("certs", command, "--help").out
    assert max(map(len, out.splitlines())) <= 80
    assert f"  pisces certs {command}" in out.replace("\n pisces", "\n  pisces")
    body = out.partition("╭")[0].splitlines()
    assert not [line for line in body if 0 < len(line.split()) < 2 and "Example" not in line]
