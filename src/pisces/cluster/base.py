"""A cluster as we use it: workers on its nodes, and things that lie on each node once.

Whoever schedules them is somebody else: here is only what is asked of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pisces.errors import ConfigError

Ref: TypeAlias = Any  # to a thing that lies in the cluster, or to an answer that will


@dataclass(frozen=True, slots=True)
class Share:
    """What a worker takes of its node."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not (self.cpus >= 0 and self.gpus >= 0 and self.cpus + self.gpus > 0):
            raise ConfigError(
                f"a worker needs a share of a CPU or of a GPU, not {self.in_words()}: set "
                "cpus_per_worker or gpus_per_worker above 0"
            )

    def in_words(self) -> str:
        """Such as `1 CPU and 0.5 GPU`."""
        parts = [f"{self.cpus:g} CPU"] if self.cpus or not self.gpus else []
        return " and ".join([*parts, *([f"{self.gpus:g} GPU"] if self.gpus else [])])


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a worker said, and on which node it is."""

    value: Any
    node: str


@dataclass(frozen=True, slots=True)
class Died:
    """The worker ended before it had answered: its process did, or its node."""

    why: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """What the worker was given, or its answer, does not lie in the cluster any more."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker cannot make anything of what it was sent: it lacks a package, say."""

    why: str


Heard: TypeAlias = Answer | Died | Evicted | Refused


class Worker(Protocol):
    """A process somewhere in the cluster, with an object of ours in it."""

    def ask(self, method: str, *arguments: Any) -> Ref:
        """Have it call a method of its object: one at a time, in the order they were asked for.

        A `Ref` among the arguments stands for the thing itself, which comes to a node once.
        """
        ...

    def end(self) -> None:
        """Kill it, whatever it is at; if it is dead already, nothing happens."""
        ...


class Cluster(Protocol):
    """Nodes that come and go, and workers on them."""

    def nodes(self) -> Mapping[str, str]:
        """The nodes that are there: what each is called, by its id."""
        ...

    def room(self, share: Share) -> int:
        """How many workers with such a share its nodes hold, if nobody else was there."""
        ...

    def put(self, thing: Any) -> Ref:
        """Lay something down in the cluster."""
        ...

    def hire(self, kind: type, share: Share) -> Worker:
        """A worker with a new object of that kind, as soon as there is room for it."""
        ...

    def answers(self, refs: Sequence[Ref], wait_s: float) -> list[tuple[Ref, Heard]]:
        """Those that are there, at least one of them unless none comes within `wait_s`."""
        ...

    def close(self) -> None:
        """Let go of it; workers that are left end."""
        ...
