"""Tasks on the workers of a cluster, wherever its nodes are.

Data lies on every node once, and so do the weights of a version. A worker that trains one task
after the other is handed the next one before it is done; one that trains many at once is handed its
share of them. Whoever is faster gets more. What a worker had that died, or what got lost on the
way, is done again by another: a result depends on its task alone.
"""

from __future__ import annotations

import copy
import logging
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import numpy as np
import torch
from torch import nn

from pisces.cluster.base import Answer, Cluster, Died, Evicted, Ref, Share, Worker
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, RunError
from pisces.models.flat import flatten
from pisces.train.base import Loss, Outcome, Recipe, Trainer
from pisces.train.elsewhere import Deaths, Hearsay, Raised
from pisces.train.hands import Cargo, Craft, Hand, Order, Parts, Ready, Trained, software
from pisces.train.shuffle import num_samples
from pisces.types import Task, Weights

log = logging.getLogger("pisces")

_PATIENCE_S = 1.0  # without an answer, before one looks who is there
_LOOK_EVERY = 50  # answers, before one looks who is there
_AHEAD = 2  # tasks that a worker has which trains one after the other
_NEWS = 0.3  # share of the latest lot in what is known of a worker's speed
_MOST_LOSSES = 3  # of what was put into the cluster, around one lot
_LONG = 10  # waits without a single worker, before one says so
_MOST_STILLBORN = 3  # workers in a row that died before they were set up


@dataclass(slots=True, eq=False)
class _Lot:
    """Tasks that one worker does in one go."""

    tasks: Sequence[Task]
    work: int  # samples
    num_lost: int = 0


@dataclass(slots=True, eq=False)
class _Hired:
    """A worker, what it was given and how fast it was."""

    worker: Worker
    node: str | None = None  # nobody knows before it is set up
    lots: list[_Lot] = field(default_factory=list)  # the first is the one it is at
    speed: float | None = None  # samples per second

    def note(self, lot: _Lot, seconds: float) -> None:
        """It did a lot in so long."""
        self.lots.remove(lot)
        speed = lot.work / max(seconds, 1e-6)
        self.speed = speed if self.speed is None else _mixed(self.speed, speed)


