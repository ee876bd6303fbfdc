"""What a server counts, for whoever watches it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

MOST_KINDS = 50


@dataclass(slots=True)
class Stats:
    """Of the connections of one server; only the network's thread writes to it."""

    num_connected: int = 0
    num_given: int = 0  # tasks that clients have
    received_bytes: int = 0
    sent_bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by kind, in few words

    def copy(self, num_given: int) -> Stats:
        """As it is now, with so many tasks, for another thread."""
        return replace(self, num_given=num_given, refused=self.refused.copy())

    def refuse(self, kind: str) -> None:
        """One more of this kind; of kinds there are few, whatever others come up with."""
        is_known = kind in self.refused or len(self.refused) < MOST_KINDS
        self.refused[kind if is_known else "other"] += 1
