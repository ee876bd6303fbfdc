"""Following a run that is still being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pisces.record.follower import FileFollower
from pisces.record.lines import Line
from pisces.record.sound import decode
from pisces.record.writer import EVENTS


class Tail:
    """Hands out the lines of a run folder that were added since the last look.

    A log that was cut or replaced is read from its beginning again, and `num_restarts` counts that
    before the first of its lines is handed out. What is not a line that a run writes is passed
    over: whoever reads the log at leisure says what is wrong with it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._follower = FileFollower(self._path)
        self.num_restarts = 0

    def new_lines(self) -> Iterator[Line]:
        """Every whole line not seen yet; none while there is no file."""
        try:
            with self._follower.open() as file:
                self._find(file)
                for text in file:
                    if not text.endswith(b"\n"):
                        return  # still being written
                    self._follower.step([text[:-1]])
                    if (line := decode(text)) is not None:
                        yield line
        except OSError:  # not there yet, or not any more
            return

    def _find(self, file: BinaryIO) -> None:
        """Go to where the last look ended, or to the beginning if that is not there any more."""
        if not self._follower.is_same(file):
            self._follower = FileFollower(self._path)
            self.num_restarts += 1
        file.seek(self._follower.position)
