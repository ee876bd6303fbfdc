"""Tasks side by side, in one-thread worker processes that run the sequential trainer's own code.

Every worker has a slot of shared memory. The weights to start from are put there and the result
comes back in their place, so only small messages go over its pipe. Workers hold nothing that must
be given back: to kill one is always right, and none outlives the process that started it.

Where it is safe (Linux) workers are forked, so models and losses may be anything and the data is
never copied. Elsewhere they are spawned, and the model and the loss must be picklable.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TypeAlias

import torch
from torch import nn

from pisces.data.federated import FederatedData
from pisces.errors import ConfigError
from pisces.models.flat import flatten
from pisces.train.base import Loss, Outcome, Recipe, Trainer
from pisces.train.elsewhere import Deaths, Hearsay, Raised, Said, Telling
from pisces.train.processes import born_deaf, can_fork, settle_worker
from pisces.train.sequential import SequentialTrainer
from pisces.train.shuffle import num_samples
from pisces.types import Plan, Report, Task, Weights

log = logging.getLogger("pisces")

_LAST_BREATH_S = 5.0  # between the end of a worker's pipe and that of its process


# --- what goes over the pipes ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Order:
    """A task whose weights lie in the slot."""

    id: int
    client: int
    plan: Plan
    seed: int


@dataclass(frozen=True, slots=True)
class _Done:
    """The order is carried out; the result lies in the slot."""

    report: Report


_Message: TypeAlias = _Done | Raised | Said


# --- the parent's side ----------------------------------------------------------------------------


class PoolTrainer(Trainer):
    """Trains like `SequentialTrainer`, bit by bit, on up to `workers` CPU cores at once."""

    def __init__(
        self,
        model: nn.Module,
        data: FederatedData,
        loss: Loss,
        recipe: Recipe | None = None,
        *,
        workers: int,
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers: must be at least 1, not {workers}")
        if multiprocessing.current_process().daemon:
            raise ConfigError(
                "workers: a daemonic process (one of a multiprocessing.Pool, perhaps) may not "
                "start others: set backend = 'sequential', or run in a process that is not daemonic"
            )
        self._max_workers = workers
        self._parts = _Parts(model, data, loss, recipe)
        self._num_examples = data.num_examples
        self._weights = flatten(model)
        self._workers: list[_Worker] = []
        self._hearsay = Hearsay()
        self._call = object()

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Train the tasks, the longest first; each outcome comes as soon as it is there."""
        self._end_busy()  # an earlier call may have been given up
        self._call = call = object()
        todo = sorted(tasks, key=self._num_samples)
        deaths = Deaths()
        try:
            self._hand_out(todo)
            while busy := {w.pipe: w for w in self._workers if w.task}:
                for pipe in wait(list(busy)):
                    outcome = self._hear(busy[pipe], todo, deaths)  # type: ignore[index]
                    self._hand_out(todo)
                    if outcome is not None:
                        yield outcome
                    if self._call is not call:
                        raise RuntimeError("train was called again before this call had ended")
        finally:
            if self._call is call:
                self._end_busy()

    def close(self) -> None:
        """End all workers."""
        self._end(self._workers)

    def _num_samples(self, task: Task) -> int:
        return num_samples(int(self._num_examples[task.client]), task.plan)

    def _hand_out(self, todo: list[Task]) -> None:
        """Keep every worker busy, with the last (longest) tasks first."""
        while todo and (worker := self._free_worker()):
            worker.give(todo.pop())

    def _free_worker(self) -> _Worker | None:
        for worker in self._workers:
            if worker.task is None:
                return worker
        if len(self._workers) >= self._max_workers:
            return None
        with born_deaf():  # so that nothing comes between its birth and its place in the list
            others = [worker.pipe for worker in self._workers]
            self._workers.append(_Worker(self._parts, self._weights, others))
            return self._workers[-1]

    def _hear(self, worker: _Worker, todo: list[Task], deaths: Deaths) -> Outcome | None:
        """Take what a worker has to say."""
        match worker.hear():
            case _Done(report):
                return worker.hand_over(report)
            case Raised() as raised:
                raise raised.from_a("worker process")
            case Said() as said:
                self._hearsay.add(said)
            case None:
                todo.append(self._mourn(worker, deaths))
        return None

    def _mourn(self, worker: _Worker, deaths: Deaths) -> Task:
        """The task of a worker that died, if it can be tried again."""
        task, code = worker.task, worker.exit_code()
        assert task is not None
        self._end([worker])
        if worker.died_idle:
            log.warning("an idle worker process died (exit code %s)", code)
            return task
        killed = ", perhaps for lack of memory: try fewer workers"
        why = killed if code == -signal.SIGKILL else ": does its model or loss end the process?"
        deaths.count(task, "worker process", f"died (exit code {code})", why)
        return task

    def _end_busy(self) -> None:
        self._end([worker for worker in self._workers if worker.task])

    def _end(self, workers: Iterable[_Worker]) -> None:
        for worker in list(workers):
            worker.end()
            self._workers.remove(worker)


