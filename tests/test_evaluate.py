"""Evaluation: when it is due, what it measures, and that it does not hold up a real-time loop."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn
from worlds import weights

from pisces import evaluate
from pisces.evaluate import Background, Evaluator, Inline, Metric, Schedule, TestSet, accuracy
from pisces.models.flat import flatten
from pisces.objective import cross_entropy
from pisces.types import Evaluated, Weights

# --- when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "now", "version", "due"),
    # Version 4 was evaluated at 10.
    [
        (Schedule(every_s=5.0), 14.9, 99, False),
        (Schedule(every_s=5.0), 15.0, 4, True),  # the same version again: a point on the curve
        (Schedule(every_versions=3), 1e9, 6, False),
        (Schedule(every_versions=3), 10.0, 7, True),
        (Schedule(every_s=5.0, every_versions=3), 12.0, 7, True),  # whichever comes first
        (Schedule(every_s=5.0, every_versions=3), 15.0, 4, True),
        (Schedule(every_s=5.0, every_versions=3), 14.0, 6, False),
        (Schedule(), 1e9, 10**6, False),
    ],
)
def test_due_by_time_or_by_versions(
    schedule: Schedule, now: float, version: int, due: bool
) -> None:
    assert schedule.due(now, version, last_at=10.0, last_version=4) is due


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(every_s=5.0), Schedule(None, 3)])
def test_the_first_version_is_always_evaluated(schedule: Schedule) -> None:
    assert schedule.due(0.0, 0, last_at=0.0, last_version=-1)


def test_the_first_version_is_not_evaluated_for_ever() -> None:
    assert not Schedule(every_s=5.0, every_versions=3).due(1.0, 0, last_at=0.0, last_version=0)


def test_only_seconds_wake_the_loop() -> None:
    assert Schedule(every_s=5.0).next_at(10.0) == 15.0
    assert Schedule(every_versions=1).next_at(10.0) == math.inf


# --- the two evaluators ---------------------------------------------------------------------------


class Counted:
    """Measures the first weight, and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _version: int, weights: Weights) -> dict[str, float]:
        self.calls += 1
        return {"first": float(weights.flat[0])}


@pytest.mark.parametrize("make", [Inline, Background])
def test_results_come_once_and_in_order(make: Callable[[Counted], Evaluator]) -> None:
    evaluator = make(Counted())
    evaluator.start(1.0, 0, weights([10.0]))
    evaluator.start(2.0, 3, weights([20.0]))
    assert evaluator.drain() == [
        Evaluated(1.0, 0, {"first": 10.0}),
        Evaluated(2.0, 3, {"first": 20.0}),
    ]
    assert evaluator.finished() == evaluator.drain() == []
    assert not evaluator.busy


@pytest.mark.parametrize("make", [Inline, Background])
def test_the_same_version_is_not_measured_twice(make: Callable[[Counted], Evaluator]) -> None:
    measure = Counted()
    evaluator = make(measure)
    for at, version in ((0.0, 0), (1.0, 0), (2.0, 1)):
        evaluator.start(at, version, weights([float(version)]))
    assert [(e.at, e.metrics["first"]) for e in evaluator.drain()] == [
        (0.0, 0.0),
        (1.0, 0.0),
        (2.0, 1.0),
    ]
    assert measure.calls == 2


def test_inline_is_done_when_it_returns() -> None:
    evaluator = Inline(Counted())
    evaluator.start(1.0, 0, weights([10.0]))
    assert not evaluator.busy
    assert len(evaluator.finished()) == 1


def test_background_does_not_wait_for_the_measurement() -> None:
    gate = threading.Event()

    def slow(_version: int, weights: Weights) -> dict[str, float]:
        assert gate.wait(timeout=10)
        return {"first": float(weights.flat[0])}

    evaluator = Background(slow)
    evaluator.start(1.0, 0, weights([10.0]))
    evaluator.start(2.0, 1, weights([20.0]))
    assert evaluator.busy  # and yet we are here
    assert evaluator.finished() == []
    gate.set()
    assert [e.version for e in evaluator.drain()] == [0, 1]


def test_what_goes_wrong_in_the_background_is_heard_of() -> None:
    def broken(_version: int, _: Weights) -> dict[str, float]:
        raise ZeroDivisionError("in the metric")

    evaluator = Background(broken)
    evaluator.start(1.0, 0, weights([10.0]))
    with pytest.raises(ZeroDivisionError, match="in the metric"):
        evaluator.drain()


# --- the test set ---------------------------------------------------------------------------------


def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """|largest output - target| per sample."""
    return (outputs.amax(dim=1) - targets).abs()


def identity_model() -> nn.Module:
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
    return model


