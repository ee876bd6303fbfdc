"""The terminal that progress is shown on: one for all who write there, or views are torn."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from rich.console import Console

stderr = Console(stderr=True)
OUTPUTS = (1, 2)  # as the system knows stdout and stderr


def forget_if_closed() -> None:
    """What goes to a terminal that was closed goes nowhere from now on: it would be an error."""
    for output in OUTPUTS:
        with suppress(OSError):  # there may be no such output
            is_device = stat.S_ISCHR(os.fstat(output).st_mode)
            if is_device and not os.isatty(output):  # a terminal says so only while it is there
                _lead_nowhere(output)


def _lead_nowhere(output: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)
