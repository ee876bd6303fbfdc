"""Everybody at work at the same speed with as much data: every protocol is FedAvg, or says why not.

All arrive at one instant and are combined together, fresh, 1/N each. So whom a selector prefers,
what a pace waits for and what staleness costs make no difference. Clients may be started in another
order, which is why weights are compared and not whole logs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runs import Assembled, World, of_kind

from conformance.convex import PLAN, convex
from conformance.table import ROWS, Settings
from pisces.stop import Stop

EQUALS = World(concurrency=6, plan=PLAN, stop=Stop(versions=8))


def run(name: str, settings: Settings, world: World = EQUALS) -> Assembled:
    assembled = convex(name, world, sizes=[40] * 6, seconds=[3.0] * 6, **settings)
    assembled.run()
    return assembled


def is_fedavg(name: str, settings: Settings) -> bool:
    one, other = run(name, settings), run("fedavg", {})
    mine, theirs = one.coordinator.weights.flat, other.coordinator.weights.flat
    return torch.allclose(mine, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "name", [n for n, row in ROWS.items() if not isinstance(row.among_equals, str)]
)
def test_it_is_fedavg(name: str) -> None:
    settings = ROWS[name].among_equals
    assert not isinstance(settings, str)
    made = of_kind(run(name, settings).memory.lines, "aggregated")
    assert [line["at"] for line in made] == [3.0 * k for k in range(1, 9)]
    assert all(line["weights"] == pytest.approx([1 / 6] * 6) for line in made)
    assert is_fedavg(name, settings)


@pytest.mark.parametrize(
    "name", [n for n, row in ROWS.items() if isinstance(row.among_equals, str)]
)
def test_it_is_not_and_says_why(name: str) -> None:
    assert not is_fedavg(name, {})
    assert ROWS[name].among_equals


def test_they_are_at_work_all_the_time_and_not_done_yet() -> None:
    # or the tests above would tell nothing: the last version still moves
    one, other = (run("fedavg", {}, replace(EQUALS, stop=Stop(versions=v))) for v in (7, 8))
    assert not torch.allclose(
        one.coordinator.weights.flat, other.coordinator.weights.flat, rtol=0, atol=1e-3
    )