INPUTS = torch.tensor([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
TARGETS = torch.tensor([0, 1, 1])


def test_loss_and_accuracy_over_all_samples() -> None:
    # Outputs are the inputs. Largest at 0, 1, 0: two of three right.
    # |3 - 0|, |2 - 1|, |1 - 1|: mean 4/3.
    model = identity_model()
    measured = TestSet(model, INPUTS, TARGETS, absolute)(flatten(model))
    assert measured == pytest.approx({"accuracy": 2 / 3, "loss": 4 / 3})


def test_batches_do_not_change_the_result() -> None:
    # Two and one: a mean of batch means would be (2 + 0) / 2 = 1.
    model = identity_model()
    measured = TestSet(model, INPUTS, TARGETS, absolute, batch_size=2)(flatten(model))
    assert measured["loss"] == pytest.approx(4 / 3)


def test_the_weights_given_are_the_ones_measured() -> None:
    # Twice the identity: |6 - 0|, |4 - 1|, |2 - 1|: mean 10/3.
    model = identity_model()
    start = flatten(model)
    twice = Weights(2 * start.flat, start.layout)
    assert TestSet(model, INPUTS, TARGETS, absolute)(twice)["loss"] == pytest.approx(10 / 3)


def test_means_are_taken_batch_by_batch_and_the_rest_follows_from_the_loss() -> None:
    # Largest outputs 3, 2 and 1: mean 2. A loss of 4/3 twice: 8/3.
    model = identity_model()
    test_set = TestSet(
        model,
        INPUTS,
        TARGETS,
        absolute,
        metrics={},
        means={"largest": lambda outputs, _: outputs.amax(dim=1)},
        of_loss={"twice": lambda loss: 2 * loss},
        batch_size=2,
    )
    measured = test_set(flatten(model))
    assert measured == pytest.approx({"largest": 2.0, "loss": 4 / 3, "twice": 8 / 3})
    assert list(measured) == ["largest", "loss", "twice"]


def test_losses_taken_batch_by_batch_have_the_same_bits() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 10)
    inputs, targets = torch.randn(1000, 6), torch.randint(10, (1000,))
    measured = TestSet(model, inputs, targets, cross_entropy)(flatten(model))
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in torch.split(inputs, 256)])
    assert measured["loss"] == float(cross_entropy(outputs, targets).mean())
    assert measured["accuracy"] == accuracy(outputs, targets)


class Watched(nn.Module):
    """Scores of 100 words at each of 50 places; knows its batches, and the outputs still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(100, 100)
        self.batches: list[int] = []
        self.outputs: list[weakref.ref[torch.Tensor]] = []
        self.most_alive = 0

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(words))
        self.most_alive = max(self.most_alive, sum(ref() is not None for ref in self.outputs))
        outputs: torch.Tensor = self.scores(words)
        self.outputs.append(weakref.ref(outputs))
        return outputs


def watched(metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A test set of ten texts, of each of which the outputs are 5 000 numbers."""
    monkeypatch.setattr(evaluate, "_OUTPUTS", 15_000)
    model, words = Watched(), torch.arange(500).view(10, 50) % 100
    measures = TestSet(model, words, words, lambda o, t: (o.argmax(-1) != t).float(), metrics)
    measures(flatten(model))
    return model


def test_outputs_of_a_language_model_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = watched({}, monkeypatch)
    assert model.batches == [1, 3, 3, 3, 1]  # one to see how large an output is; 15 000 hold three
    assert model.most_alive <= 1


def test_outputs_are_kept_for_a_metric_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    metric: Metric = lambda outputs, _: shapes.append(tuple(outputs.shape)) or 0.0  # noqa: E731
    assert watched({"mine": metric}, monkeypatch).most_alive == 3
    assert shapes == [(10, 50, 100)]


def test_metrics_of_ones_own_replace_accuracy() -> None:
    model = identity_model()
    highest = {"highest": lambda outputs, _: float(outputs.max())}
    measured = TestSet(model, INPUTS, TARGETS, absolute, highest)(flatten(model))
    assert measured == pytest.approx({"highest": 3.0, "loss": 4 / 3})


def test_a_loss_that_is_a_mean_already_is_fine() -> None:
    model = identity_model()
    measured = TestSet(model, INPUTS, TARGETS, lambda o, t: absolute(o, t).mean())(flatten(model))
    assert measured["loss"] == pytest.approx(4 / 3)


def test_dropout_is_off_and_nothing_is_recorded_for_gradients() -> None:
    model = nn.Sequential(identity_model(), nn.Dropout(0.9))
    model.train()
    test_set = TestSet(model, INPUTS, TARGETS, absolute)
    assert test_set(flatten(model)) == test_set(flatten(model))
    assert test_set(flatten(model))["loss"] == pytest.approx(4 / 3)
    assert model[0].weight.grad is None


@pytest.mark.parametrize("right", [9780, 8400, 9500, 9000, 9700])
def test_a_target_that_is_met_exactly_is_met(right: int) -> None:
    # As a float32 mean, 9780 of 10 000 would be 0.97799998.
    targets = torch.zeros(10_000, dtype=torch.int64)
    outputs = torch.nn.functional.one_hot((torch.arange(10_000) >= right).long(), 2).float()
    assert accuracy(outputs, targets) == right / 10_000


def test_accuracy_takes_sequences_too() -> None:
    # Two sequences of two tokens, three classes: right, wrong, right, right.
    outputs = nn.functional.one_hot(torch.tensor([[0, 1], [2, 2]]), 3).float()
    assert accuracy(outputs, torch.tensor([[0, 2], [2, 2]])) == 0.75
