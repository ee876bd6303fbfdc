"""Following a run that is still being written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pisces.record.lines import Line
from pisces.record.writer import EVENTS


class Tail:
    """Hands out the lines of a run folder that were added since the last look."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVENTS
        self._position = 0

    def new_lines(self) -> Iterator[Line]:
        """Every whole line not seen yet; none while there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                for text in file:
                    if not text.endswith(b"\n"):
                        return  # still being written
                    self._position += len(text)
                    yield json.loads(text)
        except FileNotFoundError:
            return
