"""Whoever is expected together is aggregated together.

Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices
using a Computing Power Aware Scheduler", ICLR 2024, Algorithm 1. `select/fedcompass.py` gives every
client as many steps as let it arrive with others. Here the first to arrive waits for those others,
but no longer than a group waits for its members: until `slack` (lambda, 1.2) times the time it has
taken itself. Whoever comes later is used on arrival, or with those who wait then.

Differs from the paper:

* groups are not written down. An update waits for the running clients expected (as the selector
  expects them) within its own slack, or within one step more, as steps are whole numbers; and for
  none of them beyond that client's own slack. What was expected of two groups within that time is
  aggregated as one;
* whoever waits keeps its seat: it starts again, or another in its place, from the new version;
* a client nobody has heard from yet is not waited for, and aggregated on arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.policy import Pacer, Trait, Traits
from pisces.types import Update


class Grouped(Pacer):
    """Aggregates a group once it is complete or its time is over; `concurrency` run at once."""

    def __init__(self, concurrency: int, slack: float = 1.2) -> None:
        if not 1 <= slack < math.inf:
            raise ConfigError(f"slack: must be at least 1 and finite, not {slack}")
        self._concurrency = concurrency
        self._slack = slack

    @property
    def needs(self) -> Traits:
        """Nobody arrives together by chance."""
        return frozenset({Trait.STEPS})

    @property
    def gives(self) -> Traits:
        """Those who arrive together; that may be one."""
        num = Trait.ONE_AT_A_TIME if self._concurrency == 1 else Trait.SEVERAL
        return frozenset({Trait.GROUPS, num})

    def slots(self, view: View) -> int:
        """Whatever is free; whoever waits keeps its seat."""
        return self._concurrency - len(view.running) - len(view.buffer)

    def ready(self, view: View) -> bool:
        """Is nobody of the group to come any more, or its time over?"""
        return view.now >= self._complete_at(view)

    def next_check(self, view: View) -> float:
        """When the last one to wait for is given up, unless it arrives before."""
        return self._complete_at(view)

    def terms(self, view: View) -> Mapping[str, float]:
        """How long after the last version the group is complete, or given up."""
        return {"limit_s": self._complete_at(view) - view.last_aggregated_at}

    def _complete_at(self, view: View) -> float:
        """When nobody is waited for any more; minus infinity: nobody is, whatever the time."""
        over_at = min((self._over_at(view, update) for update in view.buffer), default=-math.inf)
        expected_at, started_at = view.expected_at, view.running.started_at
        given_up_at = started_at + self._slack * (expected_at - started_at)
        members = expected_at <= over_at  # NaN is not
        return float(np.minimum(given_up_at[members], over_at).max(initial=-math.inf))

    def _over_at(self, view: View, update: Update) -> float:
        """How long this update waits for the others of its group."""
        one_step = 1.0 / max(view.clients.num_steps.item(update.client), 1)
        return update.arrived_at + update.latency_s * max(self._slack - 1.0, one_step)
