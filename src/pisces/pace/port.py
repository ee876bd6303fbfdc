"""Buffered aggregation within a bound: whoever would become too stale hands in what there is.

Su and Li, "How Asynchronous can Federated Learning Be?" (Port), IWQoS 2022. Every `goal` updates
make a version, as in `fedbuff.py`. A running client that is `bound` versions behind by then would
be staler than that the next time; it is asked for the model as far as it is, and its update is
waited for. So no update is ever staler than the bound, and no work is thrown away.

Differs from the paper:

* a client is asked only at the moment a version is to be made, when its answer is needed;
* while answers are waited for nobody is started: it would start from a version about to be old;
* whoever cannot answer, having done less than one step or fallen silent, is waited for until it
  arrives or its deadline passes, so the bound holds whatever happens. Hence it needs a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pisces.clients.view import View
from pisces.errors import ConfigError
from pisces.pace.fedbuff import Buffered
from pisces.policy import Release, Trait, Traits


class Port(Buffered):
    """Aggregates every `goal` updates, none of them staler than `bound`."""

    def __init__(self, concurrency: int, goal: int, bound: int) -> None:
        if bound < 1:
            raise ConfigError(f"staleness_bound: must be at least 1, not {bound}")
        super().__init__(concurrency, goal)
        self._bound = bound

    @property
    def needs_deadline(self) -> bool:
        """Whoever is at the bound is waited for, so it must be bound to end."""
        return True

    @property
    def needs_pull(self) -> bool:
        """Otherwise it would be a pace that waits for the slowest."""
        return True

    @property
    def gives(self) -> Traits:
        """Whoever is pulled comes along, also where the buffer is for one."""
        return frozenset({Trait.SEVERAL})

    @property
    def alike(self) -> Mapping[str, float]:
        """PORT's mean takes it for the staleness that halves freshness."""
        return {"staleness_bound (half_staleness)": self._bound}

    def slots(self, view: View) -> int:
        """Whatever is free, unless a version is only waiting for who is pulled."""
        return 0 if self._pulled(view).any() else super().slots(view)

    def ready(self, view: View) -> bool:
        """Is the buffer full, with everybody in it who would be too stale otherwise?"""
        return super().ready(view) and not self._pulled(view).any()

    def terms(self, view: View) -> Mapping[str, float]:
        """Those of any buffer, and the bound."""
        return {**super().terms(view), "bound": self._bound}

    def release(self, view: View) -> Sequence[Release]:
        """Pull whoever would be too stale, once the buffer is full."""
        reason = f"{self._bound} versions behind"
        task_ids = view.running.task_ids[self._pulled(view)].tolist()
        return [Release(task_id, reason, pull=True) for task_id in task_ids]

    def _pulled(self, view: View) -> NDArray[np.bool_]:
        """Which of the running tasks the next version has to wait for."""
        behind = view.version - view.running.versions
        return np.asarray((behind >= self._bound) & super().ready(view))
