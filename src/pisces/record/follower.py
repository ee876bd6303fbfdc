"""Following a file that somebody else writes to: whole lines, as they come.

Nothing is locked, and no handle is kept open: the writer never notices.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from pisces.record.writer import open_file

CHUNK_BYTES = 1 << 18  # read at once, so that a short slice of time is one
LONGEST_LINE = 1 << 24
REMEMBERED_BYTES, REMEMBERED_LINES = 512, 8  # before the place we are at, to know it again


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at one look: how much, which file, when last written."""

    num_bytes: int = 0
    inode: int = 0
    written_at: float | None = None


Mark: TypeAlias = tuple[int, int, int]


def mark_of(path: Path) -> Mark | None:
    """Another one whenever the file is another or has changed; none where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class FileFollower:
    """How far a file was read, and how to see that it is still the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.position = 0
        self.last = Look()
        self._before = b""  # what stands before the position

    def look(self) -> Look:
        """See how much there is now; nothing, where there is no ordinary file."""
        self.last = Look()
        with suppress(OSError):
            found = os.stat(self._path)
            if stat.S_ISREG(found.st_mode):
                self.last = Look(found.st_size, found.st_ino, found.st_mtime)
        return self.last

    def open(self) -> BinaryIO:
        """The file, if it is one."""
        return open_file(self._path)

    def is_same(self, file: BinaryIO, inode: int = 0) -> bool:
        """Is this the file we have read so far, with at most something added?"""
        found = os.fstat(file.fileno())
        if not self.position:
            return True
        if found.st_size < self.position or (inode and found.st_ino != inode):
            return False
        file.seek(self.position - len(self._before))
        return file.read(len(self._before)) == self._before

    def whole_lines(self, file: BinaryIO) -> list[bytes]:
        """The next of them, without their ends; none where the next is not written to its end.

        They count as read when `step` says so.
        """
        file.seek(self.position)
        parts = [file.read(CHUNK_BYTES)]
        num_bytes = len(parts[0])
        while b"\n" not in parts[-1]:
            parts.append(file.read(CHUNK_BYTES))
            num_bytes += len(parts[-1])
            if not parts[-1] or num_bytes > LONGEST_LINE:
                return [b"".join(parts)] if num_bytes > LONGEST_LINE else []
        text = b"".join(parts)
        return text[: text.rindex(b"\n")].split(b"\n")

    def is_last(self, file: BinaryIO, lines: list[bytes]) -> bool:
        """Does nothing stand behind these lines?"""
        file.seek(self.position + sum(map(len, lines)) + len(lines))
        return not file.read(1)

    def step(self, lines: list[bytes]) -> None:
        """These lines were taken in."""
        last = lines[-REMEMBERED_LINES:]
        before = self._before if len(last) == len(lines) else b""
        self._before = (before + b"\n".join(last) + b"\n")[-REMEMBERED_BYTES:]
        self.position += sum(map(len, lines)) + len(lines)
