"""What is learned: the loss of each objective, and what is measured beside it."""

from __future__ import annotations

import json
import math

import pytest
import torch

from pisces.objective import (
    cross_entropy,
    goal_of,
    next_word_loss,
    perplexity,
    words_foretold,
)


def certain(words: list[list[int]], chances: list[list[float]], vocabulary: int) -> torch.Tensor:
    """Outputs that give each of these words its chance, and share the rest among the others."""
    outputs = torch.empty(len(words), len(words[0]), vocabulary)
    for n, (sample, shares) in enumerate(zip(words, chances, strict=True)):
        for place, (word, chance) in enumerate(zip(sample, shares, strict=True)):
            outputs[n, place] = math.log((1 - chance) / (vocabulary - 1))
            outputs[n, place, word] = math.log(chance)
    return outputs


def test_the_next_word_s_loss_is_a_sample_s_mean() -> None:
    # Words given a half and an eighth: (ln 2 + ln 8) / 2 = 2 ln 2. A quarter twice: ln 4 = 2 ln 2.
    # A half and a half: ln 2.
    words = [[0, 3], [1, 1], [2, 0]]
    outputs = certain(words, [[1 / 2, 1 / 8], [1 / 4, 1 / 4], [1 / 2, 1 / 2]], vocabulary=5)
    losses = next_word_loss(outputs, torch.tensor(words))
    assert losses.tolist() == pytest.approx([2 * math.log(2), 2 * math.log(2), math.log(2)])


def test_words_foretold() -> None:
    # Above a half is always the largest; an eighth, among five words, never is.
    outputs = certain([[0, 3], [1, 1]], [[0.6, 1 / 8], [0.7, 0.9]], vocabulary=5)
    assert words_foretold(outputs, torch.tensor([[0, 3], [1, 1]])).tolist() == [0.5, 1.0]


def test_perplexity_is_how_many_words_are_left_to_guess() -> None:
    assert perplexity(math.log(800)) == pytest.approx(800)
    assert perplexity(0.0) == 1.0


@pytest.mark.parametrize("loss", [1e4, math.inf])
def test_perplexity_stays_a_number_that_json_knows(loss: float) -> None:
    assert 1e300 < perplexity(loss) < math.inf
    assert json.loads(json.dumps(perplexity(loss), allow_nan=False)) == perplexity(loss)


def test_a_loss_that_is_none_has_no_perplexity() -> None:
    assert math.isnan(perplexity(math.nan))


def test_models_are_compared_by_something_that_is_measured() -> None:
    assert goal_of("labels").headline == "accuracy"
    words = goal_of("next_word")
    assert words.headline == "perplexity"
    assert words.with_own(None, {"mine": lambda *_: 1.0}).headline == "perplexity"
    assert words.with_own(cross_entropy, None).headline == "loss"  # exp of any loss means nothing


def test_what_is_measured() -> None:
    assert goal_of("labels").measured == ["accuracy", "loss"]
    assert goal_of("next_word").measured == ["accuracy", "loss", "perplexity"]


def test_of_a_loss_of_ones_own_nothing_follows() -> None:
    goal = goal_of("next_word").with_own(cross_entropy, None)
    assert goal.loss is cross_entropy
    assert goal.measured == ["accuracy", "loss"]


def test_metrics_of_ones_own_replace_accuracy_and_nothing_else() -> None:
    goal = goal_of("next_word").with_own(None, {"mine": lambda _outputs, _targets: 1.0})
    assert goal.loss is next_word_loss
    assert goal.measured == ["mine", "loss", "perplexity"]
    assert goal_of("next_word").with_own(None, None) == goal_of("next_word")
