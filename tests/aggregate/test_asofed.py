"""The mean of everybody's last model, on numbers small enough to check."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import pytest
import torch
from worlds import update, view, weights

from pisces.aggregate.asofed import AsoFed, with_weighed_features
from pisces.errors import ConfigError
from pisces.policy import Combination
from pisces.seeds import generator
from pisces.types import Layout, Slice, Update, Weights

SIZES = [100, 300, 400]


def combine(rule: AsoFed, current: Weights, *updates: Update) -> Combination:
    return rule.combine(current, updates, view(SIZES, version=9), generator(1, "aggregate"))


def trained(client: int, end: float, start: float = 0.0) -> Update:
    return update(client, [end], base=[start], num_examples=SIZES[client])


def test_by_hand() -> None:
    rule = AsoFed()
    # Client 1, 300 samples, is the first to report: its model is the mean of all there are.
    made = combine(rule, weights([4.0]), trained(1, 12.0, start=4.0))
    assert made.weights.flat.tolist() == [12.0]
    assert made.coefficients == (1.0,)
    # Client 0, 100 samples, was sent 4 and says 8: 12 + 1/4 (8 - 12) = 11 = (3 x 12 + 8) / 4.
    made = combine(rule, weights([12.0]), trained(0, 8.0, start=4.0))
    assert made.weights.flat.tolist() == [11.0]
    # Client 1 comes back with 20, trained from 12; what counts is that it last said 12. Client 2,
    # 400 samples, is new and says 15: 11 + 3/8 (20 - 12) + 1/2 (15 - 11) = 16, which is
    # (8 + 3 x 20 + 4 x 15) / 8.
    made = combine(rule, weights([11.0]), trained(1, 20.0, start=12.0), trained(2, 15.0, start=4.0))
    assert made.weights.flat.tolist() == [16.0]
    assert made.coefficients == (0.375, 0.5)


def test_it_is_the_mean_of_the_last_models_wherever_clients_started() -> None:
    rng = generator(1, "models")
    rule, current, last = AsoFed(), weights([1.0, -2.0, 3.0]), {}
    for k in range(40):
        client = int(rng.choice([0, 0, 0, 1, 2])) if k > 5 else min(k, 1)
        said, base = rng.normal(size=(2, 3)).tolist()
        one = update(client, said, base=base, num_examples=SIZES[client])
        current = combine(rule, current, one).weights
        last[client] = one.weights.flat
        total = sum(SIZES[c] for c in last)
        mean = sum(SIZES[c] / total * model for c, model in last.items())
        assert torch.allclose(current.flat, mean, atol=1e-5)
    assert set(last) == {0, 1, 2}


def test_buffers_mix_against_the_current_model() -> None:
    rule = AsoFed()
    everybody = [update(c, [8.0, 5.0], num_examples=SIZES[c], num_buffers=1) for c in (0, 1, 2)]
    combine(rule, weights([0.0, 0.0], num_buffers=1), *everybody)
    # Parameter: 4 + 1/2 (10 - 8). Buffer: 6 + 1/2 (16 - 6), not against the 5 it said last.
    second = update(2, [10.0, 16.0], base=[4.0, 99.0], num_examples=400, num_buffers=1)
    made = combine(rule, weights([4.0, 6.0], num_buffers=1), second)
    assert made.weights.flat.tolist() == [5.0, 11.0]


# --- weighing features ----------------------------------------------------------------------------


def model(values: Sequence[float], *shapes: tuple[int, ...]) -> Weights:
    """Parameters of these shapes, one after the other."""
    slices, start = [], 0
    for place, shape in enumerate(shapes):
        stop = start + int(torch.Size(shape).numel())
        slices.append(Slice(f"p{place}", shape, "float32", "parameter", start, stop))
        start = stop
    return Weights(torch.tensor(values), Layout(tuple(slices)))


def test_features_are_weighed_in_the_first_matrix_only() -> None:
    # A scale, then two units of two inputs, (1, -1) and (0, 2), then another matrix. Equal sizes
    # share: 1/2 each. 0 against 2: 2 keeps e^2 / (1 + e^2), and 0 is 0.
    before = model([7.0, 1.0, -1.0, 0.0, 2.0, 5.0, 6.0], (1,), (2, 2), (1, 2))
    after = with_weighed_features(before)
    two = 2 * exp(2) / (1 + exp(2))
    assert after.flat.tolist() == pytest.approx([7.0, 0.5, -0.5, 0.0, two, 5.0, 6.0])
    assert before.flat.tolist() == [7.0, 1.0, -1.0, 0.0, 2.0, 5.0, 6.0]
    assert after.layout is before.layout


def test_a_filter_is_one_row() -> None:
    # One filter of one channel, 2 x 2, all alike: a quarter each.
    after = with_weighed_features(model([4.0, 4.0, 4.0, 4.0], (1, 1, 2, 2)))
    assert after.flat.tolist() == pytest.approx([1.0] * 4)


def test_features_are_weighed_after_the_mean_and_only_if_asked() -> None:
    # The first to report says (4, 4), which is the mean, and half of that if features are weighed.
    start, end = model([0.0, 0.0], (1, 2)), model([4.0, 4.0], (1, 2))
    one = Update(0, 2, 0, start, end, trained(2, 0.0).report, 0.0, 1.0)
    assert combine(AsoFed(), start, one).weights.flat.tolist() == [4.0, 4.0]
    weighed = AsoFed(weigh_features=True)
    assert combine(weighed, start, one).weights.flat.tolist() == [2.0, 2.0]
    assert weighed.state().arrays["client/2"].tolist() == [4.0, 4.0]  # the client's, as it came


def test_a_model_without_a_matrix_has_no_features() -> None:
    with pytest.raises(ConfigError, match="weigh_features: needs a first layer"):
        combine(AsoFed(weigh_features=True), weights([0.0]), trained(0, 1.0))
