"""What makes training faster must not change a bit of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from pisces.models.tuning import faster_pooling, pool_first

WINDOWS: dict[str, dict[str, Any]] = {
    "2": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2},
    "padded": {"kernel_size": (2, 3), "stride": 2, "padding": (1, 0)},
    "dilated": {"kernel_size": 2, "stride": 1, "dilation": 2},
    "with a remainder": {"kernel_size": 2, "stride": 2, "ceil_mode": True},
}


def maxima_and_gradient(x: torch.Tensor, window: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    x = x.detach().requires_grad_()
    maxima = functional.max_pool2d(x, **window)
    weights = torch.randn(maxima.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return maxima, *torch.autograd.grad((maxima * weights).sum(), x)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pooling_by_planes_differs_in_nothing(window: dict[str, Any], dtype: torch.dtype) -> None:
    # Rounded, so that many windows have several maxima: the same one must be chosen.
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(5, 7, 9, 11, generator=rng, dtype=dtype).mul(2).round()
    expected = maxima_and_gradient(x, window)
    with faster_pooling(nn.Conv2d(1, 1, 1))():
        found = maxima_and_gradient(x, window)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[0].grad_fn is not None
    assert found[0].grad_fn.name() == "_MaxPoolBackward"  # it was done the other way
    assert found[0].is_contiguous()


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Linear(1, 1), torch.ones(4, 4, 4, 4)),  # does not convolve
        (nn.Conv2d(1, 1, 1), torch.ones(3, 5, 4, 4)),  # 15 planes fill no register
        (nn.Conv2d(1, 1, 1), torch.ones(16, 4, 4)),  # one sample without a batch
        (nn.Conv2d(1, 1, 1), torch.ones(4, 4, 4, 4).to(memory_format=torch.channels_last)),
    ],
)
def test_pooling_is_left_alone_where_it_gains_nothing(model: nn.Module, x: torch.Tensor) -> None:
    with faster_pooling(model)():
        pooled = functional.max_pool2d(x.requires_grad_(), 2)
        _, places = functional.max_pool2d(x, 2, return_indices=True)
    assert pooled.grad_fn is not None
    assert pooled.grad_fn.name() == "MaxPool2DWithIndicesBackward0"
    assert places.shape == pooled.shape


def test_models_that_vectorise_for_themselves_are_left_alone() -> None:
    x = torch.randn(2, 4, 8, 8, 8)
    with faster_pooling(nn.Conv2d(1, 1, 1))():
        pooled = torch.func.vmap(lambda images: functional.max_pool2d(images, 2))(x)
    assert torch.equal(pooled, torch.stack([functional.max_pool2d(images, 2) for images in x]))


def a_chain(window: dict[str, Any]) -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(**window)),
        nn.Conv2d(3, 4, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_pooling_before_the_relu_differs_in_nothing(window: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = a_chain(window)
    faster = pool_first(model)
    assert [type(layer) for layer in faster[0]] == [nn.Conv2d, nn.MaxPool2d, nn.ReLU]
    assert [type(layer) for layer in faster][1:4] == [nn.Conv2d, nn.MaxPool2d, nn.ReLU]
    assert type(model[0][1]) is nn.ReLU  # the caller's own is left as it was
    assert faster.state_dict().keys() == model.state_dict().keys()
    # Rounded, so that many windows have several maxima, and some nothing above zero.
    x = torch.randn(4, 2, 15, 17).mul(2).round()
    outputs = [m(x) for m in (model, faster)]
    assert torch.equal(*outputs)
    weights = torch.randn_like(outputs[0])
    for y in outputs:
        (y * weights).sum().backward()
    for one, other in zip(model.parameters(), faster.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


class ByHand(nn.Module):
    """Uses the links of its chain one by one, so they must stay where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = a_chain({"kernel_size": 2})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        convolved: torch.Tensor = self.chain[0][1](self.chain[0][0](x))
        return convolved


def watched() -> nn.Module:
    chain = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    chain[0].register_forward_hook(lambda *_: None)
    return chain


@pytest.mark.parametrize(
    "make",
    [
        ByHand,
        watched,
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
        lambda: nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)),
        lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
        lambda: nn.Sequential(nn.Tanh(), nn.MaxPool2d(2)),
    ],
)
def test_the_order_is_left_where_it_may_matter(make: Callable[[], nn.Module]) -> None:
    model = make()
    before = repr(model)
    assert pool_first(model) is model
    assert repr(model) == before