class RayTrainer(Trainer):
    """Trains on as many workers as the cluster has room for, or `workers` of them.

    One after the other (`craft`), results are those of `SequentialTrainer`, bit by bit.
    """

    def __init__(
        self,
        cluster: Cluster,
        model: nn.Module,
        data: FederatedData,
        loss: Loss,
        recipe: Recipe | None = None,
        *,
        craft: Craft = Craft(),  # noqa: B008 (frozen)
        share: Share = Share(),  # noqa: B008 (frozen)
        workers: int | None = None,
    ) -> None:
        self._cluster, self._craft, self._share = cluster, craft, share
        self._most = workers
        own = copy.deepcopy(model).cpu()
        self._parts = Parts(own, loss, recipe or Recipe(), craft, flatten(own).layout)
        self._data = data
        self._sizes = data.num_examples
        self._placed: tuple[Ref, Ref] | None = None  # parts and data, in the cluster
        self._starts: dict[int, tuple[torch.Tensor, Ref]] = {}  # by the id of the weights
        self._hired: list[_Hired] = []
        self._asked: dict[Ref, tuple[_Hired, _Lot | None]] = {}  # no lot: it is being set up
        self._nodes = dict(cluster.nodes())
        self._num_heard = self._num_waits = self._num_stillborn = 0
        self._hearsay = Hearsay()
        self._call = object()
        if not cluster.room(share):
            raise ConfigError(
                f"train.ray: no node of the cluster has {share.in_words()} for a worker: ask for "
                "less (gpus_per_worker, cpus_per_worker), or add one that has"
            )

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Train the tasks, the longest first; each outcome comes as soon as it is there."""
        self._give_up()  # what an earlier call left undone
        self._call = call = object()
        deaths = Deaths()
        try:
            if tasks:
                self._look()
            todo = self._cut(tasks)
            while todo or self._busy():
                self._hand_out(todo)
                for outcome in self._hear(todo, deaths):
                    yield outcome
                    if self._call is not call:
                        raise RuntimeError("train was called again before this call had ended")
        finally:
            if self._call is call:
                self._give_up()
        self._forget_others(tasks)

    def close(self) -> None:
        """End all workers, and let go of the cluster."""
        for hired in list(self._hired):
            self._dismiss(hired)
        self._cluster.close()

    # --- who does what ----------------------------------------------------------------------------

    def _cut(self, tasks: Sequence[Task]) -> list[_Lot]:
        """Lots, the smallest first: a task each, or as many tasks as suit each worker's speed."""
        ordered = sorted(tasks, key=self._work)
        if not self._craft.batched:
            return [_Lot([task], self._work(task)) for task in ordered]
        speeds = sorted(self._speed(hired) for hired in self._hired) or [1.0]
        cuts = shares([self._work(task) for task in ordered], speeds)
        lots = [ordered[a:b] for a, b in pairwise(cuts) if a < b]
        return sorted((self._lot(lot) for lot in lots), key=_size)

    def _lot(self, tasks: Sequence[Task]) -> _Lot:
        return _Lot(tasks, sum(map(self._work, tasks)))

    def _work(self, task: Task) -> int:
        return max(1, num_samples(int(self._sizes[task.client]), task.plan))

    def _speed(self, hired: _Hired) -> float:
        """Of one that has not worked yet, the usual one."""
        known = [one.speed for one in self._hired if one.speed is not None]
        return hired.speed or (median(known) if known else 1.0)

    def _hand_out(self, todo: list[_Lot]) -> None:
        """Largest first, to whom would have it done soonest, unless that one has enough to do."""
        ready = [hired for hired in self._hired if hired.node is not None]
        ahead = 1 if self._craft.batched else _AHEAD
        while todo and ready:
            best = min(ready, key=lambda hired: self._done_in(hired, todo[-1]))
            if len(best.lots) >= ahead:
                return
            self._give(best, todo.pop())

    def _done_in(self, hired: _Hired, lot: _Lot) -> float:
        return (sum(map(_size, hired.lots)) + lot.work) / self._speed(hired)

    def _give(self, hired: _Hired, lot: _Lot) -> None:
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

    def _forget_others(self, tasks: Sequence[Task]) -> None:
        """Weights of which the latest tasks had no use are not kept in the cluster."""
        used = {id(task.weights.flat) for task in tasks}
        self._starts = {key: start for key, start in self._starts.items() if key in used}

    # --- who is there -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Notice who came and went, and hire as many workers as there is room for."""
        nodes = dict(self._cluster.nodes())
        for node in self._nodes.keys() - nodes.keys():
            log.warning("node %s of the cluster is lost", self._nodes[node])
        for node in nodes.keys() - self._nodes.keys():
            log.info("node %s has joined the cluster", nodes[node])
        self._nodes, self._num_heard = nodes, 0
        room = self._cluster.room(self._share)
        for _ in range(min(room, self._most or room) - len(self._hired)):
            self._hire()

    def _hire(self) -> None:
        if self._placed is None:
            put = self._cluster.put
            self._placed = (put(self._parts), put(Cargo.of(self._data)))
        hired = _Hired(self._cluster.hire(Hand, self._share))
        self._hired.append(hired)
        self._asked[hired.worker.ask("set_up", *self._placed)] = (hired, None)

    def _dismiss(self, hired: _Hired) -> None:
        self._hired.remove(hired)
        self._asked = {ref: of for ref, of in self._asked.items() if of[0] is not hired}
        hired.worker.end()

    def _busy(self) -> bool:
        return any(hired.lots for hired in self._hired)

    def _give_up(self) -> None:
        for hired in [hired for hired in self._hired if hired.lots]:
            self._dismiss(hired)

    # --- what they say ----------------------------------------------------------------------------

    def _hear(self, todo: list[_Lot], deaths: Deaths) -> Iterator[Outcome]:
        """What the next answers bring; where nobody answers for a while, look who is there."""
        answers = self._cluster.answers(list(self._asked), _PATIENCE_S)
        self._num_heard += len(answers)
        if not answers or self._num_heard >= _LOOK_EVERY:
            self._look()
        if not answers and not any(hired.node for hired in self._hired):
            self._say_once_that_one_waits()
        for ref, answer in answers:
            if ref not in self._asked:  # of one that died meanwhile
                continue
            hired, lot = self._asked.pop(ref)
            match answer:
                case Died(why):
                    self._bury(hired, why, todo, deaths)
                case Evicted(why):
                    self._replace(hired, lot, why, todo)
                case Answer(value, node):
                    yield from self._take(hired, lot, value, node)

    def _say_once_that_one_waits(self) -> None:
        self._num_waits += 1
        if self._num_waits == _LONG:
            log.warning(
                "the cluster has no room yet for a worker with %s: others may use it, or nodes are "
                "still starting",
                self._share.in_words(),
            )

    def _take(
        self, hired: _Hired, lot: _Lot | None, said: Ready | Raised | Trained, node: str
    ) -> Iterator[Outcome]:
        match said:
            case Raised():
                raise said.from_a(f"worker process on node {self._nodes.get(node, node)}")
            case Ready():
                self._check(said.software, node)
                hired.node, self._num_stillborn = node, 0
            case Trained():
                assert lot is not None
                hired.note(lot, said.seconds)
                for line in said.said:
                    self._hearsay.add(line)
                yield from _outcomes(lot, said)

    def _check(self, theirs: str, node: str) -> None:
        if theirs != software():
            raise RunError(
                f"node {self._nodes.get(node, node)} has {theirs}, this one {software()}: results "
                "would depend on who trains; install the same everywhere"
            )

    def _bury(self, hired: _Hired, why: str, todo: list[_Lot], deaths: Deaths) -> None:
        """Do again what a worker had that died; where its node is gone, no task is to blame."""
        self._dismiss(hired)
        for lot in hired.lots:
            insort(todo, lot, key=_size)
        self._look()
        if hired.node is None:
            self._num_stillborn += 1
            if self._num_stillborn == _MOST_STILLBORN:
                raise RunError(
                    f"{_MOST_STILLBORN} worker processes in a row died before they could be set "
                    f"up: {why}"
                )
        elif hired.lots and hired.node in self._nodes:
            remedy = f" ({why}): is there too little memory for it, or does its model end it?"
            deaths.count(hired.lots[0].tasks[0], "worker process", "died", remedy)

    def _replace(self, hired: _Hired, lot: _Lot | None, why: str, todo: list[_Lot]) -> None:
        """Put everything into the cluster again, and do again what wanted it."""
        log.warning("something was lost in the cluster, and is put there again: %s", why)
        self._placed = None
        self._starts.clear()
        if lot is None:
            self._dismiss(hired)
            self._look()
            return
        hired.lots.remove(lot)
        lot.num_lost += 1
        if lot.num_lost == _MOST_LOSSES:
            raise RunError(f"the cluster lost what it was given {_MOST_LOSSES} times: {why}")
        insort(todo, lot, key=_size)


def shares(work: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Where to cut tasks, one lot per worker, so that all are done at about the same time.

    Work and speeds are in rising order: tasks of like length stay together, the longest with the
    fastest.
    """
    done = np.concatenate([[0], np.cumsum(work)])
    until = np.cumsum(speeds) / sum(speeds) * done[-1]
    cuts = [int(np.abs(done - wanted).argmin()) for wanted in until[:-1]]
    return [0, *cuts, len(work)]


def _outcomes(lot: _Lot, trained: Trained) -> Iterator[Outcome]:
    """On this side: weights of our own, on the device their task's were on."""
    tasks = {task.id: task for task in lot.tasks}
    for task_id, array, report in trained.results:
        start = tasks[task_id].weights
        flat = torch.from_numpy(array.copy()).to(start.flat.device)
        yield Outcome(task_id, Weights(flat, start.layout), report)


def _size(lot: _Lot) -> int:
    return lot.work


def _mixed(before: float, now: float) -> float:
    return (1 - _NEWS) * before + _NEWS * now
