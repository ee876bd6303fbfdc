"""The ledger of one run folder."""

from __future__ import annotations

import threading
from pathlib import Path

from pisces.record.reader import Run


class Ledger:
    """One run folder's log in columns, as far as it was read.

    `revision` grows whenever something new was read or reading began anew; `is_whole` says that
    all there was at the last look is in, `share_read` how much of it; `problem` why nothing more
    can be read, in words (what was read stays). Whoever looks from several threads need not care:
    reading and the questions below hold `lock`.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.run = Run(folder)
        self.lock = threading.RLock()
        self.revision = 0
        self.is_whole = False
        self.share_read = 0.0
        self.problem: str | None = None

    def read(self, most_s: float | None = None) -> bool:
        """Take in what was added, for at most so long; True: something new.

        A log that was cut (by a resume) or replaced (by a new run) is read anew.
        """
        raise NotImplementedError

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics evaluated so far, in the order in which they turned up."""
        raise NotImplementedError

    @property
    def has_decisions(self) -> bool:
        """Does the log say why clients were picked?"""
        raise NotImplementedError
