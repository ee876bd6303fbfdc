"""How servers and clients end, and what they find when they begin where another is."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from federation_commands import Scene
from federation_processes import free_port
from forking import becomes, command

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.parametrize("number", CODES)
def test_a_server_that_is_told_to_end_is_found_again(scene: Scene, number: signal.Signals) -> None:
    listen = f"127.0.0.1:{free_port()}"
    server, address = scene.listening(listen=listen)
    clients = [scene.named(address, name) for name in ("c0", "c1")]
    scene.goes_on()
    server.signal(number)
    assert server.ended() == CODES[number], server.said
    assert "pisces serve --resume run" in server.said  # how to go on
    server, _ = scene.listening("--resume", "run", listen=listen)
    scene.goes_on()
    for client, how in zip(clients, CODES, strict=True):
        client.signal(how)
        assert client.ended() == CODES[how], client.said
        assert "Traceback" not in client.said
    assert not [*scene.folder.glob("c?/*.held")]  # all they had sent was acknowledged
    becomes(lambda: (scene.folder / "run/events.jsonl").read_text().count("said goodbye") == 2)


def test_what_is_held_when_a_client_is_told_to_end(scene: Scene) -> None:
    listen = f"127.0.0.1:{free_port()}"
    server, address = scene.listening(listen=listen)
    other, slow = scene.named(address, "c0"), scene.named(address, "c1", train="slow")
    slow.says("training")
    server.kill()
    becomes(lambda: len([*scene.folder.glob("c1/*.held")]) == 1)
    began = time.monotonic()
    slow.signal(signal.SIGTERM)
    assert slow.ended() == CODES[signal.SIGTERM], slow.said
    assert time.monotonic() < began + 5.0  # there is nobody to wait for
    assert len([*scene.folder.glob("c1/*.held")]) == 1
    scene.serve("--resume", "run", listen=listen)
    again = scene.named(address, "c1")
    becomes(lambda: not [*scene.folder.glob("c1/*.held")])
    scene.goes_on()
    assert (other.code, again.code) == (None, None)


def test_where_another_server_is(scene: Scene) -> None:
    server, address = scene.listening()
    clients = [scene.named(address, name) for name in ("c0", "c1")]
    scene.goes_on()
    others = {
        "Address already in use": scene.serve("fl.toml", "--out", "other", listen=address),
        "run is not empty": scene.serve("fl.toml", "--out", "run"),
        "in use": scene.serve("--resume", "run"),
    }
    for words, process in others.items():
        assert process.ended() == 2, process.said
        assert process.said.count("error:") == 1
        assert words in process.said
    same = scene.named(address, "c0")  # on the same machine, with the same folder
    assert same.ended() == 2
    assert "another client of this identity runs" in same.said
    scene.goes_on()
    assert [process.code for process in (server, *clients)] == [None] * 3


def test_where_no_server_is(scene: Scene) -> None:
    """A client looks for it until it is told to end."""
    nowhere = f"127.0.0.1:{free_port()}"
    identity = ("--identity", scene.certs / "clients" / "c0.pem")
    addresses = {nowhere: signal.SIGINT, "no-such-host.invalid:8440": signal.SIGTERM}
    started = [
        (scene.join(address, *identity, "--keep", f"k{number}", "--verbose"), number)
        for address, number in addresses.items()
    ]
    for process, _ in started:
        becomes(lambda process=process: process.said.count("again in") >= 2)  # type: ignore[misc]
    for process, number in started:
        began = time.monotonic()
        process.signal(number)
        assert process.ended() == CODES[number]
        assert time.monotonic() < began + 3.0
        assert "Traceback" not in process.said


def test_without_certificates_on_this_machine_only(scene: Scene) -> None:
    insecure = ("--insecure", "--listen", "0.0.0.0:0")
    for process in (
        scene.processes.pisces("serve", "fl.toml", "--out", "run", *insecure),
        scene.join("192.0.2.1:8440", "--insecure", "--name", "ann"),
    ):
        assert process.ended() == 2
        assert process.said.count("error:") == 1
        assert "on this machine" in process.said
    assert not (scene.folder / "run").exists()


@pytest.mark.parametrize("which", ["serve", "join"])
def test_a_signal_that_another_thread_took(scene: Scene, which: str) -> None:
    """It wakes nobody: the main thread has to look by itself."""
    identity = ("--identity", str(scene.certs / "clients" / "c0.pem"), "--keep", "c0", "--verbose")
    args = {
        "serve": ["fl.toml", "--out", "run", "--listen", "127.0.0.1:0", "--certs", scene.certs],
        "join": [f"127.0.0.1:{free_port()}", "--train", "mycode:train", "--examples", 1, *identity],
    }
    told = [which, *map(str, args[which])]
    process = scene.processes.start(which, be_hit, scene.folder, told)
    process.says({"serve": "listening on", "join": "again in"}[which])
    time.sleep(0.5)
    (scene.folder / "now").touch()
    assert process.ended(10.0) == 130, process.said


def be_hit(folder: Path, args: list[str]) -> None:
    """In a process: run a command, and get a signal in another thread."""

    def hit() -> None:
        becomes((folder / "now").exists)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        time.sleep(60.0)

    threading.Thread(target=hit, daemon=True).start()
    command(folder, args, "")
