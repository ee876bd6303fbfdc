"""Digits and synthetic problems: shapes and splits."""

from __future__ import annotations

import pytest
import torch

from pisces.data.datasets import digits, synthetic
from pisces.errors import ConfigError
from pisces.seeds import generator

# --- digits ---------------------------------------------------------------------------------------


def test_digits() -> None:
    data = digits()
    assert data.inputs.shape == (1438, 1, 8, 8)
    assert data.test_inputs.shape == (359, 1, 8, 8)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert (data.num_classes, data.natural) == (10, None)
    assert float(data.inputs.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(data.inputs.std()) == pytest.approx(1.0, abs=1e-3)


def test_digits_test_set_is_a_fifth_of_every_class() -> None:
    data = digits()
    test, train = torch.bincount(data.test_targets), torch.bincount(data.targets)
    assert torch.equal(test, torch.round((test + train) / 5).long())


def test_digits_seed_shuffles_the_training_samples_only() -> None:
    one, other = digits(1), digits(2)
    assert torch.equal(one.test_inputs, other.test_inputs)
    assert torch.equal(one.test_targets, other.test_targets)
    assert not torch.equal(one.targets, other.targets)
    assert torch.equal(digits(1).inputs, one.inputs)
    assert sorted(map(bytes, one.inputs.numpy())) == sorted(map(bytes, other.inputs.numpy()))


# --- synthetic ------------------------------------------------------------------------------------


def test_synthetic_classes_are_balanced_and_can_be_told_apart() -> None:
    data = synthetic(300, 10, 3, generator(0))
    assert data.inputs.shape == (300, 10)
    assert data.test_inputs.shape == (75, 10)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert torch.bincount(data.targets).tolist() == [100, 100, 100]
    centres = torch.stack([data.inputs[data.targets == k].mean(0) for k in range(3)])
    nearest = torch.cdist(data.test_inputs, centres).argmin(1)
    assert float((nearest == data.test_targets).float().mean()) > 0.95


def test_synthetic_draws_from_its_generator() -> None:
    one, same, other = (synthetic(20, 3, 2, generator(s)) for s in (0, 0, 1))
    assert torch.equal(one.inputs, same.inputs)
    assert not torch.equal(one.inputs, other.inputs)


def test_a_small_synthetic_problem_still_tests_every_class() -> None:
    assert set(synthetic(5, 2, 5, generator(0)).test_targets.tolist()) == set(range(5))


@pytest.mark.parametrize("sizes", [(1, 3, 2), (10, 0, 2), (10, 3, 1)])
def test_impossible_synthetic_problems_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match=f"{sizes[2]} classes, {sizes[1]} features"):
        synthetic(*sizes, generator(0))
