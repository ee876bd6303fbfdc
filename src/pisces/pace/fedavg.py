"""Synchronous rounds: start a cohort, wait for it, aggregate.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017, Algorithm 1: the server averages once the whole cohort has reported. Two usual ways
not to wait for the slowest (Bonawitz et al., "Towards Federated Learning at Scale", MLSys 2019):
use the first few of an over-selected cohort, or what arrived by a deadline.

Differs from the paper:

* a cohort shrinks by members that fail or leave instead of hanging the round;
* when nobody made it by the deadline, the round ends with its first arrival, so time is not lost
  on a version that gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.policy import Pacer, Release, Trait, Traits
from pisces.types import Update


class Rounds(Pacer):
    """A cohort of `concurrency` at a time.

    `enough` updates end the round early (over-selection); so does `deadline_s` after its start.
    """

    def __init__(
        self, concurrency: int, *, enough: int | None = None, deadline_s: float | None = None
    ) -> None:
        self._concurrency = concurrency
        self._enough = enough
        self._deadline_s = deadline_s

    @property
    def min_clients(self) -> int:
        """With fewer clients a round could never have `enough`."""
        return self._enough or 1

    @property
    def num_buffered(self) -> int:
        """A whole cohort's, unless fewer are enough."""
        return self._enough or self._concurrency

    @property
    def gives(self) -> Traits:
        """Rounds, and whoever arrives in one together; that may be one."""
        num = Trait.ONE_AT_A_TIME if 1 in (self._concurrency, self._enough) else Trait.SEVERAL
        return frozenset({Trait.ROUNDS, Trait.GROUPS, num})

    def slots(self, view: View) -> int:
        """A whole cohort, once the last one is done with."""
        if view.buffer or _cohort(view).any():
            return 0
        return self._concurrency - len(view.running)

    def ready(self, view: View) -> bool:
        """Has everybody reported, or enough of them, or is it time?"""
        if self._enough is not None and len(view.buffer) >= self._enough:
            return True
        return not _cohort(view).any() or view.now >= self._ends_at(view)

    def terms(self, view: View) -> Mapping[str, float]:
        """How many of the cohort have reported, and how many are still out."""
        return {"buffered": len(view.buffer), "missing": int(_cohort(view).sum())}

    def next_check(self, view: View) -> float:
        """The round's deadline."""
        return self._ends_at(view)

    def accepts(self, view: View, update: Update) -> bool:
        """Only the current cohort's updates."""
        return update.version == view.version

    def release(self, view: View) -> Sequence[Release]:
        """Whoever still works for a round that is over."""
        late = view.running.task_ids[~_cohort(view)]
        return [Release(int(task_id), "its round is over") for task_id in late]

    def _ends_at(self, view: View) -> float:
        started_at = view.running.started_at[_cohort(view)]
        if self._deadline_s is None or not len(started_at):
            return math.inf
        return float(started_at.min()) + self._deadline_s


def _cohort(view: View) -> NDArray[np.bool_]:
    """Which of the running tasks belong to the current round."""
    return np.equal(view.running.versions, view.version)
