"""The sequential trainer against arithmetic: every optimiser, every option, every report."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.train.base import Loss, Outcome, Recipe
from pisces.train.sequential import SequentialTrainer
from pisces.train.shuffle import shuffled
from pisces.types import Plan, Task, Weights

# One weight w, outputs w x, loss (w x - y)^2: its gradient is 2 x (w x - y).
Points = Sequence[tuple[float, float]]
TWO: Points = [(1.0, 1.0), (2.0, 0.0)]
SEVEN: Points = [
    (0.5, 1.0),
    (1.0, -1.0),
    (-1.5, 2.0),
    (2.0, 0.5),
    (0.1, 0.2),
    (-0.7, 0.0),
    (1.2, 1.0),
]


def line(w: float = 2.0) -> nn.Module:
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, w)
    return model


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).square().squeeze(1)


def data_of(*clients: Points) -> FederatedData:
    tables = [torch.tensor(points, dtype=torch.float64) for points in clients]
    pairs = [(table[:, :1], table[:, 1:]) for table in tables]
    return FederatedData.from_clients(pairs, pairs[0])


def task_of(model: nn.Module, *, id: int = 0, client: int = 0, seed: int = 1, **plan: Any) -> Task:
    settings = {"batch_size": 2, "learning_rate": 0.1, **plan}
    return Task(id, client, 0, flatten(model), Plan(**settings), seed)


def train(
    model: nn.Module,
    points: Points,
    recipe: Recipe | None = None,
    loss: Loss = squared,
    **plan: Any,
) -> Outcome:
    """One task of the only client."""
    trainer = SequentialTrainer(model, data_of(points), loss, recipe)
    (outcome,) = trainer.train([task_of(model, **plan)])
    return outcome


def trained(*args: Any, **plan: Any) -> float:
    """The weight after it."""
    return float(train(*args, **plan).weights.flat.item())


# --- single steps ---------------------------------------------------------------------------------

# w = 2 on TWO: errors 1 and 4, gradients 2 and 16, mean 9.


def test_one_step_of_sgd() -> None:
    assert trained(line(), TWO) == pytest.approx(2 - 0.1 * 9)


def test_report_of_one_batch() -> None:
    # Losses 1 and 16 before the step: mean 8.5, mean square (1 + 256) / 2.
    report = train(line(), TWO).report
    assert (report.num_examples, report.num_steps) == (2, 1)
    assert report.loss == pytest.approx(8.5)
    assert report.loss_rms == pytest.approx(math.sqrt(128.5))
    assert report.loss_left is None  # the first epoch is the last


def test_what_is_left_is_the_loss_of_the_last_epoch() -> None:
    # After w = 1.1 the losses are 0.01 and 4.84, mean 2.425, and w = 1.1 - 0.1 x 4.5 = 0.65; in the
    # third epoch they are 0.1225 and 1.69, mean 0.90625.
    for epochs, left in ((2, 2.425), (3, 0.90625)):
        report = train(line(), TWO, epochs=epochs).report
        assert report.loss == pytest.approx(8.5)
        assert report.loss_left == pytest.approx(left)


@pytest.mark.parametrize(
    ("recipe", "after"),
    [
        # The gradient of w^2 wd / 2 is wd w = 0.5 x 2 = 1.
        (Recipe(weight_decay=0.5), 2 - 0.1 * (9 + 1)),
        # Clipped to 3 (9 is longer), and not clipped to 10.
        (Recipe(clip_norm=3.0), 2 - 0.1 * 3),
        (Recipe(clip_norm=10.0), 2 - 0.1 * 9),
        # Decay is no part of the clipped gradient.
        (Recipe(clip_norm=3.0, weight_decay=0.5), 2 - 0.1 * (3 + 1)),
        # Adam's first step has the length of the learning rate, whatever the gradient and decay.
        (Recipe("adam"), 2 - 0.1),
        (Recipe("adam", weight_decay=0.5), 2 - 0.1),
        # AdamW shrinks w by lr wd = 5 % beside it.
        (Recipe("adamw", weight_decay=0.5), 2 * 0.95 - 0.1),
    ],
)
def test_one_step_of_each_recipe(recipe: Recipe, after: float) -> None:
    assert trained(line(), TWO, recipe) == pytest.approx(after, rel=1e-6)


@pytest.mark.parametrize(
    ("momentum", "after"),
    # Step 1: w = 2 - 0.9 = 1.1, no pull yet. Step 2: errors 0.1 and 2.2, gradient (0.2 + 8.8) / 2 =
    # 4.5, pull 0.5 (1.1 - 2) = -0.45. With momentum the gradient counts 0.9 x 9 + 4.5 = 12.6, the
    # pull as before.
    [(0.0, 1.1 - 0.1 * (4.5 - 0.45)), (0.9, 1.1 - 0.1 * (12.6 - 0.45))],
)
def test_two_steps_with_a_proximal_term(momentum: float, after: float) -> None:
    recipe = Recipe(momentum=momentum)
    assert trained(line(), TWO, recipe, epochs=2, proximal=0.5) == pytest.approx(after)
    assert trained(line(), TWO, recipe, epochs=1, proximal=0.5) == pytest.approx(1.1)


def test_the_proximal_term_pulls_beside_adam_too() -> None:
    # Two steps of Adam, and in the second 0.1 x 0.5 x (1.9 - 2) = -0.005 taken off.
    free = trained(line(), TWO, Recipe("adam"), epochs=2)
    pulled = trained(line(), TWO, Recipe("adam"), epochs=2, proximal=0.5)
    assert pulled == pytest.approx(free + 0.005, abs=1e-8)


# --- whole tasks against a loop in plain numbers --------------------------------------------------

Rule = Callable[[float, float, int], float]  # (weight, gradient, step from 1) -> weight


def sgd(lr: float, momentum: float, decay: float) -> Rule:
    speed = 0.0

    def step(w: float, g: float, t: int) -> float:
        nonlocal speed
        speed = momentum * speed + g + decay * w
        return w - lr * speed

    return step


def adam(lr: float, decay: float, decoupled: float) -> Rule:
    m = v = 0.0

    def step(w: float, g: float, t: int) -> float:
        nonlocal m, v
        w *= 1 - lr * decoupled
        g += decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return w - lr * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)

    return step


def batches(order: list[int], size: int) -> list[list[int]]:
    """Parts of that size; a last one of a single sample joins the one before."""
    parts = [order[first : first + size] for first in range(0, len(order), size)]
    if size > 1 and len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [parts[-2] + parts[-1]]
    return parts


Losses = list[list[float]]  # of each step's samples


def by_hand(rule: Rule, *, seed: int, epochs: int, batch_size: int) -> tuple[float, Losses]:
    """The weight after training on SEVEN from 2.0, and the losses of each step."""
    w, t, losses = 2.0, 0, []
    for epoch in range(epochs):
        order = shuffled(len(SEVEN), seed, epoch).tolist()
        for rows in batches(order, batch_size):
            batch = [SEVEN[i] for i in rows]
            losses.append([(w * x - y) ** 2 for x, y in batch])
            t += 1
            w = rule(w, sum(2 * x * (w * x - y) for x, y in batch) / len(batch), t)
    return w, losses


def mean(losses: Losses) -> float:
    return sum(map(sum, losses)) / sum(map(len, losses))


@pytest.mark.parametrize(
    ("recipe", "rule"),
    [
        (Recipe(), lambda: sgd(0.1, 0.0, 0.0)),
        (Recipe(momentum=0.9), lambda: sgd(0.1, 0.9, 0.0)),
        (Recipe(momentum=0.5, weight_decay=0.1), lambda: sgd(0.1, 0.5, 0.1)),
        (Recipe("adam"), lambda: adam(0.1, 0.0, 0.0)),
        (Recipe("adam", weight_decay=0.1), lambda: adam(0.1, 0.1, 0.0)),
        (Recipe("adamw", weight_decay=0.1), lambda: adam(0.1, 0.0, 0.1)),
    ],
    ids=["sgd", "momentum", "decay", "adam", "adam decay", "adamw"],
)
@pytest.mark.parametrize("batch_size", [1, 3, 7, 50])
def test_three_epochs_of_seven_samples(
    recipe: Recipe, rule: Callable[[], Rule], batch_size: int
) -> None:
    outcome = train(line(), SEVEN, recipe, epochs=3, batch_size=batch_size, seed=5)
    w, losses = by_hand(rule(), seed=5, epochs=3, batch_size=batch_size)
    assert outcome.weights.flat.item() == pytest.approx(w, rel=1e-9)
    per_epoch = {1: 7, 3: 2, 7: 1, 50: 1}[batch_size]  # 3: 3 and 4
    assert outcome.report.num_steps == 3 * per_epoch
    # Each batch before its own step.
    first, last = losses[:per_epoch], losses[-per_epoch:]
    squares = [[x * x for x in step] for step in first]
    assert outcome.report.loss == pytest.approx(mean(first))
    assert outcome.report.loss_rms == pytest.approx(math.sqrt(mean(squares)))
    assert outcome.report.loss_left == pytest.approx(mean(last))


@pytest.mark.parametrize("max_steps", [0, 2, 4, 99])
def test_max_steps_cuts_the_work_short(max_steps: int) -> None:
    # Two epochs of three batches (2, 2, 3).
    def stop(rule: Rule) -> Rule:
        return lambda w, g, t: rule(w, g, t) if t <= max_steps else w

    outcome = train(line(), SEVEN, epochs=2, max_steps=max_steps)
    w, losses = by_hand(stop(sgd(0.1, 0.0, 0.0)), seed=1, epochs=2, batch_size=2)
    assert outcome.weights.flat.item() == pytest.approx(w)
    assert outcome.report.num_steps == min(max_steps, 6)
    assert outcome.report.num_examples == 7  # what it has, not what it got through
    done = losses[:max_steps]
    if not done:
        assert (outcome.report.loss, outcome.report.loss_left) == (None, None)
        return
    assert outcome.report.loss == pytest.approx(mean(done[:3]))
    # Two epochs have to be done.
    left = mean(done[-3:]) if max_steps >= 6 else None
    assert outcome.report.loss_left == (None if left is None else pytest.approx(left))


# --- losses of every shape ------------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", [1, 2, 3, 5, 6, 8, 9])  # three make an epoch
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_that_ends_early_is_that_of_a_shorter_plan(num_steps: int, optimizer: Any) -> None:
    model = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1)).double()
    recipe = Recipe(optimizer, momentum=0.9 if optimizer == "sgd" else 0.0)
    asked = list[bool]()

    def goes_on() -> bool:
        asked.append(len(asked) + 1 < num_steps)
        return asked[-1]

    told = task_of(model, epochs=3), task_of(model, epochs=3, max_steps=num_steps)
    parts = model, data_of(SEVEN), squared, recipe
    (ended,) = SequentialTrainer(*parts, goes_on=goes_on).train(told[:1])
    (planned,) = SequentialTrainer(*parts).train(told[1:])
    assert torch.equal(ended.weights.flat, planned.weights.flat)
    assert ended.report == planned.report
    assert ended.report.num_steps == num_steps
    assert (ended.report.loss_left is None) == (num_steps < 6)
    # Before every step but the first: nobody is asked after the last.
    assert asked == [True] * (num_steps - 1) + [False] * (num_steps < 9)


def test_a_scalar_loss_is_its_batch_s_mean() -> None:
    # Batches of 2, 2 and 3: each counts with its size; spread within a batch is not seen.
    def scalar(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return squared(outputs, targets).mean()

    whole, split = train(line(), SEVEN, learning_rate=1e-12), []
    order = shuffled(7, 1, 0).tolist()
    for rows in batches(order, 2):
        batch = [(2 * SEVEN[i][0] - SEVEN[i][1]) ** 2 for i in rows]
        split += [sum(batch) / len(batch)] * len(batch)
    outcome = train(line(), SEVEN, None, scalar, learning_rate=1e-12)
    assert outcome.report.loss == pytest.approx(whole.report.loss)
    assert outcome.report.loss_rms == pytest.approx(math.sqrt(sum(x * x for x in split) / 7))
    assert outcome.weights.flat.item() == pytest.approx(whole.weights.flat.item())


def test_a_loss_per_output_counts_as_its_sample_s_mean() -> None:
    # Outputs (w x, w x), targets (y, 0), w = 2: errors 1, 2 and 4, 4; losses 2.5 and 16.
    def twice(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        both = outputs.expand(-1, 2)
        return (both - torch.cat([targets, torch.zeros_like(targets)], dim=1)).square()

    report = train(line(), TWO, None, twice).report
    assert report.loss == pytest.approx((2.5 + 16) / 2)
    assert report.loss_rms == pytest.approx(math.sqrt((2.5**2 + 16**2) / 2))


# --- tasks do not touch each other ----------------------------------------------------------------


def wobbly() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()


def outcomes(trainer: SequentialTrainer, tasks: Sequence[Task]) -> dict[int, torch.Tensor]:
    return {outcome.task_id: outcome.weights.flat for outcome in trainer.train(tasks)}


def test_equal_seeds_are_bit_equal_and_others_differ() -> None:
    model = wobbly()
    trainer = SequentialTrainer(model, data_of(SEVEN), squared, Recipe(momentum=0.9))
    tasks = [task_of(model, id=i, seed=seed, epochs=2) for i, seed in enumerate((4, 5, 4))]
    flat = outcomes(trainer, tasks)
    assert torch.equal(flat[0], flat[2])
    assert not torch.equal(flat[0], flat[1])


def test_other_tasks_in_the_call_do_not_matter() -> None:
    model, data = wobbly(), data_of(SEVEN, TWO)
    tasks = [task_of(model, id=i, client=i % 2, seed=i, epochs=2) for i in range(4)]
    trainer = SequentialTrainer(model, data, squared, Recipe("adam"))
    together = outcomes(trainer, tasks)
    for task in reversed(tasks):  # alone, in another order, after other calls
        assert torch.equal(outcomes(trainer, [task])[task.id], together[task.id])


def test_each_task_starts_from_its_own_weights() -> None:
    one, other = line(2.0), line(3.0)
    trainer = SequentialTrainer(line(99.0), data_of(TWO), squared)
    tasks = [task_of(one, id=0), task_of(other, id=1)]
    flat = outcomes(trainer, tasks)
    # w = 3: errors 2 and 6, gradients 4 and 24, mean 14.
    assert [flat[0].item(), flat[1].item()] == pytest.approx([1.1, 3 - 1.4])
    assert tasks[0].weights.flat.item() == 2.0  # and leaves them as they were


def test_an_outcome_is_not_overwritten_by_the_next() -> None:
    model = line()
    trainer = SequentialTrainer(model, data_of(TWO), squared)
    first, second = trainer.train([task_of(model, id=0), task_of(model, id=1, learning_rate=0.2)])
    assert first.weights.flat.item() == pytest.approx(1.1)
    assert second.weights.flat.item() == pytest.approx(0.2)


def test_dropout_is_decided_by_the_seed_alone() -> None:
    model = wobbly()
    trainer = SequentialTrainer(model, data_of(SEVEN), squared)
    task = task_of(model)
    torch.manual_seed(1)
    one = outcomes(trainer, [task])[0]
    torch.manual_seed(2)
    assert torch.equal(outcomes(trainer, [task])[0], one)


def test_torchs_own_generator_is_left_alone_even_between_outcomes() -> None:
    model = wobbly()
    trainer = SequentialTrainer(model, data_of(SEVEN), squared)
    before = torch.get_rng_state()
    results: Iterator[Outcome] = trainer.train([task_of(model, id=i) for i in range(2)])
    for _ in results:
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.get_rng_state(), before)


# --- models with more than trainable parameters ---------------------------------------------------


class Normalised(nn.Module):
    """BatchNorm in front of a line."""

    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, momentum=momentum)
        self.line = nn.Linear(1, 1)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.line(self.norm(x))
        return out


def slice_of(weights: Weights, name: str) -> float:
    (found,) = [s for s in weights.layout.slices if s.name == name]
    return float(weights.flat[found.start : found.stop].item())


def test_batch_norm_statistics_come_back() -> None:
    # Inputs 1 and 3: mean 2, unbiased variance 2, each mixed in at 0.1 with 0 and 1.
    weights = train(Normalised(0.1), [(1.0, 0.0), (3.0, 0.0)]).weights
    assert slice_of(weights, "norm.running_mean") == pytest.approx(0.2)
    assert slice_of(weights, "norm.running_var") == pytest.approx(0.9 + 0.2)


def test_counters_do_not_remember_earlier_tasks() -> None:
    # Without a momentum BatchNorm averages over all batches it has counted: one per task here.
    model = Normalised(None)
    trainer = SequentialTrainer(model, data_of([(1.0, 0.0), (3.0, 0.0)]), squared)
    for outcome in trainer.train([task_of(model, id=i) for i in range(3)]):
        assert slice_of(outcome.weights, "norm.running_mean") == pytest.approx(2.0)


def test_frozen_and_unused_parameters_stay() -> None:
    model = nn.ModuleDict({"used": line(), "frozen": line(), "unused": line()})
    model["frozen"].requires_grad_(False)
    model.forward = lambda x: model["frozen"](model["used"](x))  # type: ignore[method-assign]
    recipe = Recipe(momentum=0.9, weight_decay=0.5, clip_norm=1.0)
    weights = train(model, SEVEN, recipe, proximal=0.5, epochs=2).weights
    assert slice_of(weights, "frozen.weight") == slice_of(weights, "unused.weight") == 2.0
    assert slice_of(weights, "used.weight") != 2.0
    assert weights.flat.isfinite().all()


def test_training_is_done_in_training_mode() -> None:
    model = Normalised(0.1).eval()
    weights = train(model, [(1.0, 0.0), (3.0, 0.0)]).weights
    assert slice_of(weights, "norm.running_mean") == pytest.approx(0.2)


class Late(nn.Module):
    """w x, and from x = 1.5 on w x + b."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x + self.b if x.max() > 1.5 else self.w * x


