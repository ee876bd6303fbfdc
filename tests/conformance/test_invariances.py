"""What does not matter to a rule: the order of updates that come together, and where zero lies.

That names of clients and units of samples do not matter either is asked of the table's numbers, in
`test_numbers.py`. Robust centres differ from the mean, but not by more than the updates differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from worlds import update, view, weights

from conformance.scenes import FIRST, SECOND, C, combined
from conformance.table import ROWS
from pisces.aggregate.mean import DiscountedMean
from pisces.aggregate.robust import Krum, Median, RobustMean, Rule, Trimmed
from pisces.names import PROTOCOLS
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update

Floats = NDArray[np.float64]

every_row = pytest.mark.parametrize("name", ROWS)

# --- the order of updates -------------------------------------------------------------------------


def both(name: str, order: Callable[[list[Update]], list[Update]], origin: float = 0.0) -> Floats:
    """The weights of both versions."""
    policies = PROTOCOLS[name](C)
    made = [combined(policies, scene, order=order, origin=origin) for scene in (FIRST, SECOND)]
    return np.array([done.weights.flat.tolist() for done in made])


def asked_in_another_order(updates: list[Update]) -> list[Update]:
    """As if the second had been asked first: its task has the lower number."""
    ids = [u.task_id for u in updates]
    again = [replace(u, task_id=i) for u, i in zip(updates, reversed(ids), strict=True)]
    return sorted(again, key=lambda u: u.task_id)


@every_row
def test_it_does_not_matter_how_the_buffer_is_sorted(name: str) -> None:
    there, back = both(name, list), both(name, lambda updates: updates[::-1])
    assert there == pytest.approx(back, abs=2e-6)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.order_matters is None])
def test_nor_who_was_asked_first(name: str) -> None:
    assert both(name, list) == pytest.approx(both(name, asked_in_another_order), abs=2e-6)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.order_matters])
def test_where_it_does_the_row_says_why(name: str) -> None:
    assert np.abs(both(name, list) - both(name, asked_in_another_order)).max() > 0.1
    assert ROWS[name].order_matters


def test_in_a_crowd_hysync_does_not_look_who_was_first() -> None:
    # Six at once are more than half of C = 10.
    crowd = [
        update(i, [float(i)], version=i, num_examples=10 * (i + 1), task_id=i) for i in range(6)
    ]
    found = [_hysync(order) for order in (crowd, crowd[::-1], asked_in_another_order(crowd))]
    assert found == pytest.approx([found[0]] * 3)
    assert _hysync(crowd[:5]) != pytest.approx(_hysync(asked_in_another_order(crowd[:5])))


def _hysync(updates: Sequence[Update]) -> float:
    seen = view([60] * 6, buffer=updates, version=6)
    made = PROTOCOLS["hysync"](C).aggregator.combine(
        weights([9.0]), updates, seen, generator(1, "")
    )
    return made.weights.flat.item()


# --- the origin -----------------------------------------------------------------------------------


@every_row
def test_weights_may_be_counted_from_anywhere(name: str) -> None:
    # Only differences count: with everything 64 further on, so is what comes out.
    assert both(name, list, origin=64.0) - 64.0 == pytest.approx(both(name, list), abs=3e-5)


# --- robust centres near the mean -----------------------------------------------------------------

crowds = st.lists(st.integers(1, 9), min_size=3, max_size=9)  # samples of each
seeds = st.integers(0, 10**6)


@settings(max_examples=60)
@given(sizes=crowds, seed=seeds)
def test_a_median_is_within_the_spread_of_the_mean(sizes: list[int], seed: int) -> None:
    # |mean - median| <= E|x - median| <= E|x - mean| <= spread: a median is where the mean distance
    # is least.
    median, mean, spread = beside_the_mean(Median(), sizes, seed)
    assert (np.abs(median - mean) <= spread + 1e-5).all()


@settings(max_examples=60)
@given(sizes=crowds, seed=seeds)
def test_so_is_a_trimmed_mean(sizes: list[int], seed: int) -> None:
    # The mean of a part with the share p of all the weight is within spread ((1 - p) / p)^1/2 of
    # the mean, by Cauchy and Schwarz. Each end loses 0.2 and at most the rest of one update; what
    # is left is at least somebody, or it is the median.
    trimmed, mean, spread = beside_the_mean(Trimmed(0.2), sizes, seed)
    lightest, heaviest = (extreme(sizes) / sum(sizes) for extreme in (min, max))
    p = max(lightest, 1 - 2 * (0.2 + heaviest))
    assert (np.abs(trimmed - mean) <= spread * max(1.0, sqrt((1 - p) / p)) + 1e-5).all()


@settings(max_examples=60)
@given(sizes=crowds, seed=seeds, chosen=st.sampled_from([1, 2, None]))
def test_so_are_those_whom_krum_chooses(sizes: list[int], seed: int, chosen: int | None) -> None:
    rule = Krum(0.1 if len(sizes) >= 5 else 0.0, chosen=chosen)
    made, mean, spread = beside_the_mean(rule, sizes, seed)
    counted = np.array(combined_by(RobustMean(rule), sizes, seed).coefficients) > 0
    p = np.array(sizes)[counted].sum() / sum(sizes)
    assert p < 1
    assert (np.abs(made - mean) <= spread * sqrt((1 - p) / p) + 1e-5).all()


def beside_the_mean(rule: Rule, sizes: list[int], seed: int) -> tuple[Floats, Floats, Floats]:
    """The rule's centre, the mean, and the spread of the models around it, by coordinate."""
    made = combined_by(RobustMean(rule), sizes, seed).weights.flat.numpy()
    mean = combined_by(DiscountedMean(), sizes, seed).weights.flat.numpy()
    variance = np.average((models(len(sizes), seed) - mean) ** 2, axis=0, weights=sizes)
    return made, mean, np.sqrt(variance)


def combined_by(how: Aggregator, sizes: list[int], seed: int) -> Combination:
    updates = [
        update(i, model.tolist(), num_examples=size)
        for i, (size, model) in enumerate(zip(sizes, models(len(sizes), seed), strict=True))
    ]
    return how.combine(weights([0.0] * 4), updates, view([9] * len(sizes)), generator(1, "how"))


def models(num: int, seed: int) -> Floats:
    """So many that differ as honest clients do."""
    return np.random.default_rng(seed).normal(3.0, 1.0, size=(num, 4))
