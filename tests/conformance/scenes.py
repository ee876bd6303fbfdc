"""The scenes in which every protocol is asked: the same clients, updates and instants for all.

C is 10, so a buffer of 20 % holds 2, half of C is 5, and a bound of C or 2 C is 10 or 20.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
import pytest
from worlds import NAN, update, view, weights

from pisces.clients.view import View
from pisces.policy import Combination, Policies
from pisces.seeds import generator
from pisces.types import Update

C = 10

# --- how: two versions, one after the other -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Version:
    """What is combined, into which weights, and who is at work meanwhile."""

    version: int
    weights: tuple[float, float]
    updates: Sequence[tuple[int, int, tuple[float, float], tuple[float, float]]]
    running: Sequence[int]


# Of each update: client, version, base, weights. The first comes from the newest version, the
# second is three behind, so that (1 + s)^-1/2 is 1 and 1/2.
HOW_SIZES = (100, 300, 400, 400)
FIRST = Version(
    version=3,
    weights=(10.0, 0.0),
    updates=[
        (0, 3, (10.0, 0.0), (14.0, 0.0)),  # moved by (4, 0)
        (1, 0, (2.0, 0.0), (2.0, 8.0)),  # moved by (0, 8); from here by (-8, 8)
    ],
    running=[2, 3],
)
SECOND = Version(
    version=4,
    weights=(12.0, 4.0),
    updates=[
        (0, 4, (12.0, 4.0), (12.0, 8.0)),  # the same client again, moved by (0, 4)
        (2, 1, (8.0, 0.0), (16.0, 0.0)),  # moved by (8, 0); from here by (4, -4)
    ],
    running=[1, 3],
)


def combined(
    policies: Policies,
    scene: Version,
    *,
    names: Sequence[int] = range(4),
    unit: int = 1,
    origin: float = 0.0,
    order: Callable[[list[Update]], list[Update]] = list,
) -> Combination:
    """What becomes of the scene.

    Client i is called `names[i]`, samples come in other units, weights are counted from another
    origin, updates stand in another order.
    """
    sizes = np.empty(4, np.int64)
    sizes[list(names)] = np.array(HOW_SIZES) * unit
    updates = order(
        [
            update(
                names[client],
                [value + origin for value in end],
                base=[value + origin for value in base],
                version=version,
                num_examples=unit * HOW_SIZES[client],
                task_id=place,
            )
            for place, (client, version, base, end) in enumerate(scene.updates)
        ]
    )
    running = [(names[client], scene.version, 0.0) for client in scene.running]
    seen = view(sizes.tolist(), buffer=updates, running=running, version=scene.version)
    now = weights([value + origin for value in scene.weights])
    return policies.aggregator.combine(now, updates, seen, generator(1, "aggregate"))


# --- who: six clients, two of them wanted ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Clients:
    """Facts of each; NaN: nobody has heard from it yet."""

    sizes: Sequence[int] = (10, 20, 30, 40, 50, 60)
    losses: Sequence[float] = (3.0, 2.0, 1.5, 0.9, 0.5, 0.2)
    latencies: Sequence[float] = (10.0, 60.0, 20.0, 50.0, 30.0, 40.0)
    staleness: Sequence[int] = (0, 0, 8, 3, 0, 0)

    def view(self, names: Sequence[int] = range(6), unit: int = 1) -> View:
        """The same clients under other names, or with samples in other units."""
        order = np.argsort(names)
        return view(
            (np.array(self.sizes)[order] * unit).tolist(),
            loss_rms=np.array(self.losses)[order].tolist(),
            latency_s=np.array(self.latencies)[order].tolist(),
            staleness={names[c]: [s] for c, s in enumerate(self.staleness) if s},
            version=4,
        )


KNOWN = Clients()
NEW = Clients(losses=(3.0, 2.0, 1.5, 0.9, NAN, NAN), latencies=(10.0, 60.0, 20.0, 50.0, NAN, NAN))


def chances(make: Callable[[], Policies], seen: View, draws: int) -> list[float]:
    """How often each client is among two that are picked first."""
    counts = np.zeros(6)
    for seed in range(draws):
        picks = make().selector.pick(seen, 2, generator(seed, "select"))
        counts[[a.client for a in picks]] += 1
    return (counts / draws).tolist()


def about(chance: float, draws: int) -> Any:
    """What a share of so many draws is equal to; exactly, where it is certain."""
    return pytest.approx(chance, abs=4.5 * sqrt(chance * (1 - chance) / draws))


# --- when: three instants -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Instant:
    """Eight of twelve clients run (or none); who is named waits, since when and after how long."""

    now: float
    waiting: dict[int, tuple[float, float]]
    runs: bool = True

    # Client, version, since when; client i takes 10 (i + 1) s. Version 3 was made at 40.
    RUNNING: ClassVar = [(2, 2, 21.5), (9, 2, 30.0), *((client, 3, 40.0) for client in range(3, 9))]

    def view(self) -> View:
        """As the server sees it."""
        buffer = [
            update(client, version=2, arrived_at=at, latency_s=latency_s)
            for client, (at, latency_s) in self.waiting.items()
        ]
        return view(
            [10] * 12,
            latency_s=[10.0 * (client + 1) for client in range(12)],
            num_steps=[5] * 12,
            running=self.RUNNING if self.runs else [],
            buffer=buffer,
            now=self.now,
            version=3,
            last_aggregated_at=40.0,
        )


INSTANTS = {
    "one waits": Instant(48.0, {0: (48.0, 10.0)}),
    "two wait": Instant(50.0, {0: (50.0, 10.0), 1: (50.0, 20.0)}),
    "ten wait, nobody runs": Instant(50.0, dict.fromkeys(range(10), (50.0, 10.0)), runs=False),
}
