"""A cluster in this process: its workers answer when asked, unless a test has them die.

Things are pickled on their way, as between machines; nodes hold them in memory nobody may write.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pisces.cluster.base import Answer, Cluster, Died, Evicted, Heard, Ref, Share, Worker


@dataclass(eq=False)
class Thing:
    """What a ref stands for: something put there, or a question to a worker."""

    worker: PretendWorker | None = None
    method: str = ""
    arguments: tuple[Any, ...] = ()
    value: bytes = b""
    is_lost: bool = False


@dataclass(eq=False)
class PretendWorker(Worker):
    """Does one thing at a time, in the order it was asked."""

    cluster: PretendCluster
    kind: type
    node: str
    held: Any = None
    log: Any = None  # its own handlers
    alive: bool = True
    num_done: int = 0  # questions answered
    at: float = 0.0  # when it gave its last answer

    @property
    def next_at(self) -> float:
        return self.at + self.cluster.seconds.get(self.node, 1.0)

    def ask(self, method: str, *arguments: Any) -> Ref:
        thing = Thing(self, method, arguments)
        self.cluster.asked.append(thing)
        return thing

    def end(self) -> None:
        self.alive = False

    def answer(self, thing: Thing) -> Heard:
        if not self.alive:
            return Died("it was killed")
        if any(isinstance(a, Thing) and a.is_lost for a in thing.arguments):
            return Evicted("lost")
        logger = logging.getLogger("pisces")
        before = logger.handlers, logger.propagate
        try:  # a worker's log is its own
            if self.held is None:
                self.held, self.log = self.kind(), (logger.handlers, logger.propagate)
            logger.handlers, logger.propagate = self.log
            given = [_read_only(pickle.loads(pickle.dumps(self._own(a)))) for a in thing.arguments]
            value = getattr(self.held, thing.method)(*given)
        finally:
            logger.handlers, logger.propagate = before
        self.num_done += 1
        return Answer(_read_only(pickle.loads(pickle.dumps(value))), self.node)

    def _own(self, argument: Any) -> Any:
        if not isinstance(argument, Thing):
            return argument
        self.cluster.arrivals.add((id(argument), self.node))
        return pickle.loads(argument.value)


@dataclass(eq=False)
class PretendCluster(Cluster):
    """Nodes by name, with so many cores each; `before` is called before each question is put."""

    cores: dict[str, int] = field(default_factory=lambda: {"a": 2})
    before: Callable[[PretendWorker, Thing], None] = lambda _worker, _thing: None
    asked: list[Thing] = field(default_factory=list)
    hired: list[PretendWorker] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)
    arrivals: set[tuple[int, str]] = field(default_factory=set)
    closed: bool = False
    all_at_once: bool = False  # answers come together
    num_waits: int = 0  # for nobody
    seconds: dict[str, float] = field(default_factory=dict)  # for an answer, by node; else one

    def nodes(self) -> Mapping[str, str]:
        return {name: f"node-{name}" for name in self.cores}

    def room(self, share: Share) -> int:
        return 0 if share.gpus else sum(int(num // share.cpus) for num in self.cores.values())

    def put(self, thing: Any) -> Ref:
        self.things.append(Thing(value=pickle.dumps(thing)))
        return self.things[-1]

    def hire(self, kind: type, share: Share) -> Worker:
        taken = [worker.node for worker in self.hired if worker.alive]
        node = min(self.cores, key=lambda name: taken.count(name) / self.cores[name])
        self.hired.append(PretendWorker(self, kind, node))
        return self.hired[-1]

    def answers(self, refs: Sequence[Ref], wait_s: float) -> list[tuple[Ref, Heard]]:
        """That of the first question put to who is done next; or of each, all at once."""
        firsts: dict[int, Thing] = {}
        for thing in self.asked:
            if thing in refs:
                firsts.setdefault(id(thing.worker), thing)
        self.num_waits += not firsts
        some = sorted(firsts.values(), key=lambda one: one.worker.next_at)
        return [self._answer(thing) for thing in some[: None if self.all_at_once else 1]]

    def _answer(self, thing: Thing) -> tuple[Ref, Heard]:
        self.before(thing.worker, thing)
        self.asked.remove(thing)
        thing.worker.at = thing.worker.next_at
        return thing, thing.worker.answer(thing)

    def close(self) -> None:
        self.closed = True


def _read_only(value: Any) -> Any:
    for array in _arrays(value):
        array.flags.writeable = False
    return value


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, list | tuple):
        return [array for one in value for array in _arrays(one)]
    names = getattr(value, "__dataclass_fields__", ())
    return [array for name in names for array in _arrays(getattr(value, name))]
