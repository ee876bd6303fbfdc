"""Models: their sizes, the shapes they take, and the ones they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from pisces.errors import ConfigError
from pisces.models.cnn import small_cnn
from pisces.models.femnist_cnn import femnist_cnn
from pisces.models.flat import flatten
from pisces.models.lenet5 import lenet5
from pisces.models.mlp import mlp

Maker = Callable[[Sequence[int], int], nn.Module]


def num_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "num"),
    [
        # conv 6 (25 + 1) + 16 (150 + 1), dense 120 (400 + 1) + 84 (120 + 1) + 10 (84 + 1)
        (lenet5((1, 28, 28), 10), 61_706),
        # 52 classes more: + 52 (84 + 1)
        (lenet5((1, 28, 28), 62), 66_126),
        # colour, 32 x 32: 6 (75 + 1), 16 (150 + 1), 120 (16 x 6 x 6 + 1), 84 (121), 10 (85)
        (lenet5((3, 32, 32), 10), 456 + 2416 + 69_240 + 10_164 + 850),
        # LEAF's number: 32 (25 + 1), 64 (800 + 1), 2048 (64 x 7 x 7 + 1), 62 (2048 + 1)
        (femnist_cnn((1, 28, 28), 62), 6_603_710),
        # 64 x 64 + 64, 64 x 10 + 10
        (mlp((1, 8, 8), 10), 4810),
        (mlp((3,), 2, hidden=(5, 4)), 20 + 24 + 10),
        (mlp((3,), 2, hidden=()), 8),
        # 16 (9 + 1) + 32 (144 + 1) + 10 (32 x 2 x 2 + 1)
        (small_cnn((1, 8, 8), 10), 160 + 4640 + 1290),
    ],
)
def test_numbers_of_parameters(model: nn.Module, num: int) -> None:
    assert num_parameters(model) == num


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (mlp, (7,)),
        (mlp, (1, 8, 8)),
        (small_cnn, (1, 4, 4)),
        (small_cnn, (3, 9, 6)),
        (femnist_cnn, (1, 4, 4)),
        (femnist_cnn, (3, 9, 6)),
        (lenet5, (1, 12, 12)),
        (lenet5, (1, 28, 28)),
        (lenet5, (3, 33, 20)),
    ],
)
def test_a_model_gives_one_score_per_class_and_learns(make: Maker, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = make(shape, 4)
    inputs, targets = torch.randn(8, *shape), torch.arange(8) % 4
    assert model(inputs).shape == (8, 4)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("make", [mlp, small_cnn, lenet5, femnist_cnn])
def test_the_caller_s_seed_decides_the_weights(make: Maker) -> None:
    flats = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        flats.append(flatten(make((1, 12, 12), 3)).flat)
    assert torch.equal(flats[0], flats[1])
    assert not torch.equal(flats[0], flats[2])


@pytest.mark.parametrize(
    ("make", "shape", "words"),
    [
        (lenet5, (1, 8, 8), r"\(1, 8, 8\); use mlp or small_cnn"),
        (lenet5, (1, 28, 11), "at least 12 pixels a side"),
        (lenet5, (784,), r"\(784,\); use mlp or small_cnn"),
        (small_cnn, (1, 3, 8), r"at least 4 pixels a side, .*\(1, 3, 8\); use mlp"),
        (small_cnn, (0, 8, 8), "use mlp"),
        (femnist_cnn, (1, 8, 3), r"femnist_cnn .* at least 4 pixels a side, .*; use mlp"),
        (mlp, (3, 0), r"inputs of \(3, 0\)"),
    ],
)
def test_inputs_a_model_cannot_take_are_refused(
    make: Maker, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make(shape, 10)


def test_empty_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"hidden layers of \(8, 0\)"):
        mlp((3,), 2, hidden=(8, 0))
    with pytest.raises(ConfigError, match="0 classes"):
        mlp((3,), 0)
