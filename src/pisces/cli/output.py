"""What commands print, where it may be that nobody can take it: a disk is full."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any, TextIO

from pisces.errors import PiscesError
from pisces.progress import screen


class Output:
    """A file to print to, in all like the one it stands for, whose errors the user can mend."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file or StringIO()  # none where it was closed: then nobody wants it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write, or say why not."""
        with self._told():
            return self._file.write(text)

    def flush(self) -> None:
        """Have it written, or say why not."""
        with self._told():
            self._file.flush()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._lead_nowhere()
            if isinstance(error, BrokenPipeError):  # whoever read it has seen enough
                sys.exit(1)
            raise PiscesError(f"cannot write the output: {error.strerror or error}") from error

    def _lead_nowhere(self) -> None:
        """What still waits to be written would be another error when Python ends."""
        with suppress(OSError):
            screen.lead_nowhere(self._file.fileno())
