"""What gRPC's core says on descriptor 2: heard, dropped, or passed on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pisces.execute.network.trust.core_log import Sieve, heard, reason

HEAD = "I1116 12:20:11.406786   29532 ssl_transport_security.cc:2563] "
FAILED = f"{HEAD}Handshake failed with error SSL_ERROR_SSL: error:1000007d:SSL routines:"
EXPIRED = f"{FAILED}OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired\n".encode()
CHATTER = b"I0000 00:00:1763296811.406786   29532 chttp2_transport.cc:12] by the way\n"
WARNING = b"W1116 12:20:11.406786   29532 socket.cc:12] something is wrong\n"


def sifted(*chunks: bytes) -> tuple[bytes, list[str]]:
    reasons: list[str] = []
    sieve = Sieve(reasons.append)
    out = b"".join(map(sieve.feed, chunks))
    return out + sieve.let_go(), reasons


def test_lines_of_the_core() -> None:
    assert sifted(EXPIRED) == (b"", ["an expired certificate"])
    assert sifted(CHATTER) == (b"", [])
    assert sifted(WARNING) == (WARNING, [])
    older = EXPIRED.replace(b"I1116", b"E0000").replace(b"with error", b"with fatal error")
    assert sifted(older) == (b"", ["an expired certificate"])


def test_everything_else_is_passed_on_at_once() -> None:
    sieve = Sieve(pytest.fail)
    for text in (
        b"Password: ",
        b"\rInfo 10 %",
        b"\rInfo 20 %",
        b"\n",
        b"I am\n",
        b"\xff\x00",
        b"x",
    ):
        assert sieve.feed(text) == text
    assert not sieve.is_holding


def test_only_what_may_become_a_line_of_the_core_is_held() -> None:
    sieve = Sieve(pytest.fail)
    assert sieve.feed(b"I11") == b""
    assert sieve.is_holding
    assert sieve.feed(b"x") == b"I11x"
    assert sieve.feed(b"\nI1116 ") == b"\n"
    assert sieve.let_go() == b"I1116 "  # nothing came after it
    assert sieve.feed(EXPIRED) == EXPIRED  # not the beginning of a line


def test_a_line_without_an_end_is_not_held_for_ever() -> None:
    sieve = Sieve(pytest.fail)
    assert len(sieve.feed(CHATTER[:-1] + b"x" * (1 << 20))) > 1 << 20


def test_a_port_that_cannot_be_had_is_said_elsewhere() -> None:
    said = b"E1118 16:01:11.830237    9436 add_port.cc:83] Failed to add port to server: No\n"
    assert sifted(said, b"a line\n") == (b"a line\n", [])


PIECES = [EXPIRED, CHATTER, WARNING, b"a line\n", b"I", b"\n", b"\r", b"\xff", b"I1116 x\n", b"E"]


@given(st.lists(st.sampled_from(PIECES)), st.lists(st.integers(1, 40)))
def test_however_it_is_cut_it_comes_to_the_same(pieces: list[bytes], sizes: list[int]) -> None:
    whole = b"".join(pieces)
    chunks, rest = [], whole
    for size in sizes:
        chunks, rest = [*chunks, rest[:size]], rest[size:]
    assert sifted(*chunks, rest) == sifted(whole)
    lines = whole.split(b"\n")
    assert len(sifted(whole)[1]) == sum(line == EXPIRED[:-1] for line in lines[:-1])


@pytest.mark.parametrize(
    ("says", "means"),
    [
        ("SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:X: strange", "X: strange"),
        (
            "SSL_ERROR_SSL: error:10000126:SSL routines:OPENSSL_internal:NO_SHARED_CIPHER: "
            "Invalid certificate verification context",
            "NO_SHARED_CIPHER",
        ),
        ("SSL_ERROR_SYSCALL", "SSL_ERROR_SYSCALL"),
        ("", "a handshake that failed"),
        ("x" * 1000, "x" * 200),
    ],
)
def test_reasons_without_plainer_words(says: str, means: str) -> None:
    assert reason(says) == means


# --- the descriptor -------------------------------------------------------------------------------


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """Descriptor 2 on a file."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def test_what_is_heard_and_what_is_passed_on(tmp_path: Path) -> None:
    reasons: list[str] = []
    with errors_to(tmp_path / "err"):
        with heard(reasons.append):
            for text in (b"one\n", EXPIRED, CHATTER, WARNING, b"no end"):
                os.write(2, text)
        os.write(2, EXPIRED)  # over: as it was before
    assert reasons == ["an expired certificate"]
    assert (tmp_path / "err").read_bytes() == b"one\n" + WARNING + b"no end" + EXPIRED


