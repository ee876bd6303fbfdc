"""The GPU's kernels against PyTorch's own layers, in float32 against float64.

Without a GPU they run in Triton's interpreter, which must be chosen before Triton is imported:
hence in a process of their own.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from pisces.data.federated import FederatedData
from pisces.models.flat import flatten
from pisces.objective import cross_entropy
from pisces.train.base import Recipe
from pisces.train.batched import BatchedTrainer
from pisces.train.sequential import SequentialTrainer
from pisces.types import Plan, Task

pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
runs_here = pytest.mark.skipif(
    not (INTERPRETED or DEVICE == "cuda"), reason="needs a GPU or Triton's interpreter"
)

# clients, samples, channels, height, width, outputs, kernel, stride, padding
CONVOLUTIONS = [
    (2, 3, 1, 9, 8, 6, (5, 5), (1, 1), (2, 2)),
    (3, 2, 6, 10, 9, 17, (3, 2), (2, 1), (0, 1)),
    (1, 2, 3, 7, 7, 4, (1, 1), (2, 2), (0, 0)),
]


@pytest.mark.skipif(INTERPRETED or DEVICE == "cuda", reason="they run here")
def test_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(CONVOLUTIONS) + 3} passed" in done.stdout


@runs_here
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: tuple[int, ...]) -> None:
    from pisces.train import kernels

    clients, num, channels, height, width, outputs, size, stride, pad = case
    torch.manual_seed(1)
    images = torch.randn(clients, num, channels, height, width, device=DEVICE)
    # as in flat weights: each client's kernels in one piece, the clients' apart
    flat = torch.randn(clients, outputs * channels * size[0] * size[1] + 5, device=DEVICE)
    weights = flat[:, 2:-3].view(clients, outputs, channels, *size)
    bias = torch.randn(clients, outputs, device=DEVICE)
    exact = [t.double().requires_grad_() for t in (images, weights, bias)]
    expected = torch.stack(
        [functional.conv2d(x, w, b, stride, pad) for x, w, b in zip(*exact, strict=True)]
    )
    worth = torch.randn(expected.shape, device=DEVICE)
    expected.backward(worth.double())
    near = {"rtol": 1e-4, "atol": 1e-4, "check_dtype": False}
    torch.testing.assert_close(
        kernels.convolve(images, weights, bias, stride, pad), expected, **near
    )
    without = kernels.convolve(images, weights, None, stride, pad)
    torch.testing.assert_close(without + bias[:, None, :, None, None], expected, **near)
    of_images = kernels.image_gradient(worth, weights, (height, width), stride, pad)
    torch.testing.assert_close(of_images, exact[0].grad, **near)
    of_weights, of_bias = kernels.kernel_gradient(worth, images, size, stride, pad)
    torch.testing.assert_close(of_weights, exact[1].grad, **near)
    torch.testing.assert_close(of_bias, exact[2].grad, **near)


@runs_here
def test_pooling_takes_the_first_of_equals() -> None:
    from pisces.train import kernels

    torch.manual_seed(1)
    images = torch.randint(0, 3, (2, 3, 4, 9, 7), device=DEVICE).float().requires_grad_()
    expected = functional.max_pool2d(images.flatten(0, 1), (2, 3)).unflatten(0, (2, 3))
    worth = torch.randn_like(expected)
    expected.backward(worth)
    largest, which = kernels.pool(images.detach(), (2, 3))
    assert torch.equal(largest, expected)
    assert images.grad is not None
    assert torch.equal(kernels.pool_gradient(worth, which, (9, 7), (2, 3)), images.grad)


@runs_here
def test_what_is_not_a_number_shows() -> None:
    from pisces.train import kernels

    images = torch.zeros(1, 1, 1, 2, 2, device=DEVICE)
    images[..., 1, 0] = float("nan")
    assert bool(kernels.pool(images, (2, 2))[0].isnan().all())


@runs_here
def test_training_by_them_is_near_training_without() -> None:
    torch.manual_seed(1)
    clients = [(torch.randn(n, 2, 6, 6), torch.randint(3, (n,))) for n in (3, 2, 5)]
    data = FederatedData.from_clients(clients, clients[0])
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    ).to(DEVICE)
    recipe = Recipe(momentum=0.9, weight_decay=1e-2)
    plan = Plan(epochs=1, batch_size=3, learning_rate=0.05)
    tasks = [Task(i, i, 0, flatten(model), plan, seed=i) for i in range(3)]
    one_by_one = SequentialTrainer(copy.deepcopy(model), data, cross_entropy, recipe, DEVICE)
    at_once = BatchedTrainer(model, data, cross_entropy, recipe, DEVICE)
    found, expected = (
        {outcome.task_id: outcome.weights.flat for outcome in trainer.train(tasks)}
        for trainer in (at_once, one_by_one)
    )
    assert at_once._way is not None
    assert at_once._way.stacks
    near = 1e-3 if DEVICE == "cuda" else 1e-5  # cuDNN may round to 10 bits
    for task in tasks:
        torch.testing.assert_close(found[task.id], expected[task.id], rtol=near, atol=near)
