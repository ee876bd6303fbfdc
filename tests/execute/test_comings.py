"""First comings and goings: in order of time, each taken once."""

from __future__ import annotations

import math

import numpy as np

from pisces.execute.comings import Comings


def taken(comings: Comings) -> list[tuple[float, list[tuple[int, bool]]]]:
    """Everything still to come: the instant, and who comes (or goes)."""
    found = []
    while comings.next_at < math.inf:
        at = comings.next_at
        clients, come = comings.take()
        found.append((at, list(zip(clients.tolist(), come.tolist(), strict=True))))
    return found


def test_comings_are_taken_instant_by_instant_the_lower_id_first() -> None:
    comings = Comings(np.array([[2.0, 5.0], [0.0, 2.0], [math.inf, math.inf], [0.0, math.inf]]))
    assert comings.next_at == 0.0
    clients, come = comings.take()
    assert (clients.tolist(), come.tolist()) == ([1, 3], [True, True])
    other = Comings(np.empty((0, 2)))
    assert other.next_at == math.inf
    other.restore(*comings.left())
    rest = [(2.0, [(0, True), (1, False)]), (5.0, [(0, False)])]
    assert taken(comings) == taken(other) == rest
    assert [len(part) for part in comings.left()] == [0, 0]
