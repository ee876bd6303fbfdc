"""How many updates a run has had when, and how much memory it took then."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from pisces.record.lines import Recorder
from pisces.types import Entry, Update

MIB = 2**20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Watch(Recorder):
    """How many updates when, and how much memory then."""

    def __init__(self, every: int) -> None:
        self._every, self._num = every, 0
        self.seen: list[tuple[int, float, int]] = []

    def record(self, entry: Entry) -> None:
        if isinstance(entry, Update):
            self._num += 1
            if self._num % self._every == 0:
                self.seen.append((self._num, time.perf_counter(), resident_bytes()))

    def close(self) -> None:
        pass
