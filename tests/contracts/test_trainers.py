"""What holds of every trainer: add yours to the table and it is held to all of it.

A row is a function that makes a trainer of a given model over given data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
import torch
from clusters import PretendCluster
from runs import NoopTrainer, implementations
from torch import nn

import pisces.train
from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.objective import cross_entropy
from pisces.train.base import Outcome, Recipe, Trainer
from pisces.train.batched import BatchedTrainer
from pisces.train.hands import Craft
from pisces.train.hostile import Lies, Lying
from pisces.train.pool import PoolTrainer
from pisces.train.ray import RayTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task, Weights

Make: TypeAlias = Callable[[nn.Module, FederatedData], Trainer]

TRAINERS: dict[str, Make] = {
    "sequential": lambda model, data: SequentialTrainer(model, data, cross_entropy),
    "sequential, adam": lambda model, data: SequentialTrainer(
        model, data, cross_entropy, Recipe(optimizer="adam")
    ),
    "sequential, momentum and decay": lambda model, data: SequentialTrainer(
        model, data, cross_entropy, Recipe(momentum=0.9, weight_decay=1e-3, clip_norm=1.0)
    ),
    "pool of 1": lambda model, data: PoolTrainer(model, data, cross_entropy, workers=1),
    "pool of 3, adam": lambda model, data: PoolTrainer(
        model, data, cross_entropy, Recipe(optimizer="adam"), workers=3
    ),
    "batched": lambda model, data: BatchedTrainer(without_dropout(model), data, cross_entropy),
    "batched, one by one": lambda model, data: BatchedTrainer(model, data, cross_entropy),
    "cluster": lambda model, data: RayTrainer(PretendCluster(), model, data, cross_entropy),
    "cluster, batched": lambda model, data: RayTrainer(
        PretendCluster(), without_dropout(model), data, cross_entropy, craft=Craft(batched=True)
    ),
    "lying": lambda model, data: Lying(
        SequentialTrainer(model, data, cross_entropy), Lies(frozenset({0, 2}), "low", times=0.5)
    ),
}


def without_dropout(model: nn.Module) -> nn.Module:
    """Draws no random numbers, so that clients can be batched; every layer keeps its name."""
    layers = [
        nn.Identity() if isinstance(layer, nn.Dropout) else layer for layer in model.children()
    ]
    return nn.Sequential(*layers)


every_trainer = pytest.mark.parametrize("name", TRAINERS)

SIZES = (6, 12, 33, 9)  # no plan below leaves a last batch of one, which batch statistics refuse


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def data() -> FederatedData:
    """Four clients of different sizes with three classes."""
    rng = seeded(1)
    clients = [
        (torch.randn(n, 6, generator=rng), torch.randint(3, (n,), generator=rng)) for n in SIZES
    ]
    return FederatedData.from_clients(clients, clients[0])


@pytest.fixture
def model() -> nn.Module:
    """Layers with every difficulty: batch statistics, dropout, a counter."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


@pytest.fixture
def tasks(model: nn.Module) -> list[Task]:
    """One task per client, each from its own weights and by its own plan."""
    start = flatten(model)
    starts = [Weights(start.flat + i / 100, start.layout) for i in range(4)]
    plans = [Plan(epochs=1 + i, batch_size=4 + i, learning_rate=0.05) for i in range(4)]
    plans[3] = replace(plans[3], proximal=0.1, max_steps=3)
    return [Task(10 + i, i, i, starts[i], plans[i], seed=100 + i) for i in range(4)]


def trained(trainer: Trainer, tasks: Sequence[Task]) -> dict[int, Outcome]:
    return {outcome.task_id: outcome for outcome in trainer.train(tasks)}


def same(one: Outcome, other: Outcome, name: str = "") -> bool:
    """The same bits, or where clients are computed together up to rounding."""
    if name in ("batched", "cluster, batched"):
        numbers = [
            torch.cat(
                [
                    o.weights.flat,
                    torch.tensor(
                        [r.loss, r.loss_rms, -1.0 if r.loss_left is None else r.loss_left]
                    ),
                ]
            )
            for o, r in ((one, one.report), (other, other.report))
        ]
        return torch.allclose(*numbers, rtol=1e-4, atol=1e-6)
    return torch.equal(one.weights.flat, other.weights.flat) and one.report == other.report


def test_every_trainer_has_a_row(data: FederatedData, model: nn.Module) -> None:
    made = {type(make(model, data)) for make in TRAINERS.values()}
    trains = implementations(pisces.train, "train")  # as modules and groups of clients do
    assert {one for one in trains if hasattr(one, "close")} == made


