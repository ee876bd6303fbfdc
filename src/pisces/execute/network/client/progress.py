"""How far a client is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a client stands, for people who watch it."""

    state: Literal["connecting", "connected", "retrying", "over"] = "connecting"
    reason: str = ""  # why it has to try again
    retry_s: float = 0.0
    number: int | None = None
    task: int | None = None
    version: int | None = None
    num_done: int = 0  # the server has them
    num_held: int = 0  # it does not have them yet
    loss: float | None = None  # of the task finished last


Watcher: TypeAlias = Callable[[Progress], None]
