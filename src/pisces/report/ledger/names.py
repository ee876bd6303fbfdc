"""What clients are called, where they came over a network."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from pisces.record.follower import Mark, mark_of
from pisces.record.writer import CLIENTS, read_file


class Names:
    """Names by client, read again when the file has changed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLIENTS
        self._mark: Mark | None = None
        self._names: dict[int, str] = {}

    def all(self) -> dict[int, str]:
        """Every name told so far; none where clients have only numbers."""
        mark = mark_of(self._path)
        if mark not in (None, self._mark):
            with suppress(OSError):
                self._names, self._mark = dict(_pairs(read_file(self._path))), mark
        return self._names


def _pairs(text: bytes) -> list[tuple[int, str]]:
    """Number and name in each line that has them; others are passed over."""
    found = []
    for line in text.splitlines():
        with suppress(ValueError, RecursionError, TypeError, KeyError):
            told = json.loads(line)
            client, name = told["client"], told["name"]
            if type(client) is int and type(name) is str:
                found.append((client, name))
    return found