class _Worker:
    """A worker process as its parent sees it; it is free while it has no task."""

    def __init__(self, parts: _Parts, like: Weights, others: Sequence[Connection]) -> None:
        fork = can_fork()
        context = multiprocessing.get_context("fork" if fork else "spawn")
        self.task: Task | None = None
        self._has_worked = False
        self._took_task = context.RawValue(ctypes.c_bool, False)
        self._slot = Weights(_unnamed(like.flat) if fork else _named(like.flat), like.layout)
        self.pipe, theirs = context.Pipe()
        inherited = [*others, self.pipe] if fork else []
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(theirs, self._slot, self._took_task, parts, inherited), daemon=True
        )
        self._process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        """Have it train the task."""
        self.task, self._took_task.value = task, False
        self._slot.flat.copy_(task.weights.flat)
        with suppress(OSError):  # it is dead; whoever listens to it will know
            self.pipe.send(_Order(task.id, task.client, task.plan, task.seed))

    def hear(self) -> _Message | None:
        """Its next message; None if it died."""
        try:
            message: _Message = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def hand_over(self, report: Report) -> Outcome:
        """What it made of its task; from now on it is free."""
        assert self.task is not None
        weights = Weights(self._slot.flat.clone(), self.task.weights.layout)
        outcome = Outcome(self.task.id, weights, report)
        self.task, self._has_worked = None, True
        return outcome

    @property
    def died_idle(self) -> bool:
        """Did it die before it took up its task? A new one may have died of its start, though."""
        return self._has_worked and not self._took_task.value

    def exit_code(self) -> int | None:
        """How it ended; minus the number of the signal that killed it."""
        self._process.join(_LAST_BREATH_S)
        code: int | None = self._process.exitcode
        return code

    def end(self) -> None:
        """Kill and bury it."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _unnamed(flat: torch.Tensor) -> torch.Tensor:
    """Memory for such a vector that forked processes share: nothing to clean up, no size limit."""
    block = mmap.mmap(-1, max(flat.nbytes, 1))
    return torch.frombuffer(block, dtype=flat.dtype, count=flat.numel())


def _named(flat: torch.Tensor) -> torch.Tensor:
    """Memory for such a vector that can be sent to a spawned process."""
    shared: torch.Tensor = torch.zeros_like(flat).share_memory_()  # type: ignore[no-untyped-call]
    return shared


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What a trainer is made of."""

    model: nn.Module
    data: FederatedData
    loss: Loss
    recipe: Recipe | None

    def __reduce__(self) -> tuple[Callable[..., _Parts], tuple[object, ...]]:
        """Sent to a spawned worker, the data's tensors are shared; the model must be its own."""
        model, loss = _pickled("model", self.model), _pickled("loss", self.loss)
        return _received, (model, self.data, loss, self.recipe)


def _received(model: bytes, data: FederatedData, loss: bytes, recipe: Recipe | None) -> _Parts:
    return _Parts(pickle.loads(model), data, pickle.loads(loss), recipe)


def _pickled(name: str, thing: object) -> bytes:
    try:
        return pickle.dumps(thing)
    except Exception as error:
        raise ConfigError(
            f"workers: the {name} cannot be sent to worker processes ({error}): build it of "
            "classes and functions at the top of a module, or set backend = 'sequential'"
        ) from error


# --- in the workers -------------------------------------------------------------------------------


def _work(
    pipe: Connection,
    slot: Weights,
    took_task: ctypes.c_bool,
    parts: _Parts,
    inherited: Sequence[Connection],
) -> None:
    """Carry out orders until the parent lets go of the pipe, or dies."""
    settle_worker()
    torch.set_num_threads(1)
    for end in inherited:  # or the parent could not let go of them
        end.close()
    Telling(pipe.send)
    trainer = SequentialTrainer(parts.model, parts.data, parts.loss, parts.recipe)
    with suppress(EOFError, OSError):
        while True:
            order = pipe.recv()
            took_task.value = True
            pipe.send(_carry_out(order, slot, trainer))


def _carry_out(order: _Order, slot: Weights, trainer: SequentialTrainer) -> _Message:
    task = Task(order.id, order.client, 0, slot, order.plan, order.seed)
    try:
        (outcome,) = trainer.train([task])
    except Exception as error:
        return Raised.of(error)
    slot.flat.copy_(outcome.weights.flat)
    return _Done(outcome.report)
