"""Following a run that is still being written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pisces.record.lines import Line
from pisces.record.sound import is_line
from pisces.record.writer import EVENTS


class Tail:
    """Hands out the lines of a run folder that were added since the last look.

    A log that was cut or replaced is read from its beginning again, and `num_restarts` counts that
    before the first of its lines is handed out. What is not a line that a run writes is passed
    over: whoever reads the log at leisure says what is wrong with it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._position = 0
        self._last = b""  # the text that ends there, by which the log is known again
        self.num_restarts = 0

    def new_lines(self) -> Iterator[Line]:
        """Every whole line not seen yet; none while there is no file."""
        try:
            with self._path.open("rb") as file:
                self._find(file)
                for text in file:
                    if not text.endswith(b"\n"):
                        return  # still being written
                    self._position, self._last = self._position + len(text), text
                    if (line := _parsed(text)) is not None:
                        yield line
        except OSError:  # not there yet, or not any more
            return

    def _find(self, file: BinaryIO) -> None:
        """Go to where the last look ended, or to the beginning if that is not there any more."""
        file.seek(self._position - len(self._last))
        if file.read(len(self._last)) != self._last:
            self._position, self._last = 0, b""
            self.num_restarts += 1
            file.seek(0)


def _parsed(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if is_line(line) else None
