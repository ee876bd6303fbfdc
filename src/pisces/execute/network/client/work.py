"""A client's task as its training code sees it, and what that code gives back."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from pisces.execute.network.messages import Welcome
from pisces.execute.network.packing import Flat
from pisces.types import Layout, Plan, Report


class CalledOff(BaseException):
    """Nobody waits for the task any more; not an `Exception`, so that training ends by it."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The local work asked for; it also tells how the server thinks of it by now."""

    task: int
    version: int
    plan: Plan
    seed: int
    _off: threading.Event = field(default_factory=threading.Event, repr=False)
    _wanted: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def epochs(self) -> int:
        """How often to go through one's samples."""
        return self.plan.epochs

    @property
    def batch_size(self) -> int:
        """Samples of a step."""
        return self.plan.batch_size

    @property
    def learning_rate(self) -> float:
        """Of each step."""
        return self.plan.learning_rate

    @property
    def proximal(self) -> float:
        """The pull towards the weights one began from (FedProx's mu); 0: none."""
        return self.plan.proximal

    @property
    def max_steps(self) -> int | None:
        """No more steps than these, if there is such a limit."""
        return self.plan.max_steps

    @property
    def called_off(self) -> bool:
        """Nobody waits for it any more: what comes of it is thrown away."""
        return self._off.is_set()

    @property
    def wanted_now(self) -> bool:
        """The server asks for what there is: hand it in."""
        return self._wanted.is_set()

    def check(self) -> None:
        """End here by `CalledOff` if nobody waits for it any more; cheap, for every step."""
        if self._off.is_set():
            raise CalledOff(f"task {self.task}")

    def call_off(self) -> None:
        """Nobody waits for it."""
        self._off.set()

    def pull(self) -> None:
        """Somebody wants what there is."""
        self._wanted.set()


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A task with the weights it begins from, which are not to be changed."""

    run: str
    work: Work
    began: Flat
    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What came of a task."""

    flat: Flat
    report: Report


class Trainee(Protocol):
    """Whoever does the work; called in one thread, one task at a time."""

    def prepare(self, welcome: Welcome) -> None:
        """A run has taken the client in, or again; a `PiscesError`: it cannot take part, ever."""
        return

    def train(self, job: Job) -> Trained:
        """Do a task; any other exception than `CalledOff` is a failure of it."""
        ...
