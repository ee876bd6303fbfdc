"""Who is who: clients have names, the protocols count.

A name keeps its number for the whole run, also when the server is killed and goes on: what is known
of a client is known of its number. So numbers are written to the run folder before the loop, and
with it the journal, hears of them.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from pathlib import Path
from reprlib import repr as shortened

from pisces.errors import RunError


class NumberError(Exception):
    """No number can be given."""


class Roster:
    """Names and numbers of one run; in a file, if the run has a folder."""

    def __init__(self, path: Path | None = None, *, max_clients: int = 10_000_000) -> None:
        self._path, self._max_clients = path, max_clients
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next = 0
        self._unwritten: list[dict[str, object]] = []
        self._lock = threading.Lock()  # numbers are given in one thread and written in another
        self.run = ""
        if path is not None and path.exists():
            self._read(path)
        if not self.run:
            self.run = secrets.token_hex(8)
            self._unwritten.append({"run": self.run})

    @property
    def names(self) -> dict[int, str]:
        """Of all clients there ever were, by number."""
        return dict(self._names)

    def name_of(self, number: int) -> str:
        """Of a client there was."""
        return self._names[number]

    def number_of(self, name: str, wished: int | None = None) -> int:
        """The number of that name; at first the one it wishes for, or the next."""
        number = self._numbers.get(name)
        if number is None:
            number = self._free() if wished is None else wished
            self._check(number)
            self._take(name, number)
            with self._lock:
                self._unwritten.append({"client": number, "name": name})
        elif wished not in (None, number):
            raise NumberError(f"it is client {number} of this run, and wished to be {wished}")
        return number

    def _free(self) -> int:
        while self._next in self._names:
            self._next += 1
        return self._next

    def _check(self, number: int) -> None:
        if number >= self._max_clients:
            raise NumberError(
                f"client {number} would be beyond the {self._max_clients} there may be"
            )
        if number in self._names:
            raise NumberError(
                f"another client is number {number} of this run: wish for another "
                "(--shard), or for none"
            )

    def _take(self, name: str, number: int) -> None:
        self._numbers[name] = number
        self._names[number] = name

    def sync(self) -> None:
        """See to it that all numbers given are on the disk."""
        with self._lock:
            lines, self._unwritten = self._unwritten, []
        if self._path is None or not lines:
            return
        try:
            with self._path.open("ab") as file:
                file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with self._lock:
                self._unwritten[:0] = lines
            raise RunError(f"{self._path} cannot be written: {error}") from error

    def _read(self, path: Path) -> None:
        """A last line without its end was cut by a kill: nobody heard of it."""
        try:
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            for line in whole.splitlines():
                self._read_line(json.loads(line))
            if len(whole) < len(content):
                os.truncate(path, len(whole))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path} is not what a server writes: {error}") from error

    def _read_line(self, line: dict[str, object]) -> None:
        if "run" in line:
            self.run = str(line["run"])
            return
        number, name = line["client"], line["name"]
        if type(number) is not int or number < 0 or not isinstance(name, str):
            raise ValueError(f"a client's number is {number!r} and its name {shortened(name)}")
        self._take(name, number)
