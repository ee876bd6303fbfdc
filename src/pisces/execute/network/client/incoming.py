"""Orders on their way in: with weights, which may take many messages, or without."""

from __future__ import annotations

from typing import Protocol

from pisces.execute.network.messages import (
    Acknowledged,
    CalledOff,
    Chunk,
    Order,
    Pull,
    Welcome,
    WireError,
)
from pisces.execute.network.packing import Flat, Intake
from pisces.types import Layout


class Ears(Protocol):
    """Who listens to what the server says."""

    def welcomed(self, welcome: Welcome) -> bool:
        """Taken in; False: say Hello again, there is more to tell of this run."""
        ...

    def received(self, version: int, weights: Flat) -> None:
        """The weights of a version, for the task that is ordered next, if not called off by now."""
        ...

    def ordered(self, order: Order) -> None:
        """A task, whose weights the client has by now, or is thought to."""
        ...

    def told(self, said: Acknowledged | CalledOff | Pull) -> None:
        """Word of a task."""
        ...


class Incoming:
    """Tells whoever listens of a task when its weights are whole, and of all else at once."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._coming: tuple[Order, Intake] | None = None
        self._is_off = False  # its task was called off meanwhile

    def order(self, order: Order, layout: Layout) -> None:
        """A task; its weights may come in place of those of one that was called off."""
        if order.content is None:
            self._ears.ordered(order)
            return
        if self._coming is not None and not self._is_off:
            raise WireError("weights in the middle of others")
        self._is_off = False
        self._coming = order, Intake(order.content, layout.size, wanted=layout.dtype)
        self._take_in()

    def chunk(self, chunk: Chunk) -> None:
        """A piece of the weights that are coming."""
        if self._coming is None:
            raise WireError("a chunk of nothing")
        self._coming[1].add(chunk.data)
        self._take_in()

    def told(self, said: Acknowledged | CalledOff | Pull) -> None:
        """Word of a task, which may be the one whose weights are coming."""
        if self._coming is not None and self._coming[0].task == said.task:
            self._is_off = self._is_off or isinstance(said, CalledOff)
        self._ears.told(said)

    def _take_in(self) -> None:
        if self._coming is None or not self._coming[1].is_whole:
            return
        (order, intake), self._coming = self._coming, None
        self._ears.received(order.version, intake.weights())
        if not self._is_off:
            self._ears.ordered(order)
