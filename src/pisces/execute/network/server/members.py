"""A client as the server knows it, and its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pisces.execute.network.messages import FromServer
from pisces.types import Task


class Timer(Protocol):
    """Something that is to be done later."""

    def cancel(self) -> None:
        """It is not."""


class Line(Protocol):
    """A connection."""

    pulls: bool
    zstd: bool

    def expect(self, task: int) -> None:
        """It may send word of this task."""

    def say(self, message: FromServer) -> None:
        """Send this when it can be sent."""

    def order(self, task: Task) -> None:
        """Send this task."""

    def replace(self, reason: str) -> None:
        """Hang up: somebody else has its place."""


@dataclass(slots=True, eq=False)
class Member:
    """A client as the server knows it."""

    number: int
    num_examples: int = 0  # as it says
    told: int | None = None  # how many of them the loop was told of; None: nothing, by this server
    line: Line | None = None
    is_present: bool = False  # as far as the loop was told
    overdue: int | None = None  # a task that passed its deadline, of which it was not heard again
    leaving: Timer | None = None  # ends patience
    said_bye: bool = False  # on the line it has
    num_joins: int = 0  # that the loop was told of
    num_failed: int = 0  # tasks in a row
