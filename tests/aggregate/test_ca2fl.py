"""Calibrated updates, on numbers small enough to check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from worlds import update, view

from pisces.aggregate.ca2fl import Calibrated
from pisces.policy import Aggregator, Combination
from pisces.seeds import generator
from pisces.types import Update, Weights


def combine(
    rule: Aggregator, now: Sequence[float], updates: Sequence[Update], num_clients: int = 4
) -> Combination:
    current = Weights(torch.tensor(now), updates[0].weights.layout)
    seen = view([100] * num_clients, version=9)
    return rule.combine(current, updates, seen, generator(1, "aggregate"))


def step(client: int, by: float) -> Update:
    """An update of one parameter from 5, by so much, seven versions behind."""
    return update(client, [5.0 + by], base=[5.0], version=2)


def test_by_hand() -> None:
    rule = Calibrated()
    # Nothing is known: the mean of 4 and 8, whatever their staleness. Then h = (4, 8, 0, 0).
    made = combine(rule, [10.0], [step(0, 4.0), step(1, 8.0)])
    assert made.weights.flat.tolist() == [16.0]
    assert made.coefficients == (0.5, 0.5)
    # Mean of h: 12 / 4 = 3. Buffer: client 1 has 2 more than last time, client 2 all of its 6:
    # (2 + 6) / 2 = 4. From 16 by 7. Then h = (4, 10, 6, 0).
    made = combine(rule, [16.0], [step(1, 10.0), step(2, 6.0)])
    assert made.weights.flat.tolist() == [23.0]
    # Mean of h: 20 / 4 = 5; client 0 has 4 less than last time. From 23 by 1. Then (0, 10, 6, 0).
    made = combine(rule, [23.0], [step(0, 0.0)])
    assert made.weights.flat.tolist() == [24.0]
    assert made.coefficients == (1.0,)
    # Mean of h: 16 / 4 = 4; client 3 is new, 0 - 0.
    assert combine(rule, [24.0], [step(3, 0.0)]).weights.flat.tolist() == [28.0]


def test_the_server_rate_scales_all_of_the_step() -> None:
    rule = Calibrated(server_rate=0.5)
    combine(rule, [0.0], [step(0, 4.0), step(1, 8.0)])
    # Half of the 7 from above.
    made = combine(rule, [16.0], [step(1, 10.0), step(2, 6.0)])
    assert made.weights.flat.tolist() == [19.5]
    assert made.coefficients == (0.25, 0.25)


def test_clients_that_join_later_count_with_nothing() -> None:
    rule = Calibrated()
    combine(rule, [0.0], [step(0, 4.0), step(1, 8.0)], num_clients=2)
    # Of two it would be 6; of six 2, and client 5 adds its 3.
    assert combine(rule, [0.0], [step(5, 3.0)], num_clients=6).weights.flat.tolist() == [5.0]


def test_who_always_says_the_same_is_heard_once() -> None:
    # All four have said 1, 2, 3, 6: their mean is 3, whoever is in the buffer.
    rule = Calibrated()
    says = [1.0, 2.0, 3.0, 6.0]
    combine(rule, [0.0], [step(c, by) for c, by in enumerate(says)])
    for clients in ([0], [3], [0, 3], [1, 2, 3]):
        made = combine(rule, [10.0], [step(c, says[c]) for c in clients])
        assert made.weights.flat.tolist() == pytest.approx([13.0])


def test_buffers_are_averaged_against_the_current_model_at_rate_1() -> None:
    rule = Calibrated(server_rate=0.5)
    combine(rule, [0.0, 0.0], [update(0, [4.0, 50.0], num_buffers=1)])
    # Parameter: the mean of h is 4 / 4, the buffer has (6 - 4 + 2) / 2 = 2 beside it: half of 3.
    # Buffer: the mean of 20 and 30, whatever was said before.
    updates = [update(0, [6.0, 20.0], base=[0.0, 9.0], num_buffers=1)]
    updates.append(update(1, [2.0, 30.0], base=[0.0, 9.0], num_buffers=1))
    made = combine(rule, [0.0, 10.0], updates)
    assert made.weights.flat.tolist() == [1.5, 25.0]
    assert len(rule.state().arrays["client/0"]) == len(rule.state().arrays["sum"]) == 1


def random_updates(seed: int, num: int = 3) -> list[Update]:
    rng = generator(seed, "updates")
    clients = rng.permutation(8)[:num].tolist()
    return [
        update(c, rng.normal(size=5).tolist(), base=rng.normal(size=5).tolist(), num_buffers=2)
        for c in clients
    ]


def test_the_sum_is_that_of_everybodys_last() -> None:
    rule = Calibrated()
    for seed in range(200):
        combine(rule, [0.0] * 5, random_updates(seed), 8)
    kept = rule.state().arrays
    last = [kept[f"client/{c}"] for c in range(8)]
    assert len(kept) == 9
    assert torch.allclose(kept["sum"], torch.stack(last).sum(0), atol=1e-4)


def test_what_was_handed_over_is_not_changed() -> None:
    rule = Calibrated()
    combine(rule, [0.0], [step(0, 4.0), step(1, 8.0)])
    state = rule.state()
    combine(rule, [0.0], [step(0, 7.0), step(2, 1.0)])
    assert {name: a.tolist() for name, a in state.arrays.items()} == {
        "client/0": [4.0],
        "client/1": [8.0],
        "sum": [12.0],
    }