def test_a_gradient_may_come_late() -> None:
    # b has a gradient in one of two steps, and moves in that one only. At x = 2, y = 0 it is
    # 2 (2 w): w = 1 at first, or 1 - 0.1 x 0 = 1 after the step at x = 1, y = 1, which fits.
    orders = set()
    for seed in range(4):
        model = Late()
        trainer = SequentialTrainer(model, data_of(TWO), squared, Recipe(momentum=0.9))
        (outcome,) = trainer.train([task_of(model, batch_size=1, seed=seed)])
        assert slice_of(outcome.weights, "b") == pytest.approx(-0.1 * 4)
        orders.add(tuple(shuffled(2, seed, 0).tolist()))
    assert len(orders) == 2  # it was the first and the second


# --- faster, not different ------------------------------------------------------------------------


def test_training_imports_no_compiler() -> None:
    # torch.optim's classes import one when first made: a second in every process.
    program = """
import sys, torch
from torch import nn
from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.train.base import Recipe
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task

pair = torch.ones(2, 1), torch.ones(2, 1)
data, model = FederatedData.from_clients([pair], pair), nn.Linear(1, 1)
for recipe in (Recipe(momentum=0.9, clip_norm=1.0), Recipe("adam"), Recipe("adamw")):
    trainer = SequentialTrainer(model, data, nn.MSELoss(reduction="none"), recipe)
    list(trainer.train([Task(0, 0, 0, flatten(model), Plan(proximal=0.1), 0)]))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
