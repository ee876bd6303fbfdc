"""Weights as one flat vector: there and back, with buffers, counters and ties in their place."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pisces.models.flat import flatten, layout_of, load_flat, state_dict_of
from pisces.types import Weights


class Normed(nn.Module):
    """A linear layer before and after BatchNorm, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 2)
        self.register_buffer("scale", torch.tensor([4.0]), persistent=False)


class Tied(nn.Module):
    """Input and output share one matrix, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5)
        self.out.weight = self.embed.weight


def counted(weights: Weights) -> Weights:
    """The same layout, filled with 0, 1, 2 ..."""
    return Weights(torch.arange(weights.layout.size, dtype=weights.flat.dtype), weights.layout)


def test_parameters_lie_one_after_another_in_row_order() -> None:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model.bias.copy_(torch.tensor([5.0, 6.0]))
    weights = flatten(model)
    assert weights.flat.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert not weights.flat.requires_grad
    assert [(s.name, s.shape, s.dtype, s.role, s.start, s.stop) for s in weights.layout.slices] == [
        ("weight", (2, 2), "float32", "parameter", 0, 4),
        ("bias", (2,), "float32", "parameter", 4, 6),
    ]


def test_a_flat_vector_is_a_copy() -> None:
    model = nn.Linear(2, 1)
    weights = flatten(model)
    before = model.weight.clone()
    weights.flat.zero_()
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("make", [Normed, Tied, lambda: nn.Conv2d(2, 3, 3)])
def test_round_trip(make) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    source, target = make(), make()
    for tensor in source.state_dict().values():
        if tensor.is_floating_point():
            tensor.normal_()
    weights = flatten(source)
    assert not torch.equal(flatten(target).flat, weights.flat)
    load_flat(target, weights)
    assert torch.equal(flatten(target).flat, weights.flat)
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)


def test_a_known_layout_can_be_handed_in() -> None:
    model = Normed()
    layout = layout_of(model)
    assert flatten(model, layout).layout is layout
    assert torch.equal(flatten(model, layout).flat, flatten(model).flat)


def test_loading_keeps_the_model_s_own_tensors() -> None:
    model = nn.Linear(2, 1)
    parameters = list(model.parameters())
    load_flat(model, counted(flatten(model)))
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(p.requires_grad for p in parameters)
    assert model.weight.tolist() == [[0.0, 1.0]]
    assert model.bias.tolist() == [2.0]


# --- buffers and counters -------------------------------------------------------------------------


def test_float_buffers_lie_behind_all_parameters() -> None:
    layout = layout_of(Normed())
    # parameters: norm 3 + 3, head 6 + 2; buffers: scale 1, running mean 3, running variance 3
    assert layout.num_parameters == 14
    assert layout.size == 21
    roles = [s.role for s in layout.slices]
    assert roles == ["parameter"] * 4 + ["buffer"] * 3
    assert {s.name for s in layout.slices if s.start >= 14} == {
        "scale",
        "norm.running_mean",
        "norm.running_var",
    }


def test_integer_counters_stay_with_the_module() -> None:
    model = Normed()
    model.norm(torch.randn(4, 3))
    weights = flatten(model)
    assert weights.layout.counters == ("norm.num_batches_tracked",)
    other = Normed()
    load_flat(other, weights)
    assert int(other.norm.num_batches_tracked) == 0
    assert torch.equal(other.norm.running_mean, model.norm.running_mean)
    assert int(state_dict_of(weights, model)["norm.num_batches_tracked"]) == 1


def test_a_buffer_that_is_not_saved_is_averaged_but_not_exported() -> None:
    model = Normed()
    weights = counted(flatten(model))
    assert "scale" not in state_dict_of(weights, model)
    load_flat(model, weights)
    (place,) = [s.start for s in weights.layout.slices if s.name == "scale"]
    assert model.scale.tolist() == [float(place)]


# --- tied weights ---------------------------------------------------------------------------------


def test_tied_weights_are_stored_once() -> None:
    layout = layout_of(Tied())
    assert [s.name for s in layout.slices] == ["embed.weight", "out.bias"]
    assert layout.aliases == (("out.weight", "embed.weight"),)
    assert layout.size == layout.num_parameters == 15 + 5


def test_tied_weights_come_back_under_both_names_and_stay_tied() -> None:
    model = Tied()
    weights = counted(flatten(model))
    state = state_dict_of(weights, model)
    expected = torch.arange(15.0).view(5, 3)
    assert torch.equal(state["embed.weight"], expected)
    assert torch.equal(state["out.weight"], expected)
    assert state["out.bias"].tolist() == [15.0, 16.0, 17.0, 18.0, 19.0]
    load_flat(model, weights)
    assert model.out.weight is model.embed.weight
    assert torch.equal(model.out.weight, expected)


# --- number types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "flat"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ],
)
def test_narrow_types_travel_as_float32_and_come_back(
    dtype: torch.dtype, flat: torch.dtype
) -> None:
    torch.manual_seed(0)
    source, target = nn.Linear(3, 2, dtype=dtype), nn.Linear(3, 2, dtype=dtype)
    weights = flatten(source)
    assert weights.flat.dtype == flat
    assert {s.dtype for s in weights.layout.slices} == {str(dtype).removeprefix("torch.")}
    load_flat(target, weights)
    assert target.weight.dtype == dtype
    assert torch.equal(target.weight, source.weight)
    state = state_dict_of(weights, target)
    assert state["weight"].dtype == dtype
    assert torch.equal(state["weight"], source.weight)


def test_a_model_of_mixed_types_keeps_the_widest() -> None:
    model = nn.Sequential(nn.Linear(1, 1, dtype=torch.float64), nn.Linear(1, 1))
    weights = flatten(model)
    assert weights.flat.dtype == torch.float64
    assert float(weights.flat[0]) == model[0].weight.item()
    assert state_dict_of(weights, model)["1.weight"].dtype == torch.float32


# --- state_dict -----------------------------------------------------------------------------------


def test_a_state_dict_loads_strictly_and_shares_nothing() -> None:
    model = Normed()
    weights = counted(flatten(model))
    state = state_dict_of(weights, model)
    other = Normed()
    other.load_state_dict(state, strict=True)
    load_flat(model, weights)
    assert torch.equal(other.head.weight, model.head.weight)
    state["head.weight"].zero_()
    assert float(weights.flat.sum()) == 21 * 20 / 2
