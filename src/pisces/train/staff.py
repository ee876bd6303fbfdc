"""The workers of a trainer over a cluster: who is there, what they have, how fast they are.

Nodes come and go. As many workers are hired as there is room for; data and weights are put into the
cluster once, and again where they got lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from pisces.cluster.base import Cluster, Heard, Ref, Share, Worker
from pisces.data.federated import FederatedData
from pisces.errors import RunError
from pisces.train.hands import Cargo, Hand, Order, Parts, check_software
from pisces.types import Task

log = logging.getLogger("pisces")

PATIENCE_S = 1.0  # without an answer, before one looks who is there
LOOK_EVERY = 50  # answers, before one looks who is there
NEWS = 0.3  # share of the latest lot in what is known of a worker's speed
LONG = 10  # waits without a single worker, before one says so
MOST_STILLBORN = 3  # workers in a row that died, on nodes that live, before they were set up
MOST_LOST = 3  # times in a row that what was put into the cluster was not there


@dataclass(slots=True, eq=False)
class Lot:
    """Tasks that one worker does in one go."""

    tasks: Sequence[Task]
    work: int  # samples
    num_lost: int = 0


@dataclass(slots=True, eq=False)
class Hired:
    """A worker, what it was given and how fast it was."""

    worker: Worker
    given: tuple[Ref, Ref]  # what its trainer is made of
    among: frozenset[str]  # nodes that were there when it was hired
    node: str | None = None  # nobody knows before it is set up
    lots: list[Lot] = field(default_factory=list)  # the first is the one it is at
    num_done: int = 0
    speed: float | None = None  # samples per second

    @property
    def load(self) -> int:
        """Samples it still has to go through."""
        return sum(lot.work for lot in self.lots)

    def note(self, lot: Lot, seconds: float) -> None:
        """It did a lot in so long; the first does not count, in which everything is new."""
        self.lots.remove(lot)
        self.num_done += 1
        if self.num_done > 1:
            speed = lot.work / max(seconds, 1e-6)
            self.speed = speed if self.speed is None else self.speed + NEWS * (speed - self.speed)


class Staff:
    """Hires, asks and dismisses workers; `hired` are those there are."""

    def __init__(
        self, cluster: Cluster, parts: Parts, data: FederatedData, share: Share, most: int | None
    ) -> None:
        self.hired: list[Hired] = []
        self._cluster, self._parts, self._data = cluster, parts, data
        self._share, self._most = share, most
        self._placed: tuple[Ref, Ref] | None = None  # parts and data, in the cluster
        self._starts: dict[int, tuple[torch.Tensor, Ref]] = {}  # by the id of the weights
        self._asked: dict[Ref, tuple[Hired, Lot | None]] = {}  # no lot: it is being set up
        self._nodes = dict(cluster.nodes())
        self._num_heard = self._num_waits = self._num_stillborn = self._num_lost = 0

    @property
    def ready(self) -> list[Hired]:
        """Those that can be given something."""
        return [hired for hired in self.hired if hired.node is not None]

    @property
    def busy(self) -> bool:
        """Has anybody something to do?"""
        return any(hired.lots for hired in self.hired)

    def name_of(self, node: str) -> str:
        """What a node is called."""
        return self._nodes.get(node, node)

    def speed(self, hired: Hired) -> float:
        """Of one that has hardly worked yet, the usual one."""
        known = [one.speed for one in self.hired if one.speed is not None]
        return hired.speed or (median(known) if known else 1.0)

    # --- coming and going -------------------------------------------------------------------------

    def look(self) -> None:
        """Notice which nodes came and went, and hire as many workers as there is room for."""
        nodes = dict(self._cluster.nodes())
        for node in self._nodes.keys() - nodes.keys():
            log.warning("node %s of the cluster is lost", self._nodes[node])
        for node in nodes.keys() - self._nodes.keys():
            log.info("node %s has joined the cluster", nodes[node])
        self._nodes, self._num_heard = nodes, 0
        room = self._cluster.room(self._share)
        for _ in range(min(room, self._most or room) - len(self.hired)):
            self._hire()

    def _hire(self) -> None:
        if self._placed is None:
            put = self._cluster.put
            self._placed = (put(self._parts), put(Cargo.of(self._data)))
        worker = self._cluster.hire(Hand, self._share)
        hired = Hired(worker, self._placed, frozenset(self._nodes))
        self.hired.append(hired)
        self._asked[hired.worker.ask("set_up", *self._placed)] = (hired, None)

    def dismiss(self, hired: Hired) -> None:
        """End a worker, and forget what it was asked."""
        self.hired.remove(hired)
        self._asked = {ref: of for ref, of in self._asked.items() if of[0] is not hired}
        hired.worker.end()

    def dismiss_busy(self) -> None:
        """Nobody waits any more for what they are at."""
        for hired in [hired for hired in self.hired if hired.lots]:
            self.dismiss(hired)

    def close(self) -> None:
        """End all of them, and let go of the cluster."""
        for hired in list(self.hired):
            self.dismiss(hired)
        self._placed = None
        self._starts.clear()
        self._cluster.close()

    # --- asking -----------------------------------------------------------------------------------

    def give(self, hired: Hired, lot: Lot) -> None:
        """Have a worker do a lot."""
        starts = list({id(task.weights.flat): task.weights.flat for task in lot.tasks}.values())
        places = {id(flat): place for place, flat in enumerate(starts)}
        orders = [
            Order(t.id, t.client, t.plan, t.seed, places[id(t.weights.flat)]) for t in lot.tasks
        ]
        hired.lots.append(lot)
        ref = hired.worker.ask("train", orders, *map(self._start, starts))
        self._asked[ref] = (hired, lot)

    def _start(self, flat: torch.Tensor) -> Ref:
        """These weights in the cluster: put there once, whoever starts from them."""
        if id(flat) not in self._starts:
            self._starts[id(flat)] = (flat, self._cluster.put(flat.numpy(force=True)))
        return self._starts[id(flat)][1]

    def keep_starts(self, tasks: Sequence[Task]) -> None:
        """Weights that none of these tasks starts from are not kept in the cluster."""
        used = {id(task.weights.flat) for task in tasks}
        self._starts = {key: start for key, start in self._starts.items() if key in used}

    def answers(self) -> Iterator[tuple[Hired, Lot | None, Heard]]:
        """What they said; where nobody says anything for a while, look who is there."""
        found = self._cluster.answers(list(self._asked), PATIENCE_S)
        self._num_heard += len(found)
        if not found or self._num_heard >= LOOK_EVERY:
            self.look()
        if not found and not self.ready:
            self._say_once_that_one_waits()
        for ref, answer in found:
            of = self._asked.pop(ref, None)
            if of is not None:  # or its worker was dismissed for what it said before
                yield (*of, answer)

    def _say_once_that_one_waits(self) -> None:
        self._num_waits += 1
        if self._num_waits == LONG:
            log.warning(
                "no worker of the cluster is there yet, with %s each: they are still starting, or "
                "others use the cluster",
                self._share.in_words(),
            )

    # --- what they come to ------------------------------------------------------------------------

    def welcome(self, hired: Hired, node: str, software: str) -> None:
        """A worker is set up, unless it has other software."""
        try:
            check_software(software, self.name_of(node))
        except RunError:
            self.dismiss(hired)
            raise
        hired.node = node
        self._num_stillborn = self._num_lost = self._num_waits = 0

    def bury(self, hired: Hired, why: str) -> bool:
        """A worker died: was it, on a node that lives, at something that may be to blame?"""
        self.dismiss(hired)
        self.look()
        if hired.node is not None:
            return hired.node in self._nodes
        if hired.among <= self._nodes.keys():  # or one of them may have been its own
            self._num_stillborn += 1
        if self._num_stillborn == MOST_STILLBORN:
            raise RunError(
                f"{MOST_STILLBORN} worker processes in a row died before they could be set up: "
                f"{why}; is there memory for the data of all clients?"
            )
        return False

    def replace(self, hired: Hired, lot: Lot | None, why: str) -> None:
        """What a worker was given is lost: put everything into the cluster again."""
        if lot is not None:
            hired.lots.remove(lot)
            lot.num_lost += 1
        elif hired.given is self._placed:  # others were given the same: it is lost once
            self._num_lost += 1
        if MOST_LOST in (self._num_lost, 0 if lot is None else lot.num_lost):
            raise RunError(
                f"the cluster lost {MOST_LOST} times what it was given ({why}): is there too "
                "little room for it? `ray start --object-store-memory` gives more"
            )
        log.warning("something was lost in the cluster, and is put there again: %s", why)
        self._placed = None
        self._starts.clear()
        if lot is None:
            self.dismiss(hired)
            self.look()