@every_trainer
def test_one_outcome_per_task(
    name: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    trainer = TRAINERS[name](model, data)
    assert sorted(o.task_id for o in trainer.train(tasks)) == [10, 11, 12, 13]
    assert list(trainer.train([])) == []


@every_trainer
def test_outcomes_are_fit_to_send(
    name: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    for task in tasks:
        outcome = trained(TRAINERS[name](model, data), tasks)[task.id]
        flat, report = outcome.weights.flat, outcome.report
        assert outcome.weights.layout == task.weights.layout
        assert flat.shape == task.weights.flat.shape
        assert flat.dtype == torch.float32
        assert bool(flat.isfinite().all())
        assert not torch.equal(flat, task.weights.flat)  # it learned something
        assert report.num_examples == SIZES[task.client]
        assert report.loss is not None
        assert report.loss_rms is not None
        assert report.loss_rms >= report.loss > 0
        # Two epochs have to be done; one task is cut before.
        is_short = task.plan.epochs == 1 or task.plan.max_steps is not None
        assert (report.loss_left is None) is is_short
        assert report.loss_left is None or report.loss_left > 0
    # batches of 4, 5 and 6: 2 x 1, 3 x 2 and 6 x 3 steps; the last one may only do 3
    done = trained(TRAINERS[name](model, data), tasks)
    assert [done[task.id].report.num_steps for task in tasks] == [2, 6, 18, 3]


@every_trainer
def test_a_result_depends_on_its_task_alone(
    name: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    trainer = TRAINERS[name](model, data)
    together, backwards = trained(trainer, tasks), trained(trainer, tasks[::-1])
    for task in tasks:
        alone = trained(trainer, [task])[task.id]
        assert same(alone, together[task.id], name)
        assert same(alone, backwards[task.id], name)


@every_trainer
def test_the_number_and_version_of_a_task_do_not_matter(
    name: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    trainer, task = TRAINERS[name](model, data), tasks[1]
    renamed = replace(task, id=99, version=7, deadline_s=1.0)
    assert same(trained(trainer, [task])[11], trained(trainer, [renamed])[99])


@every_trainer
@pytest.mark.parametrize("field", ["seed", "client", "plan", "weights"])
def test_everything_else_does(
    name: str, field: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    trainer, task = TRAINERS[name](model, data), tasks[2]
    other = replace(task, **{field: getattr(tasks[1], field)})
    one, two = trained(trainer, [task])[12], trained(trainer, [other])[12]
    assert not torch.equal(one.weights.flat, two.weights.flat)


@every_trainer
def test_nothing_else_is_touched(
    name: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    trainer = TRAINERS[name](model, data)
    before = [task.weights.flat.clone() for task in tasks]
    inputs, state = data.inputs.clone(), torch.get_rng_state()
    outcomes = trained(trainer, tasks)
    first = outcomes[10].weights.flat.clone()
    trained(trainer, tasks[::-1])
    assert torch.equal(outcomes[10].weights.flat, first)  # no buffer of the trainer's own
    assert all(torch.equal(t.weights.flat, b) for t, b in zip(tasks, before, strict=True))
    assert torch.equal(data.inputs, inputs)
    assert torch.equal(torch.get_rng_state(), state)


@every_trainer
def test_an_epoch_may_visit_some_rows_of_a_pool(
    name: str, model: nn.Module, data: FederatedData, tasks: list[Task]
) -> None:
    # 5, 6, 33 and 9 of 6, 12, 33 and 9 rows. In batches of 4, 5, 6 and 7 these are 1 (the single
    # sample left joins it), 1 likewise, 6 and 2, in 1, 2, 3 and 4 epochs; the last may only do 3.
    pooled = replace(data, epoch_sizes=np.array([5, 6, 33, 9]))
    done = trained(TRAINERS[name](model, pooled), tasks)
    assert [done[t.id].report.num_examples for t in tasks] == [5, 6, 33, 9]
    assert [done[t.id].report.num_steps for t in tasks] == [1, 2, 18, 3]
    # Who visits all of its rows learns what it would without a pool.
    assert same(done[12], trained(TRAINERS[name](model, data), [tasks[2]])[12], name)


@every_trainer
def test_can_be_closed(name: str, model: nn.Module, data: FederatedData) -> None:
    TRAINERS[name](model, data).close()


def test_the_trainer_of_the_other_tests_keeps_the_contract(tasks: list[Task]) -> None:
    trainer = NoopTrainer()
    together = trained(trainer, tasks)
    assert sorted(together) == [10, 11, 12, 13]
    for task in tasks:
        assert same(trained(trainer, [task])[task.id], together[task.id])
