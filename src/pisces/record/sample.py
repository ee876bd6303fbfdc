"""A log of some of the clients: all lines of a few tell more than a few lines of all.

Which clients follows from their ids alone, so a resumed run goes on with the same ones. The first
line of such a log says so (`sampled`); who reads it can tell, and must not count it for the whole.
"""

from __future__ import annotations

from dataclasses import replace

from pisces.record.lines import Line
from pisces.types import (
    Aggregated,
    Dropped,
    Entry,
    Evaluated,
    Failed,
    Left,
    Picked,
    Started,
    Stopped,
)

KIND = "sampled"
WHOLE_KINDS = ("evaluated", "stopped")  # of these every line is there
_SPREAD = 2654435769  # 2^32 / the golden ratio: neighbouring ids fall far apart


class Sample:
    """Whose lines are written, and what is left of those about many."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._tasks: set[int] = set()  # of these clients, not ended or not aggregated yet

    @property
    def header(self) -> Line:
        """The first line of the log."""
        return {"kind": KIND, "at": 0.0, "share": self.share}

    def has(self, client: int) -> bool:
        """Is this client one of them?"""
        return client * _SPREAD % 2**32 < self.share * 2**32

    def of(self, entry: Entry) -> Entry | None:
        """What is written of an entry; `None`: nothing."""
        match entry:
            case Evaluated() | Stopped():
                return entry
            case Picked():
                return None
            case Aggregated():
                return self._of_these(entry)
            case Dropped():
                return entry if self._ended(entry.task_id) else None
        if not self.has(entry.client):
            return None
        if isinstance(entry, Started):
            self._tasks.add(entry.task_id)
        if isinstance(entry, Failed | Left) and entry.task_id is not None:
            self._tasks.discard(entry.task_id)
        return entry

    def recall(self, line: Line) -> None:
        """Take up what was written before."""
        match line["kind"]:
            case "started":
                self._tasks.add(line["task"])
            case "failed" | "left" | "dropped":
                self._tasks.discard(line.get("task", -1))
            case "aggregated":
                self._tasks.difference_update(line["tasks"])

    def _ended(self, task_id: int) -> bool:
        is_one = task_id in self._tasks
        self._tasks.discard(task_id)
        return is_one

    def _of_these(self, entry: Aggregated) -> Aggregated:
        """The version, with those of its tasks that are the clients' of the sample."""
        places = [i for i, task_id in enumerate(entry.task_ids) if self._ended(task_id)]
        return replace(
            entry,
            task_ids=tuple(entry.task_ids[i] for i in places),
            staleness=tuple(entry.staleness[i] for i in places),
            coefficients=tuple(entry.coefficients[i] for i in places),
        )
