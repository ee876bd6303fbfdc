"""The guide's proxy lets nodes in and nobody else; its unit for systemd starts one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from federation_processes import free_port
from flower_commands import Process, write_key
from flower_laws import assert_sound
from flower_processes import BIN, HOST, LINK, ROOT, Federation, flower
from forking import becomes

GUIDE = (ROOT / "docs" / "flower.md").read_text()
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or ""
AROUND = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/f;
    scgi_temp_path {folder}/s;
    uwsgi_temp_path {folder}/u;
    include {folder}/flower.conf;
}}
"""
OURS = "/v1/fleet/pull-messages"  # a node's question
OTHERS = (
    *("/v1/control/list-runs", "/v1/control/start-run", "/v1/control/register-node"),
    *("/v1/runtime/acquire-task", "/v1/runtime/push-task-output", "/v1/responses", "/"),
)
TRICKS = (
    *("/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs"),
    *("/v1/fleet/..%2fcontrol/list-runs", "/v1/control/list-runs/../../fleet/pull-messages"),
    *("/v1/control/list-runs%2f..%2f..%2ffleet%2fpull-messages", "//v1/control/list-runs"),
    *("/V1/control/list-runs", "/v1/fleet/", "/v1/fleet", "/v1/fleet/a/b"),
)

SIZE = 1_500_000  # numbers: 6 MB, in pieces of 5 MiB

needs_nginx = pytest.mark.skipif(not NGINX, reason="nginx is not installed")


def block(language: str) -> str:
    """What the guide says to write into a file."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(text)


@contextmanager
def proxied(folder: Path) -> Iterator[tuple[Federation, int]]:
    """A federation with the guide's proxy before it, and the proxy's port."""
    with flower(folder) as federation:
        port, place = free_port(), folder / "nginx"
        place.mkdir()
        text = block("nginx").replace("/etc/flower/certs", str(folder / "certs"))
        for old, new in (("listen 443", f"listen {HOST}:{port}"), ("8000", str(federation.port))):
            assert old in text
            text = text.replace(old, new)
        (place / "flower.conf").write_text(text)
        (place / "nginx.conf").write_text(AROUND.format(folder=place))
        process = federation.start(NGINX, "-p", place, "-c", place / "nginx.conf")
        becomes(lambda: _answers(federation, port) or process.code is not None)
        assert process.code is None, process.said
        yield federation, port


def _answers(federation: Federation, port: int) -> bool:
    try:
        return federation.status("/health", port, method="GET") == 403
    except OSError:
        return False


@needs_nginx
def test_only_nodes_are_let_in(tmp_path: Path) -> None:
    with proxied(tmp_path) as (federation, port):
        for path in OTHERS:
            assert federation.status(path, port) == 403, path
        for path in TRICKS:
            assert federation.status(path, port) in (400, 401, 403), path
        for path in ("/health", "/docs", "/openapi.json", OURS):
            assert federation.status(path, port, method="GET") == 403, path
        # The port behind it is open to whoever is on this machine; a node has to say who it is.
        assert federation.status("/v1/control/list-runs", federation.port) == 200
        assert federation.status("/v1/runtime/acquire-task", federation.port) == 200
        assert federation.status("/docs", federation.port, method="GET") == 200
        assert federation.status(OURS, federation.port) == 401
        assert federation.status(OURS, port) == 401
        assert federation.status("/v1/fleet/register-node", port) == 401


@needs_nginx
@pytest.mark.long
def test_a_run_over_the_proxy(tmp_path: Path) -> None:
    """With a model in several pieces, and a node as the guide has systemd start it."""
    with proxied(tmp_path) as (federation, port):
        federation.register(0, 1)
        by_unit(federation, port).says("SuperNode ID")
        federation.come(1, port=port).says("SuperNode ID")
        run = federation.run(versions=2, size=SIZE)
        run.ended(300.0)
        assert assert_sound(run)[-1]["reason"] == "versions"
        assert_refused_outside(federation, port)
        federation.nodes[0].process.signal(signal.SIGTERM)
        assert federation.nodes[0].process.ended() == 0
    passed = (tmp_path / "nginx" / "access.log").read_text()
    for verb in ("activate-node", "push-object", "deactivate-node"):
        assert re.search(rf'POST /v1/fleet/{verb} HTTP/1.1" 200', passed), verb


def by_unit(federation: Federation, port: int) -> Process:
    """Node 0, by the guide's command."""
    (command,) = re.findall(r"^ExecStart=(.*)$", block("ini"), re.MULTILINE)
    node, text = federation.nodes[0], str(command)
    for old, new in (
        ("/opt/flower/bin", BIN),
        ("fl.example.org:443", f"{HOST}:{port}"),
        ("/etc/flower/ca.pem", federation.ca),
        ("/etc/flower/node", node.key),
    ):
        assert old in text
        text = text.replace(old, str(new))
    node.process = federation.start(*shlex.split(text), "--port", free_port())
    return node.process


def assert_refused_outside(federation: Federation, port: int) -> None:
    """What is not for nodes; on this machine it goes on as before."""
    federation.connect("outside", port)
    run = federation.run("other", link="outside")
    assert (run.process.ended(), "403" in run.process.said) == (1, True), run.process.said
    key = write_key(federation.folder / "stranger")
    for link, code in (("outside", 1), (LINK, 0)):
        told = federation.flwr("supernode", "register", f"{key}.pub", link)
        assert (told.code, "403" in told.said) == (code, link != LINK), told.said


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_the_unit_is_one(tmp_path: Path) -> None:
    """But for the user and the programs, which are not here."""
    text = block("ini").replace("/opt/flower/bin", str(BIN)).replace("User=flower", "User=root")
    unit = tmp_path / "flower-node.service"
    unit.write_text(text)
    told = ["systemd-analyze", "verify", "--man=no", str(unit)]
    ran = subprocess.run(told, capture_output=True, text=True, timeout=60)
    assert (ran.stdout + ran.stderr, ran.returncode) == ("", 0)
