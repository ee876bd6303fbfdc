"""What is heard of clients in one thread, for the loop to take out in its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from numpy.typing import NDArray

from pisces.types import Event, Joined, Left, Report


@dataclass(frozen=True, slots=True, eq=False)
class Landed:
    """A result, not looked at yet."""

    task: int
    client: int
    flat: NDArray[Any]  # of float32 or float64
    report: Report


@dataclass(frozen=True, slots=True, eq=False)
class Broken:
    """Nothing more will be heard, because of this."""

    error: BaseException


Said: TypeAlias = Event | Landed | Broken


class Inbox:
    """A queue that can be looked into: what was said, with when it came."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: deque[tuple[float, Said]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()  # rings when something was put there
        self._present: set[int] = set()
        self.is_broken = False  # nobody else will ever come

    def __len__(self) -> int:
        return len(self._said)

    @property
    def num_present(self) -> int:
        """Clients that are there, by all that was ever put here."""
        return len(self._present)

    def put(self, said: Said) -> None:
        """From the thread that hears of clients."""
        self._said.append((self._clock(), said))
        match said:  # who is counted can be heard of already
            case Joined():
                self._present.add(said.client)
            case Left():
                self._present.discard(said.client)
            case Broken():
                self.is_broken = True
        self._bell.put(None)

    def wait(self, timeout_s: float) -> None:
        """For the bell; broken off, nothing but its sound was taken."""
        with suppress(Empty):
            self._bell.get(timeout=timeout_s)

    def take(self, began: float, until: float) -> list[tuple[float, Said]]:
        """What came up to an instant, counted from another, with its own.

        That nothing more will come is taken by itself: what came before it is to be kept.
        """
        taken: list[tuple[float, Said]] = []
        while self._said and self._said[0][0] - began <= until:
            if taken and isinstance(self._said[0][1], Broken):
                break
            at, said = self._said.popleft()
            taken.append((at - began, said))
            with suppress(Empty):
                self._bell.get_nowait()
        return taken
