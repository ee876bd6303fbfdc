"""The executor over a Flower federation: its nodes are the clients."""

from __future__ import annotations

from collections.abc import Callable

from pisces.execute.flower.api import Grid, MetricRecord
from pisces.execute.flower.arrays import Arrays
from pisces.execute.flower.courier import Courier, Told
from pisces.execute.flower.letters import Letters
from pisces.execute.flower.replies import Metrics
from pisces.execute.flower.sizes import Sizes
from pisces.execute.inbox import Landed
from pisces.execute.realtime import RealTime
from pisces.execute.roster import Roster
from pisces.types import Event


class FlowerExecutor(RealTime):
    """Runs tasks on the nodes of a grid, with ClientApps as they are.

    It cannot call tasks off, nor ask for what there is. `heard` is told the metrics of each result
    just before the loop is, and of no other.
    """

    _service: Courier
    _desk: Courier

    def __init__(
        self,
        grid: Grid,
        arrays: Arrays,
        *,
        roster: Roster | None = None,
        at_least: int = 1,
        letters: Letters | None = None,
        metrics: Metrics | None = None,
        sizes: Sizes | None = None,
        heard: Callable[[int, MetricRecord], None] = lambda _task, _record: None,
    ) -> None:
        super().__init__(arrays.layout, roster or Roster(), at_least)
        self._heard = heard
        self._service = self._desk = Courier(
            grid,
            arrays,
            self._roster,
            self._inbox.put,
            letters=letters or Letters(),
            metrics=metrics or Metrics(),
            sizes=sizes or Sizes(),
        )

    def _landed(self, said: Landed) -> list[Event]:
        events = super()._landed(said)
        if events and isinstance(said, Told):
            self._heard(said.task, said.record)
        return events