def test_a_flood(tmp_path: Path) -> None:
    """From four threads at once: none of 20 000 lines is lost, and all refusals are told."""
    reasons: list[str] = []

    def write(name: int) -> None:
        for number in range(5000):
            os.write(2, EXPIRED + f"{name} {number}\n".encode())

    threads = [threading.Thread(target=write, args=[name]) for name in range(4)]
    with errors_to(tmp_path / "err"), heard(reasons.append):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(reasons) == 20_000
    lines = (tmp_path / "err").read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {n}" for name in range(4) for n in range(5000))
    first = [line for line in lines if line.startswith("0 ")]
    assert first == [f"0 {n}" for n in range(5000)]


def test_whoever_is_told_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(why: str) -> None:
        raise RuntimeError(why)

    with errors_to(tmp_path / "err"), heard(fails):
        os.write(2, EXPIRED + b"and on\n")
    assert (tmp_path / "err").read_bytes() == b"and on\n"
    assert caplog.messages == [
        "a connection was refused (an expired certificate), and telling so failed"
    ]


WRITES = """
import os, sys
from pisces.execute.network.trust.core_log import heard

def refused(why):
    os.write(2, b"#" * 200_000)  # more than a pipe holds

with heard(refused):
    for _ in range(50):
        os.write(2, sys.argv[1].encode())
"""


def test_whoever_is_told_may_write_there() -> None:
    """As a log handler does that was made before; nobody waits for ever."""
    command = [sys.executable, "-c", WRITES, EXPIRED.decode()]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0
    assert done.stderr.count(b"#") >= 200_000
    assert done.stderr.count(b"#") % 200_000 == 0


def test_one_within_another(tmp_path: Path) -> None:
    outer: list[str] = []
    inner: list[str] = []
    with errors_to(tmp_path / "err"), heard(outer.append):
        with heard(inner.append):
            os.write(2, EXPIRED + b"one\n")
        os.write(2, EXPIRED + b"two\n")
    assert (len(outer), len(inner)) == (1, 1)
    assert (tmp_path / "err").read_bytes() == b"one\ntwo\n"


def test_an_error_goes_through_and_all_is_as_before(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/fd")), sys.stderr, threading.active_count()
    for _ in range(3):
        with pytest.raises(RuntimeError), heard(pytest.fail):
            raise RuntimeError
    assert (set(os.listdir("/dev/fd")), sys.stderr, threading.active_count()) == before


def test_a_child_that_stays_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It has the pipe, and what it says later is passed on too."""
    with errors_to(tmp_path / "err"):
        with heard(pytest.fail):
            script = "import os, sys; sys.stdin.read(); os.write(2, b'late')"
            child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
            os.write(2, b"early ")
            began_at = time.monotonic()
        assert time.monotonic() - began_at < 2
    assert (tmp_path / "err").read_bytes() == b"early "
    child.communicate(timeout=30)
    ends_at = time.monotonic() + 10
    while (tmp_path / "err").read_bytes() != b"early late" and time.monotonic() < ends_at:
        time.sleep(0.01)
    assert (tmp_path / "err").read_bytes() == b"early late"


SCRIPT = """
import os, sys
from rich.console import Console
from pisces.execute.network.trust.core_log import heard

console = Console(stderr=True)
before = sys.stderr
with heard(lambda why: print("heard:", why, flush=True)):
    assert sys.stderr is not before and sys.stderr.fileno() != 2
    print("by print", file=sys.stderr)
    console.print("by rich")
    os.write(2, b"by another\\n")
    os.write(2, sys.argv[1].encode())
    print("no end", end="", file=sys.stderr)
assert sys.stderr is before
print("after", file=sys.stderr)
if sys.argv[2:]:
    with heard(print):
        raise ValueError("seen")
"""


def ran(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, EXPIRED.decode(), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_python_writes_past_the_pipe() -> None:
    done = ran()
    assert (done.returncode, done.stdout) == (0, "heard: an expired certificate\n")
    lines = done.stderr.replace("no end", "").splitlines()
    assert sorted(lines) == ["after", "by another", "by print", "by rich"]


def test_a_traceback_is_seen() -> None:
    done = ran("fail")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: seen")


def test_without_a_standard_error() -> None:
    script = "import os\nfrom pisces.execute.network.trust.core_log import heard\nos.close(2)\n"
    script += "with heard(print):\n    print('here')"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"here\n")
