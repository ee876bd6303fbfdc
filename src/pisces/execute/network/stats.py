"""What a server counts, for whoever watches it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Of the connections of one server; only the network's thread writes to it."""

    num_connected: int = 0
    num_given: int = 0  # tasks that clients have
    received_bytes: int = 0
    sent_bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by reason, in few words
