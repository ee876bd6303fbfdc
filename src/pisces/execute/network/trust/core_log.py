"""Whom gRPC's core turned away, and why.

The core tells of a handshake that failed in a line of its log, on file descriptor 2, and nowhere
else. So a pipe takes that descriptor's place: such lines become reasons, what else the core has to
say by the way is dropped, and all the rest is passed on as it is.
"""

from __future__ import annotations

import logging
import os
import re
import select
import selectors
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TextIO

log = logging.getLogger("pisces")
LINE = re.compile(rb"([IWEF])\d{4} [\d:.]+ +\d+ [^\s:]+:\d+\] ?")
_FAILED = re.compile(r"Handshake failed with (?:fatal )?error (?P<why>.*)")
_CODE = re.compile(r"\w+: error:[0-9a-f]+:[^:]*:[^:]*:")  # what comes before the words
# A part of what the core says, and what it means of the other end.
REASONS = {
    "certificate has expired": "an expired certificate",
    "certificate is not yet valid": "a certificate that is not valid yet",
    "self signed certificate": "a self-signed certificate",
    "self-signed certificate": "a self-signed certificate",
    "unable to get": "a certificate of another authority",
    "certificate signature failure": "a certificate of another authority",
    "certificate purpose": "a certificate for another purpose",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "WRONG_VERSION_NUMBER": "no TLS",
    "HTTP_REQUEST": "no TLS",
    "HTTPS_PROXY_REQUEST": "no TLS",
    "EXCESSIVE_MESSAGE_SIZE": "no TLS",
    "UNSUPPORTED_PROTOCOL": "a version of TLS that is too old",
    "CERTIFICATE_VERIFY_FAILED": "a certificate that is not good",  # older cores say no more
    "BAD_SIGNATURE": "a certificate that is not good",
    "ALERT_UNKNOWN_CA": "it does not trust this end's authority",
    "ALERT_CERTIFICATE_EXPIRED": "it found this end's certificate expired",
    "ALERT_BAD_CERTIFICATE": "it refused this end's certificate",
    "ALERT_CERTIFICATE_UNKNOWN": "it refused this end's certificate",
}
_SAID = re.compile(r"Failed to add port to server")  # what we say ourselves, in plain words
LONGEST = 1 << 14  # bytes of a line that is still looked at
_LONGEST_REASON = 200
_PATIENCE_S = 0.05  # for the rest of what may be a line of the core
_LONGEST_END_S = 5.0  # for all that was written to be handled
_LONGEST_WAIT_S = 0.5  # for a child to close the pipe


def reason(text: str) -> str:
    """Why a handshake failed, in plain words, or in the core's if there are no plainer ones."""
    for part, meaning in REASONS.items():
        if part in text:
            return meaning
    words = _CODE.sub("", text).partition(": Invalid certificate verification context")[0]
    return words.strip()[:_LONGEST_REASON] or "a handshake that failed"


@contextmanager
def heard(refused: Callable[[str], None]) -> Iterator[None]:
    """While this lasts, `refused` is told of every handshake that failed, from another thread.

    What Python writes to `sys.stderr` goes past the pipe. All are told when this is over.
    """
    try:
        true = os.dup(2)
    except OSError:  # there is no standard error: nothing to be heard
        yield
        return
    reader, writer = os.pipe()
    # Not told by the thread that reads the pipe: who is told may write to it, and wait for room.
    teller = ThreadPoolExecutor(1, thread_name_prefix="pisces-refused")
    pump = _Pump(reader, os.dup(true), lambda why: teller.submit(_tell, refused, why))
    with _python_past_the_pipe(true), teller:
        os.dup2(writer, 2)
        os.close(writer)
        pump.start()
        try:
            yield
        finally:
            os.dup2(true, 2)
            pump.finish()
            os.close(true)


def _tell(refused: Callable[[str], None], why: str) -> None:
    try:
        refused(why)
    except Exception:
        log.exception("a connection was refused (%s), and telling so failed", why)


