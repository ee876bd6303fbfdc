"""Every pending client at once: weights stacked, one step for all, replayed from a recording.

    tasks --pack--> groups --lanes--> steps of a whole group --> outcomes

The clients of a group take each step together, each from its own weights, on its own samples, by
its own plan; `gradients`, `group` and `probe` say how. Groups run beside each other in a few lanes
(streams of a GPU): one for small models, several for large ones, which go one client to a group.
Made for GPUs: on a CPU it computes the same, but slower than one client after the other.

Results agree with the sequential trainer's up to float rounding, however tasks are grouped.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.train.base import Loss, Outcome, Precision, Recipe, Trainer, unchanged
from pisces.train.gradients import CannotBatchError
from pisces.train.group import Group, Needs, Shape
from pisces.train.probe import Way, check_single_sample, choose
from pisces.train.sequential import SequentialTrainer
from pisces.train.shuffle import Rows, batch_sizes, num_steps, table, total_steps
from pisces.types import State, Task

log = logging.getLogger("pisces")

# Clients of a large model beside each other; more only crowd each other out.
_LANES_ALONE: dict[Precision, int] = {"float32": 2, "bf16": 4}
_MEMORY_SHARE = 0.4  # of what is free: a step needs its memory twice, once before it is recorded


class BatchedTrainer(Trainer):
    """Trains any number of tasks at once; at most `max_group` of them share a step."""

    def __init__(
        self,
        model: nn.Module,
        data: FederatedData,
        loss: Loss,
        recipe: Recipe | None = None,
        device: torch.device | str = "cpu",
        *,
        precision: Precision = "float32",
        max_group: int = 256,
        num_lanes: int | None = None,
    ) -> None:
        self._model = model.to(device)
        self._data, self._loss, self._recipe = data, loss, recipe or Recipe()
        self._precision: Precision = precision
        self._samples = (data.inputs.to(device), data.targets.to(device))
        self._rows = Rows.of(data, torch.device(device))
        # by batch size: most samples of a step, most steps of an epoch
        self._rooms: dict[int, tuple[int, int]] = {}
        self._like = flatten(self._model)
        self._max_group, self._num_lanes = max_group, num_lanes or 0  # 0: as suits the model
        self._lanes: dict[int, Group] = {}
        self._way: Way | None = None
        self._grouped_as_before = False  # by a saved run: whatever memory there is now
        self._takes_one = False  # sample in a step, as batch normalisation does not
        self._one_by_one: SequentialTrainer | None = None

    def train(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Train the tasks; the outcomes come when all of them are done."""
        yield from (unchanged(t, self._size(t)) for t in tasks if not self._num_steps(t))
        todo = [task for task in tasks if self._num_steps(task)]
        if todo:
            yield from self._outcomes(todo)

    def close(self) -> None:
        """Give the device's memory back."""
        self._lanes.clear()

    def state(self) -> State:
        """How tasks are grouped, which depends on the memory there was: sums round accordingly."""
        if self._way is None and not self._grouped_as_before:
            return State()
        return State({"max_group": self._max_group, "num_lanes": self._num_lanes})

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        if state.values:
            self._max_group = state.values["max_group"]
            self._num_lanes = state.values["num_lanes"]
            self._grouped_as_before = True

    def _outcomes(self, tasks: Sequence[Task]) -> Iterable[Outcome]:
        if self._one_by_one is None:
            try:
                return self._train_in_the_memory_there_is(tasks)
            except CannotBatchError as reason:
                exactly = " and in float32" if self._precision != "float32" else ""
                how = f"one after the other{exactly}, which is slower"
                log.warning("train.backend = batched: clients train %s: %s", how, reason)
            self.close()
            parts = (self._model, self._data, self._loss, self._recipe)
            self._one_by_one = SequentialTrainer(*parts, self._like.flat.device)
        return self._one_by_one.train(tasks)

    def _prepare(self, tasks: Sequence[Task]) -> None:
        room = self._needs(tasks).room
        self._way = way = choose(self._model, self._loss, self._samples, room, self._precision)
        if self._grouped_as_before:
            return
        if not way.stacks:
            self._max_group, self._num_lanes = 1, self._num_lanes or _LANES_ALONE[self._precision]
            return
        self._num_lanes = self._num_lanes or 1
        if way.bytes_per_client is not None:
            free = _MEMORY_SHARE * torch.cuda.mem_get_info(self._like.flat.device)[0]
            most = int(free / self._num_lanes / way.bytes_per_client)
            self._max_group = max(1, min(self._max_group, most))

    def _train_in_the_memory_there_is(self, tasks: Sequence[Task]) -> list[Outcome]:
        if self._way is None:
            self._prepare(tasks)
        outcomes = None
        while outcomes is None:
            try:
                outcomes = self._train(tasks)
            except torch.OutOfMemoryError:
                if self._max_group == self._num_lanes == 1:
                    raise
            if outcomes is None:  # the handler is left: its traceback held on to memory
                self._shrink(len(tasks))
        return outcomes

    def _shrink(self, num_tasks: int) -> None:
        if self._max_group > 1:
            self._max_group = max(1, min(self._max_group, num_tasks) // 2)
        else:
            self._num_lanes = 1
        self._lanes.clear()
        gc.collect()  # what the failed step was about to compute hangs together in circles
        torch.cuda.empty_cache()
        most = self._max_group * self._num_lanes
        log.info("out of memory: from now on at most %d clients at once", most)

    def _train(self, tasks: Sequence[Task]) -> list[Outcome]:
        if not self._takes_one and any(self._has_single_samples(task) for task in tasks):
            check_single_sample(self._model, self._samples)
            self._takes_one = True
        tasks = sorted(tasks, key=self._num_steps, reverse=True)
        needs = self._needs(tasks)
        everything = table(self._rows, tasks, needs.room)
        parts = pack([self._num_steps(task) for task in tasks], self._num_lanes, self._max_group)
        trained = []
        for number, part in enumerate(parts):
            some = tasks[part]
            lane = number % self._num_lanes
            group = self._group(lane, len(some), needs)
            shapes = self._shapes(some, needs.room)
            trained.append(group.train(some, everything.part(part), shapes))
        for group in self._lanes.values():
            group.join()
        return [o for t in trained for o in t.outcomes([self._size(task) for task in t.tasks])]

    def _size(self, task: Task) -> int:
        return int(self._rows.sizes[task.client])

    def _num_steps(self, task: Task) -> int:
        return num_steps(self._size(task), task.plan)[0]

    def _has_single_samples(self, task: Task) -> bool:
        """Does it have steps of one sample?"""
        return self._size(task) == 1 or task.plan.batch_size == 1

    def _needs(self, tasks: Sequence[Task]) -> Needs:
        """By such plans, but of any client: later tasks fit too."""
        known = self._rooms
        for size in {task.plan.batch_size for task in tasks} - known.keys():
            batches = [batch_sizes(int(num), size) for num in np.unique(self._rows.sizes) if num]
            known[size] = max(max(b[0], b[-1]) for b in batches), max(map(len, batches))
        plans = [task.plan for task in tasks]
        room = max(known[plan.batch_size][0] for plan in plans)
        steps = max(total_steps(known[plan.batch_size][1], plan) for plan in plans)
        return Needs(room, steps, any(plan.proximal for plan in plans))

    def _group(self, lane: int, num: int, needs: Needs) -> Group:
        """The lane's group, made anew where it is too small."""
        assert self._way is not None
        group = self._lanes.pop(lane, None)
        if group is None or not group.holds(num, needs):
            del group  # before there is another: memory may be short
            parts = (self._way.make(), self._recipe, self._samples, self._like)
            group = Group(*parts, size=width_for(num), needs=needs)
        self._lanes[lane] = group
        return group

    def _shapes(self, tasks: Sequence[Task], room: int) -> list[Shape]:
        """The shape of each step of a group: fewer and fewer clients, or exactly one's batches."""
        assert self._way is not None
        plans = [(num_steps(self._size(t), t.plan), t.plan) for t in tasks]
        if self._way.stacks:
            totals = np.array([total for (total, _), _ in plans])
            return [(width_for(int((totals > t).sum())), room) for t in range(totals[0])]
        (total, _), plan = plans[0]
        sizes = batch_sizes(self._size(tasks[0]), plan.batch_size)
        return [(1, sizes[t % len(sizes)]) for t in range(total)]


def width_for(num: int) -> int:
    """A width at least `num`, one of few (1 2 3 4 6 8 10 12 14 16 20 ...): each is recorded."""
    grain = 1 << max(0, num.bit_length() - (2 if num < 8 else 3))
    return -(-num // grain) * grain


def pack(num_steps: Sequence[int], num_lanes: int, max_group: int) -> list[slice]:
    """Cut tasks, longest first, into groups of like length: one per lane if they are few enough.

    Lanes are given about equal work.
    """
    num, num_groups = len(num_steps), -(-len(num_steps) // max_group)
    cuts = np.linspace(0, num, num_groups + 1).astype(int)
    if num_groups < num_lanes:
        work = np.cumsum(np.maximum(num_steps, 1))
        shares = work[-1] * np.arange(1, num_lanes) / num_lanes
        cuts = np.unique([0, *np.searchsorted(work, shares) + 1, num])
    pieces = [
        np.linspace(a, b, -(-(b - a) // max_group) + 1).astype(int) for a, b in pairwise(cuts)
    ]
    return [slice(int(a), int(b)) for piece in pieces for a, b in pairwise(piece)]
