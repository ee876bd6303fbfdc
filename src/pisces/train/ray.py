"""Tasks on the workers of a cluster, wherever its nodes are.

Data lies on every node once, and so do the weights of a version. A worker that trains one task
after the other is handed the next one before it is done; one that trains many at once is handed its
share of them. Whoever is faster gets more. What a worker had that died, or what got lost on the
way, is done again by another: a result depends on its task alone.
"""

from __future__ import annotations

import copy
from bisect import insort
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from pisces.cluster.base import Answer, Cluster, Died, Evicted, Refused, Share
from pisces.data.federated import FederatedData
from pisces.errors import ConfigError, RunError
from pisces.models.flat import flatten
from pisces.train.base import Loss, Outcome, Recipe, Trainer
from pisces.train.elsewhere import Deaths, Hearsay, Raised
from pisces.train.hands import Craft, Parts, Ready, Trained
from pisces.train.shuffle import num_samples
from pisces.train.staff import Hired, Lot, Staff
from pisces.types import Task, Weights

_AHEAD = 2  # tasks that a worker has which trains one after the other


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
        if not cluster.room(share):
            raise ConfigError(
                f"train.ray: no node of the cluster has {share.in_words()} for a worker: ask for "
                "less (gpus_per_worker, cpus_per_worker), or add one that has"
            )
        own = copy.deepcopy(model).cpu()
        parts = Parts(own, loss, recipe or Recipe(), craft, flatten(own).layout)
        self._staff = Staff(cluster, parts, data, share, workers)
        self._ahead = 1 if craft.batched else _AHEAD
        self._batched = craft.batched
        self._sizes = data.num_examples
        self._hearsay = Hearsay()
        self._call = object()

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Train the tasks, the longest first; each outcome comes as soon as it is there."""
        self._staff.dismiss_busy()  # with what an earlier call left undone
        self._call = call = object()
        deaths = Deaths()
        try:
            if tasks:
                self._staff.look()
            todo = self._cut(tasks)
            while todo or self._staff.busy:
                self._hand_out(todo)
                for outcome in self._hear(todo, deaths):
                    yield outcome
                    if self._call is not call:
                        raise RuntimeError("train was called again before this call had ended")
        finally:
            if self._call is call:
                self._staff.dismiss_busy()
        self._staff.keep_starts(tasks)

    def close(self) -> None:
        """End all workers, and let go of the cluster."""
        self._staff.close()

    # --- who does what ----------------------------------------------------------------------------

    def _cut(self, tasks: Sequence[Task]) -> list[Lot]:
        """Lots, the smallest first: a task each, or as many tasks as suit each worker's speed."""
        ordered = sorted(tasks, key=self._work)
        if not self._batched:
            return [Lot([task], self._work(task)) for task in ordered]
        speeds = sorted(map(self._staff.speed, self._staff.hired)) or [1.0]
        cuts = shares([self._work(task) for task in ordered], speeds)
        lots = [ordered[a:b] for a, b in pairwise(cuts) if a < b]
        return sorted((Lot(lot, sum(map(self._work, lot))) for lot in lots), key=_size)

    def _work(self, task: Task) -> int:
        return max(1, num_samples(int(self._sizes[task.client]), task.plan))

    def _hand_out(self, todo: list[Lot]) -> None:
        """Largest first, to whom would have it done soonest of those that have not enough to do.

        The last few wait for one who has enough to do and would be done with them sooner still.
        """
        ready = self._staff.ready
        while todo and (free := [hired for hired in ready if len(hired.lots) < self._ahead]):
            soonest = partial(self._done_in, lot=todo[-1])
            best, are_last = min(free, key=soonest), len(todo) < len(ready)
            if are_last and min(map(soonest, ready)) < soonest(best):
                return
            self._staff.give(best, todo.pop())

    def _done_in(self, hired: Hired, lot: Lot) -> float:
        return (hired.load + lot.work) / self._staff.speed(hired)

    # --- what they say ----------------------------------------------------------------------------

    def _hear(self, todo: list[Lot], deaths: Deaths) -> Iterator[Outcome]:
        for hired, lot, answer in self._staff.answers():
            match answer:
                case Died(why):
                    self._bury(hired, why, todo, deaths)
                case Evicted(why):
                    self._staff.replace(hired, lot, why)
                    if lot is not None:
                        insort(todo, lot, key=_size)
                case Refused(why):
                    raise RunError(
                        f"a worker of the cluster cannot take what it is sent ({why}): what a "
                        "model, a loss and data are made of must be installed on every node"
                    )
                case Answer(value, node):
                    yield from self._take(hired, lot, value, node)

    def _take(
        self, hired: Hired, lot: Lot | None, said: Ready | Raised | Trained, node: str
    ) -> Iterator[Outcome]:
        match said:
            case Raised():
                self._staff.dismiss(hired)
                raise said.from_a(f"worker process on node {self._staff.name_of(node)}")
            case Ready(software):
                self._staff.welcome(hired, node, software)
            case Trained():
                assert lot is not None
                hired.note(lot, said.seconds)
                for line in said.said:
                    self._hearsay.add(line)
                yield from _outcomes(lot, said)

    def _bury(self, hired: Hired, why: str, todo: list[Lot], deaths: Deaths) -> None:
        """Do again what a worker had that died."""
        may_blame = self._staff.bury(hired, why)
        for lot in hired.lots:
            insort(todo, lot, key=_size)
        if hired.lots and may_blame:
            remedy = f" ({why}): is there too little memory for it, or does its model end it?"
            deaths.count(hired.lots[0].tasks[0], "worker process", "died", remedy)


def shares(work: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Where to cut tasks, one lot per worker, so that all are done at about the same time.

    Work and speeds are in rising order: tasks of like length stay together, the longest with the
    fastest.
    """
    done = np.concatenate([[0], np.cumsum(work)])
    until = np.cumsum(speeds) / sum(speeds) * done[-1]
    cuts = [int(np.abs(done - wanted).argmin()) for wanted in until[:-1]]
    return [0, *cuts, len(work)]


def _outcomes(lot: Lot, trained: Trained) -> Iterator[Outcome]:
    """On this side: weights of our own, on the device their task's were on."""
    tasks = {task.id: task for task in lot.tasks}
    for task_id, array, report in trained.results:
        start = tasks[task_id].weights
        flat = torch.from_numpy(array.copy()).to(start.flat.device)
        yield Outcome(task_id, Weights(flat, start.layout), report)


def _size(lot: Lot) -> int:
    return lot.work