@contextmanager
def _python_past_the_pipe(true: int) -> Iterator[None]:
    """`sys.stderr` on the true descriptor, if it is on descriptor 2 so far."""
    before = sys.stderr
    if not _is_on_2(before):
        yield
        return
    before.flush()
    past = open(os.dup(true), "w", buffering=1, encoding=before.encoding, errors=before.errors)  # noqa: SIM115
    sys.stderr = past
    try:
        yield
    finally:
        with suppress(OSError):  # nobody reads it any more
            past.flush()
        if sys.stderr is past:  # else somebody put theirs in front of it, and may still write to it
            sys.stderr = before
            past.close()


def _is_on_2(file: TextIO | None) -> bool:
    try:
        return file is not None and file.fileno() == 2
    except (OSError, ValueError, AttributeError):
        return False


class _Pump(Thread):
    """Reads the pipe to its end: that of this process, or of a child that has it from us."""

    def __init__(self, reader: int, true: int, heard: Callable[[str], object]) -> None:
        super().__init__(name="pisces-core-log", daemon=True)
        self._reader, self._true = reader, true
        self._woken, self._wake = os.pipe()
        self._sieve = Sieve(heard)
        self._has_all = Event()

    def run(self) -> None:
        """Until nobody can write any more."""
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(self._reader, selectors.EVENT_READ)
                ready.register(self._woken, selectors.EVENT_READ)
                while self._step(ready):
                    pass
        finally:
            self._has_all.set()
            for descriptor in (self._reader, self._true, self._woken):
                os.close(descriptor)

    def _step(self, ready: selectors.BaseSelector) -> bool:
        """Handle what comes next; no more if that is the end."""
        patience_s = _PATIENCE_S if self._sieve.is_holding else None
        found = {key.fd for key, _ in ready.select(patience_s)}
        data = os.read(self._reader, 1 << 16) if self._reader in found else b""
        self._pass_on(self._sieve.feed(data) if data else self._sieve.let_go())
        if found == {self._woken}:  # and nothing is left of what was written before
            ready.unregister(self._woken)
            self._sieve.refused = lambda _why: None  # from now on it is another process's
            self._has_all.set()
        return bool(data) or self._reader not in found

    def _pass_on(self, data: bytes) -> None:
        with suppress(OSError):  # nobody reads it any more
            while data:
                try:
                    data = data[os.write(self._true, data) :]
                except BlockingIOError:  # somebody made the terminal non-blocking
                    select.select([], [self._true], [], 1.0)

    def finish(self) -> None:
        """Wait until all that was written is handled, though a child may hold the pipe open."""
        os.close(self._wake)
        self._has_all.wait(_LONGEST_END_S)
        self.join(_LONGEST_WAIT_S)  # less, if nobody else has the pipe


class Sieve:
    """Takes the core's lines out of a stream of bytes, however it is cut."""

    def __init__(self, refused: Callable[[str], object]) -> None:
        self.refused = refused
        self._held = b""  # the beginning of what may be a line of the core
        self._is_within = False  # a line of which the beginning was passed on

    @property
    def is_holding(self) -> bool:
        """Is there something that more may follow?"""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Take some bytes; what is to be passed on."""
        *lines, self._held = (self._held + data).split(b"\n")
        out = b"".join(self._sifted(line + b"\n") for line in lines)
        is_to_hold = not self._is_within and len(self._held) < LONGEST and _may_begin(self._held)
        return out if is_to_hold else out + self.let_go()

    def let_go(self) -> bytes:
        """What was held: nothing follows, or it has been waited for long enough."""
        out, self._held = self._held, b""
        self._is_within = self._is_within or bool(out)
        return out

    def _sifted(self, line: bytes) -> bytes:
        """The line, or nothing if it was the core's."""
        is_rest, self._is_within = self._is_within, False
        found = None if is_rest else LINE.match(line)
        if found is None:
            return line
        words = line[found.end() :].decode(errors="replace")
        failed = _FAILED.match(words)
        if failed:
            self.refused(reason(failed["why"]))
        return b"" if failed or found[1] == b"I" or _SAID.match(words) else line


def _may_begin(text: bytes) -> bool:
    """May a line of the core begin like this?"""
    return text[:1] in b"IWEF" and (text[1:5].isdigit() or len(text) < 2)
