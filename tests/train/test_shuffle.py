"""Shuffles: splitmix64 by the book, the same whatever was drawn before."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import weights

from pisces.data.federated import FederatedData
from pisces.train.shuffle import Rows, batch_sizes, shuffled, table
from pisces.types import Plan, Task

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """splitmix64's finaliser in plain integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


def by_the_book(num: int, seed: int, epoch: int) -> list[int]:
    base = mix((seed + (epoch + 1) * GOLDEN) & MASK)
    keys = [signed(mix((base + i * GOLDEN) & MASK)) for i in range(num)]
    return sorted(range(num), key=keys.__getitem__)


def test_the_book_itself() -> None:
    # The first two numbers splitmix64 is known to give for the seed 1234567.
    assert mix(1234567 + GOLDEN) == 6457827717110365317
    assert mix((1234567 + 2 * GOLDEN) & MASK) == 3203168211198807973


@settings(max_examples=60, deadline=None)
@given(num=st.integers(0, 50), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 1000))
def test_the_order_is_splitmix64s(num: int, seed: int, epoch: int) -> None:
    assert shuffled(num, seed, epoch).tolist() == by_the_book(num, seed, epoch)


def test_one_order_written_down() -> None:
    # Another number here would be another outcome of every recorded run.
    assert shuffled(8, seed=1, epoch=0).tolist() == [7, 6, 4, 0, 2, 3, 5, 1]


def test_seeds_and_epochs_shuffle_differently() -> None:
    orders = {tuple(shuffled(20, s, e).tolist()) for s in range(5) for e in range(5)}
    assert len(orders) == 25


def test_the_next_seed_is_not_the_next_epoch() -> None:
    # The increments of seed and epoch differ, so runs do not repeat each other's epochs.
    assert shuffled(20, 1, 0).tolist() != shuffled(20, 0, 1).tolist()


def test_torchs_own_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    shuffled(100, 1, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_order_is_as_likely() -> None:
    # 6 orders of three samples, 3000 epochs: 500 each, with a standard deviation of 20.
    counts = Counter(tuple(shuffled(3, 7, epoch).tolist()) for epoch in range(3000))
    assert len(counts) == 6
    assert all(abs(n - 500) < 100 for n in counts.values())


@pytest.mark.parametrize("num", [0, 1])
def test_nothing_to_shuffle(num: int) -> None:
    assert shuffled(num, 1, 0).tolist() == list(range(num))


# --- a table of many tasks ------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    clients=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=4),
    batch_size=st.integers(1, 5),
    epochs=st.integers(1, 3),
)
def test_a_table_has_the_first_of_each_shuffle(
    clients: list[tuple[int, int]], batch_size: int, epochs: int
) -> None:
    """Clients of so many samples an epoch and so many rows besides."""
    sizes = np.array([size for size, _ in clients])
    bounds = np.cumsum([0, *(size + more for size, more in clients)])
    rows = tuple(np.arange(a, b)[::-1].copy() for a, b in pairwise(bounds))
    samples = (torch.zeros(bounds[-1], 1), torch.zeros(bounds[-1]))
    data = FederatedData(*samples, rows, *samples, epoch_sizes=sizes)
    plan, start = Plan(epochs, batch_size), weights([0.0])
    tasks = [Task(c, c, 0, start, plan, seed=70 + c) for c in range(len(clients))]
    found = table(Rows.of(data, torch.device("cpu")), tasks, batch_size + 1)
    for c, size in enumerate(sizes.tolist()):
        orders = [rows[c][shuffled(len(rows[c]), 70 + c, e)[:size].numpy()] for e in range(epochs)]
        batches = [b for o in orders for b in np.split(o, np.cumsum(batch_sizes(size, batch_size)))]
        expected = [batch.tolist() for batch in batches if len(batch)]
        steps = [step[step >= 0].tolist() for step in found.rows[:, c]]
        assert steps == [*expected, *[[]] * (len(steps) - len(expected))]
