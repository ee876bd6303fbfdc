"""What a dataset's objective means: the loss clients train with, and what is measured.

    labels      cross-entropy per sample; accuracy
    next_word   cross-entropy, the mean over a sample's words; share of words foretold, perplexity

A language model's outputs for a whole test set would not fit into memory, so its measures are means
of one value per sample, or follow from the mean loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn import functional

from pisces.evaluate import Metric, TestSet, accuracy
from pisces.train.base import Loss
from pisces.types import Objective

_MOST_LOSS = 700.0  # e to this is still a number: JSON has no word for infinity


@dataclass(frozen=True, slots=True)
class Goal:
    """The loss to train with, and the measures beside it."""

    loss: Loss
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # of all outputs and targets
    means: Mapping[str, Loss] = field(default_factory=dict)  # of one value per sample
    of_loss: Mapping[str, Callable[[float], float]] = field(default_factory=dict)
    headline: str = "loss"  # of all it measures, what models are compared by

    @property
    def measured(self) -> list[str]:
        """The names of all it measures."""
        return [*self.metrics, *self.means, "loss", *self.of_loss]

    def with_own(self, loss: Loss | None, metrics: Mapping[str, Metric] | None) -> Goal:
        """The same, but for a loss (of which nothing follows) or metrics of one's own."""
        goal = self if loss is None else replace(self, loss=loss, of_loss={})
        goal = replace(goal, metrics=metrics, means={}) if metrics else goal
        return goal if goal.headline in goal.measured else replace(goal, headline="loss")

    def test_set(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> TestSet:
        """Measures weights of the model on such samples."""
        measures = (self.loss, self.metrics, self.means, self.of_loss)
        return TestSet(model, inputs, targets, *measures)


def goal_of(objective: Objective) -> Goal:
    """What an objective means."""
    return _GOALS[objective]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy per sample."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def next_word_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy per sample: the mean over its words."""
    losses = cross_entropy(outputs.flatten(0, 1), targets.flatten())
    return losses.view(targets.shape).mean(dim=1)


def words_foretold(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Share of each sample's words that the largest output foretells."""
    return (outputs.argmax(dim=-1) == targets).float().mean(dim=1)


def perplexity(loss: float) -> float:
    """Among how many equally likely words such a loss leaves one to guess."""
    return math.exp(min(loss, _MOST_LOSS))


_GOALS: Mapping[Objective, Goal] = {
    "labels": Goal(cross_entropy, metrics={"accuracy": accuracy}, headline="accuracy"),
    "next_word": Goal(
        next_word_loss,
        means={"accuracy": words_foretold},
        of_loss={"perplexity": perplexity},
        headline="perplexity",
    ),
}
