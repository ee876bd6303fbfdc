"""`pisces watch` as people start and end it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from browsers import serving
from watching_pages import make_run, some_lines

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

from pisces.dashboard import extra, files
from pisces.dashboard import serving as at_door
from pisces.dashboard.serving import Address
from pisces.errors import ConfigError, MissingPackageError
from pisces.report import charts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs" / "a", some_lines())
    return tmp_path / "runs"


def get(link: str) -> bytes:
    with urllib.request.urlopen(link, timeout=10) as reply:
        return bytes(reply.read())


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")}


def test_it_serves_until_ctrl_c_and_touches_nothing(folder: Path) -> None:
    before = snapshot(folder)
    with serving(folder) as server:
        assert server.link.startswith("http://127.0.0.1:")
        assert b"Pisces" in get(server.link)
        assert b'"total":' in get(f"{server.link}api/runs")
        code, took_s = server.end()
    assert code == 130
    assert took_s < 5
    assert snapshot(folder) == before


def test_it_ends_at_once_though_somebody_is_connected(folder: Path) -> None:
    with serving(folder) as server, socket.create_connection(("127.0.0.1", server.port)) as open_:
        open_.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert open_.recv(100).startswith(b"HTTP/1.1 200")
        code, took_s = server.end()
    assert code == 130
    assert took_s < 5


def test_noise_from_the_network_stays_out_of_the_terminal(folder: Path) -> None:
    with serving(folder) as server:
        for noise in (b"\x16\x03\x01 no request\r\n\r\n", b"GET\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as open_:
                open_.sendall(noise)
                assert b" 400 " in open_.recv(100)
        server.process.send_signal(signal.SIGINT)
        rest, _ = server.process.communicate(timeout=20)
    # What was said with the address may have been read with it.
    assert rest.removeprefix("Ctrl-C ends it\n") == ""


def test_the_system_may_end_it_too(folder: Path) -> None:
    with serving(folder) as server:
        code, _ = server.end(signal.SIGTERM)
    assert code in (143, -signal.SIGTERM)


def test_without_a_folder_it_watches_runs_even_before_they_are_there(tmp_path: Path) -> None:
    with serving(None, cwd=tmp_path) as server:
        assert b'"folder":"runs"' in get(f"{server.link}api/runs")
    assert list(tmp_path.iterdir()) == [], "it makes nothing"


def test_others_need_the_token(folder: Path) -> None:
    with serving(folder, "--host", "0.0.0.0") as server:
        here = f"http://127.0.0.1:{server.port}/"
        token = server.link.partition("?token=")[2]
        assert len(token) >= 32
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{here}api/runs")
        assert refused.value.code == 401
        refused.value.close()
        assert b"Pisces" in get(f"{here}?token={token}")
        server.process.send_signal(signal.SIGINT)
        rest, _ = server.process.communicate(timeout=10)
    assert token not in rest, "it is said once"


def needs_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize("host", ["localhost", "[::1]", "::FFFF:127.0.0.1"])
def test_this_machine_is_reached_under_the_name_that_is_told(folder: Path, host: str) -> None:
    if ":" in host:
        needs_ipv6()
    with serving(folder, "--host", host) as server:
        assert "token" not in server.link
        assert b"Pisces" in get(server.link)


def refused(*options: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pisces.cli.main", "watch", *options],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        env={**os.environ, "COLUMNS": "300"},
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_port_in_use_is_said(folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "leave --port out" in refused("runs", "--port", port, cwd=tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["none/such"], "check the path"),
        (["file.txt"], "is a file"),
        (["runs", "--token", "short"], "at least 16"),
        (["runs", "--host", "no.such.host.invalid"], "--host"),
        (["runs", "--port", "70000"], "--port"),
    ],
)
def test_slips_are_said_in_one_line(
    folder: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    (tmp_path / "file.txt").write_text("")
    assert words in refused(*options, cwd=tmp_path)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingPackageError, match=r"pisces-fl\[watch\]"), extra.needed():
        raise ImportError("No module named 'uvicorn'")
    monkeypatch.setattr(charts, "find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match="plotly"):
        files.files()


@pytest.mark.parametrize(
    ("host", "is_near"),
    [
        *(("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.1.2.3", True)),
        *(("::ffff:127.0.0.1", True), ("::ffff:10.0.0.1", False)),
        *(("0.0.0.0", False), ("::", False), ("192.168.0.7", False), ("localhost.evil", False)),
    ],
)
def test_who_can_reach_it(host: str, is_near: bool) -> None:
    assert Address(host, 80, None).is_near is is_near
    assert (at_door._token(host, None) is None) is is_near


@pytest.mark.parametrize("token", ["", "x" * 15, "with space in between", "<script>aaaaaaaaaaa"])
def test_a_weak_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="--token"):
        at_door._token("127.0.0.1", token)


def test_links_name_the_host_as_browsers_take_it() -> None:
    assert Address("::1", 80, None).link == "http://[::1]:80/"
    assert Address("10.0.0.1", 81, "t").link == "http://10.0.0.1:81/?token=t"
    assert "0.0.0.0" not in Address("0.0.0.0", 80, None).link
