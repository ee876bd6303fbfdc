"""A bad line: passes bytes on, slowly or not, until it is told to cut, to reset or to swallow."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Literal

PIECE = 1 << 14
Way = Literal["cut", "reset", "swallow"]
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing throws away what was not sent, and says so


class Proxy:
    """Listens on this machine, and passes on to an address there."""

    def __init__(self, to: str, *, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        self.delay_s, self.bytes_per_s = delay_s, bytes_per_s
        self.num_broken = 0
        self.refuses = False  # who comes now
        self._plan: tuple[int, Way] | None = None
        self._host, port = to.rpartition(":")[0], to.rpartition(":")[2]
        self._port = int(port)
        self._lines: set[Line] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.close()
        self.break_all("cut")

    def break_after(self, num_bytes: int, way: Way) -> None:
        """The next line that has carried so many bytes upwards, from now on, breaks; once."""
        self._plan = num_bytes, way

    @property
    def will_break(self) -> bool:
        """Is a line to break that did not yet?"""
        return self._plan is not None

    def break_all(self, way: Way) -> int:
        """Every line there is; gives how many."""
        lines = [line for line in list(self._lines) if line.break_off(way)]
        self.num_broken += len(lines)
        return len(lines)

    def passed(self, line: Line, num_bytes: int) -> None:
        """So many bytes go upwards."""
        if self._plan is None:
            return
        left, way = self._plan[0] - num_bytes, self._plan[1]
        self._plan = left, way
        if left <= 0:
            self._plan = None
            self.num_broken += line.break_off(way)

    def forget(self, line: Line) -> None:
        self._lines.discard(line)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                below, _ = self._listener.accept()
                if self.refuses:
                    below.close()
                    continue
                try:
                    above = socket.create_connection((self._host, self._port), 5.0)
                except OSError:  # nobody there
                    below.close()
                    continue
                self._lines.add(Line(self, below, above))


class Line:
    """One connection through it."""

    def __init__(self, proxy: Proxy, below: socket.socket, above: socket.socket) -> None:
        self._proxy, self._ends = proxy, (below, above)
        self._swallows = self._is_broken = False
        for end in self._ends:
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for one, other, is_up in ((below, above, True), (above, below, False)):
            threading.Thread(target=self._carry, args=(one, other, is_up), daemon=True).start()

    def break_off(self, way: Way) -> bool:
        """Was it whole?"""
        was_whole, self._is_broken = not self._is_broken, True
        if way == "swallow":
            self._swallows = True
            return was_whole
        for end in self._ends:
            with suppress(OSError):
                if way == "reset":
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RD)  # wakes who reads it
            end.close()
        return was_whole

    def _carry(self, one: socket.socket, other: socket.socket, is_up: bool) -> None:
        with suppress(OSError):
            while piece := one.recv(PIECE):
                if self._proxy.delay_s:
                    time.sleep(self._proxy.delay_s)
                if self._proxy.bytes_per_s:
                    time.sleep(len(piece) / self._proxy.bytes_per_s)
                if is_up:
                    self._proxy.passed(self, len(piece))
                if not self._swallows:
                    other.sendall(piece)
        self._proxy.forget(self)
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
