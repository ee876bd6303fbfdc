"""What a server needs to train a model with clients, whoever and wherever they are.

Neither a model as torch knows it, nor data, nor how clients train: those who have the data have
that, too. A `Simulation` makes one of its own parts; `pisces.server.serve` of what it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pisces.clients.checks import Limits, most_buffered
from pisces.errors import ConfigError
from pisces.evaluate import Measure, Schedule
from pisces.policy import Policies
from pisces.sense import check_deadline, check_num_clients, check_sense
from pisces.stop import Stop
from pisces.types import Plan, Weights

# The tables have a row for every number up to the highest, and clients may wish for a number.
MOST_CLIENTS = 100_000
SHORTEST_TICK_S = 1e-3  # less is a mistake that would take for ever


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """What is measured of a version, by name, and how; that may be large, so it is made late."""

    names: tuple[str, ...]
    make: Callable[[], Measure]


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """The parts of a run that are the server's."""

    policies: Policies
    weights: Weights  # to begin from
    stop: Stop
    yardstick: Yardstick | None = None  # None: nothing is evaluated
    num_clients: int | None = None  # how many there will be, where that is known
    seed: int = 1
    plans: Callable[[int], Plan] = field(default=lambda _version: Plan())
    schedule: Schedule = field(default_factory=lambda: Schedule(every_versions=1))
    tick_s: float = 0.0
    deadline_s: float | None = None
    credits: int = 5
    staleness_window: int = 5
    limits: Limits = field(default_factory=Limits)
    decisions: bool = True  # write down why somebody was picked, and a version made

    def __post_init__(self) -> None:
        self._check_numbers()
        check_sense(self.policies)
        check_deadline(self.policies, self.deadline_s)
        check_num_clients(self.policies, self.num_clients)
        self._check_stop()
        self._check_learning()
        self._check_memory()

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of all that is measured."""
        return () if self.yardstick is None else self.yardstick.names

    def _check_numbers(self) -> None:
        if self.seed < 0 or self.tick_s < 0 or self.credits < 1 or self.staleness_window < 1:
            raise ConfigError(
                "seed and tick_s must be at least 0, credits and staleness_window at least 1, not "
                f"{self.seed}, {self.tick_s}, {self.credits} and {self.staleness_window}"
            )
        if not (self.tick_s == 0 or SHORTEST_TICK_S <= self.tick_s < math.inf):
            raise ConfigError(
                f"tick_s: must be 0 or at least {SHORTEST_TICK_S} and finite, not {self.tick_s}"
            )
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ConfigError(f"deadline_s: must be greater than 0, not {self.deadline_s}")

    def _check_stop(self) -> None:
        stop = self.stop
        if all(limit in (None, math.inf) for limit in (stop.time_s, stop.versions, stop.updates)):
            raise ConfigError("stop: the run would never end: set time_s, versions or updates")
        asked_for = (stop.target, stop.patience, stop.metric) != (None, None, Stop().metric)
        if stop.metric in self.measured or not asked_for:
            return
        if not self.measured:
            raise ConfigError(
                f"stop: target, patience and metric ({stop.metric!r}) are about what is evaluated, "
                "and nothing is: say how (evaluate), or leave them out"
            )
        raise ConfigError(
            f"stop.metric: must be one of {', '.join(self.measured)}, not {stop.metric!r}"
        )

    def _check_learning(self) -> None:
        metric = self.policies.selector.learns_from
        if metric is not None and metric not in self.measured:
            raise ConfigError(
                f"metric: the selector learns from what is evaluated, so it must be one of "
                f"{', '.join(self.measured) or 'that, and nothing is'}, not {metric!r}"
            )

    def _check_memory(self) -> None:
        if self.num_clients is not None:
            self.policies.aggregator.require_room(self.num_clients, self.weights)
        most_buffered(self.policies.pacer.num_buffered, self.weights.layout, self.limits)
