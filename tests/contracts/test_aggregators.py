"""What holds of every aggregator: add yours to the table and it is held to all of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import implementations, through_json, with_those_of_protocols, without_a_row
from worlds import update, view, weights

import pisces.aggregate
from pisces.aggregate.asofed import AsoFed
from pisces.aggregate.average import Averaged
from pisces.aggregate.ca2fl import Calibrated
from pisces.aggregate.clip import Clipped
from pisces.aggregate.fedasync import Mixing
from pisces.aggregate.hysync import Hybrid
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.measured import MeasuredMean
from pisces.aggregate.port import SimilarityMean
from pisces.aggregate.robust import Krum, Median, RobustMean, Trimmed
from pisces.aggregate.server import Adam, AMSGrad, Momentum, Optimized, Yogi
from pisces.aggregate.staleness import Discount
from pisces.aggregate.teafed import MixedMean
from pisces.aggregate.usual import Usual
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update

AGGREGATORS: dict[str, Callable[[], Aggregator]] = {
    "mean, as FedAvg": DiscountedMean,
    "mean, as FedBuff": lambda: DiscountedMean(
        share="equal", staleness_penalty=0.5, reference="base"
    ),
    "mean, as the code of Pisces": lambda: DiscountedMean(staleness_penalty=0.5),
    "measured mean": MeasuredMean,
    "measured mean, as the paper of Pisces": lambda: MeasuredMean(
        staleness_penalty=0.0, full_share=0.0
    ),
    "averaged mean": lambda: Averaged(DiscountedMean(reference="base"), horizon=4.0),
    "averaged measured mean, as Pisces": lambda: Averaged(MeasuredMean(), horizon=4.0),
    "similarity mean": SimilarityMean,
    "similarity mean, direction only": lambda: SimilarityMean(staleness_weight=0.0),
    "mean, half a step": lambda: DiscountedMean(reference="base", server_rate=0.5),
    "clipped mean": lambda: Clipped(DiscountedMean(reference="base"), norm=1.0),
    "mean of what is not too long": lambda: Usual(1, DiscountedMean(reference="base"), longest=1.5),
    "optimized mean, as FedAvgM": lambda: Optimized(DiscountedMean(), Momentum()),
    "optimized mean, as FedAdam": lambda: Optimized(DiscountedMean(), Adam(0.5)),
    "optimized mean, as FedYogi": lambda: Optimized(DiscountedMean(), Yogi(0.5)),
    "optimized mean, as FADAS": lambda: Optimized(
        DiscountedMean(share="equal", reference="base"), AMSGrad(0.5, patience=2)
    ),
    "median": lambda: RobustMean(Median(), staleness_penalty=0.5, reference="base"),
    "trimmed mean": lambda: RobustMean(Trimmed(), share="equal", reference="base"),
    "krum": lambda: RobustMean(Krum()),
    "multi-krum": lambda: RobustMean(Krum(chosen=None), reference="base"),
    "mixing, as FedAsync": Mixing,
    "mixing, a hinge": lambda: Mixing(0.9, Discount("hinge", hinge_start=2.0)),
    "mixed mean, as TEA-Fed": MixedMean,
    "hybrid, as HySync": lambda: Hybrid(2),
    "calibrated, as CA2FL": Calibrated,
    "calibrated, half a step": lambda: Calibrated(server_rate=0.5),
    "averaged, calibrated": lambda: Averaged(Calibrated(), horizon=4.0),
    "last models, as ASO-Fed": AsoFed,
}

AGGREGATORS = with_those_of_protocols("aggregator", AGGREGATORS)
every_aggregator = pytest.mark.parametrize("name", AGGREGATORS)

VERSION = 5
CURRENT = (1.0, -2.0, 3.0, 0.5)  # the last one is a buffer
values = st.floats(-100, 100, width=32)
vectors = st.tuples(values, values, values, values)


@st.composite
def some_updates(draw: st.DrawFn) -> list[Update]:
    """One to five updates from this version or earlier ones."""
    return [
        update(
            client,
            draw(vectors),
            base=draw(vectors),
            version=draw(st.integers(0, VERSION)),
            num_examples=draw(st.integers(1, 1000)),
            num_buffers=1,
        )
        for client in range(draw(st.integers(1, 5)))
    ]


def combined(aggregator: Aggregator, updates: Sequence[Update], seed: int = 0) -> Combination:
    current = weights(CURRENT, num_buffers=1)
    seen = view([1000] * 6, buffer=updates, running=[(5, 2, 0.0)], version=VERSION)
    return aggregator.combine(current, updates, seen, generator(seed, "aggregate"))


def assert_same(one: Combination, other: Combination) -> None:
    """Bit for bit."""
    assert torch.equal(one.weights.flat, other.weights.flat)
    assert one.coefficients == other.coefficients
    assert (one.published is None) is (other.published is None)
    if one.published is not None and other.published is not None:
        assert torch.equal(one.published.flat, other.published.flat)


def test_every_aggregator_has_a_row() -> None:
    found = implementations(pisces.aggregate, "combine")
    assert found <= {type(make()) for make in AGGREGATORS.values()}
    assert without_a_row("aggregate", AGGREGATORS) == []


@every_aggregator
@settings(max_examples=30)
@given(updates=some_updates())
def test_gives_weights_of_the_same_kind_and_a_coefficient_each(
    name: str, updates: list[Update]
) -> None:
    result = combined(AGGREGATORS[name](), updates)
    assert result.weights.layout == weights(CURRENT, num_buffers=1).layout
    assert result.weights.flat.shape == (4,)
    assert result.weights.flat.dtype == torch.float32
    assert bool(result.weights.flat.isfinite().all())
    assert len(result.coefficients) == len(updates)
    assert all(type(c) is float and math.isfinite(c) for c in result.coefficients)


@every_aggregator
@settings(max_examples=20)
@given(updates=some_updates())
def test_changes_nothing_in_place(name: str, updates: list[Update]) -> None:
    current = weights(CURRENT, num_buffers=1)
    tensors = [current.flat, *(t.flat for u in updates for t in (u.base, u.weights))]
    before = [t.clone() for t in tensors]
    seen = view([1000] * 6, buffer=updates, running=[(5, 2, 0.0)], version=VERSION)
    result = AGGREGATORS[name]().combine(current, updates, seen, generator(0, "aggregate"))
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    assert result.weights.flat.data_ptr() not in [t.data_ptr() for t in tensors]


@every_aggregator
@settings(max_examples=20)
@given(updates=some_updates(), seed=st.integers(0, 99))
def test_draws_from_its_generator_only(name: str, updates: list[Update], seed: int) -> None:
    before = random.getstate(), torch.get_rng_state().tolist()
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    once, again = (combined(AGGREGATORS[name](), updates, seed) for _ in range(2))
    assert (random.getstate(), torch.get_rng_state().tolist()) == before
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    assert_same(once, again)


@every_aggregator
def test_updates_that_changed_nothing_change_nothing(name: str) -> None:
    still = [update(i, CURRENT, base=CURRENT, version=VERSION, num_buffers=1) for i in range(3)]
    flat = combined(AGGREGATORS[name](), still).weights.flat
    assert flat.tolist() == pytest.approx(CURRENT)


@every_aggregator
def test_moves_towards_fresh_updates_that_agree(name: str) -> None:
    there = [2.0, -1.0, 4.0, 1.5]  # one further in every place
    agreed = [update(i, there, base=CURRENT, version=VERSION, num_buffers=1) for i in range(3)]
    moved = combined(AGGREGATORS[name](), agreed).weights.flat - torch.tensor(CURRENT)
    assert bool((moved > 0).all())
    assert bool((moved <= 1 + 1e-6).all())


@every_aggregator
@settings(max_examples=30)
@given(updates=some_updates())
def test_buffers_mix_against_the_current_model(name: str, updates: list[Update]) -> None:
    # The clients' buffers all say 0.5, as the current model does: whatever their bases said, stay.
    same = [
        update(
            u.client,
            [*u.weights.flat.tolist()[:3], CURRENT[3]],
            base=u.base.flat.tolist(),
            version=u.version,
            num_buffers=1,
        )
        for u in updates
    ]
    assert float(combined(AGGREGATORS[name](), same).weights.flat[3]) == CURRENT[3]


@every_aggregator
@settings(max_examples=20)
@given(first=some_updates(), second=some_updates())
def test_goes_on_from_saved_state(name: str, first: list[Update], second: list[Update]) -> None:
    aggregator, restored = AGGREGATORS[name](), AGGREGATORS[name]()
    combined(aggregator, first)
    restored.restore(through_json(aggregator.state()))
    assert_same(combined(aggregator, second), combined(restored, second))


@every_aggregator
@settings(max_examples=10)
@given(first=some_updates(), between=some_updates(), second=some_updates())
def test_what_it_remembered_of_a_version_can_be_undone(
    name: str, first: list[Update], between: list[Update], second: list[Update]
) -> None:
    """As is done where the new weights are not finite: the state itself, not a copy of it."""
    aggregator, other = AGGREGATORS[name](), AGGREGATORS[name]()
    for one in (aggregator, other):
        combined(one, first)
    before = aggregator.state()
    combined(aggregator, between)
    aggregator.restore(before)
    undo = aggregator.remember()
    combined(aggregator, between)
    undo()
    assert_same(combined(aggregator, second), combined(other, second))
