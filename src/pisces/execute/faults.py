"""What can go wrong between a client and the server, and what a lie looks like."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol, cast

from pisces.errors import ConfigError
from pisces.seeds import generator
from pisces.types import Arrived, Report, Weights


class Fault(Enum):
    """One thing that goes wrong with one result."""

    # on the way
    LOSE = "lose"  # it never comes; its client is well, and heard from when the deadline has passed
    DUPLICATE = "duplicate"  # it comes, and once more `delay_s` later
    REORDER = "reorder"  # whatever comes next overtakes it, unless `delay_s` pass before
    DELAY = "delay"  # it comes `delay_s` later, deadline or not
    # with the client
    DIE = "die"  # it is seen leaving, and never comes back
    HANG = "hang"  # it falls silent, whatever it is asked, for `away_s`
    REJOIN = "rejoin"  # it is seen leaving, and comes back `away_s` later without its task
    # in the report
    SIZE = "size"  # a false number of examples
    LOSS = "loss"  # a false loss
    # in the weights
    NAN = "nan"
    ZEROS = "zeros"
    HUGE = "huge"  # finite, and far from everybody
    SHAPE = "shape"  # one number is missing
    DTYPE = "dtype"  # half precision
    OLD = "old"  # the first ones anybody was sent, untrained
    # besides the result, which follows
    UNKNOWN = "unknown"  # an answer to a task never sent
    FOREIGN = "foreign"  # an answer to a task that runs on another client


class FaultPlan(Protocol):
    """Which result meets with which fault. It remembers nothing: asked twice, it says the same."""

    delay_s: float
    away_s: float

    def draw(self, task_id: int, client: int) -> Fault | None:
        """The fault of this task's result; `None`: all goes well."""
        ...


@dataclass(frozen=True, slots=True)
class Faults(FaultPlan):
    """How likely each fault is, per result: `Faults({Fault.LOSE: 0.1, Fault.NAN: 0.01})`.

    `clients` are those it happens to; `None`: to all. An `away_s` of infinity: for ever.
    """

    chances: Mapping[Fault, float] = field(default_factory=dict)
    delay_s: float = 10.0
    away_s: float = 60.0
    clients: Container[int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        chances = self.chances.values()
        if not all(0 <= chance <= 1 for chance in chances) or math.fsum(chances) > 1:
            raise ConfigError(
                "the chances of faults are probabilities that add up to at most 1, "
                f"not {[*chances]}; lower them"
            )
        if not (0 <= self.delay_s < math.inf and self.away_s >= 0):
            raise ConfigError(
                "delay_s must be finite, and neither it nor away_s negative, "
                f"not {self.delay_s} and {self.away_s}"
            )

    def draw(self, task_id: int, client: int) -> Fault | None:
        """By chance, from the seed and the task's number alone."""
        if not self.chances or (self.clients is not None and client not in self.clients):
            return None
        luck = generator(self.seed, "fault", task_id).random()
        for fault, chance in self.chances.items():
            if luck < chance:
                return fault
            luck -= chance
        return None


# --- lies -----------------------------------------------------------------------------------------

# Tasks take them in turn. Some of each cannot be told from the truth by looking at one result.
FAR = (3e38, 4e14, -4e14)  # the first is the end of float32
FALSE_SIZES = (0, -1, 2.5, 10**12, 1)
FALSE_LOSSES = (math.nan, math.inf, 1e300, -1.0, 1e5)


def lied(fault: Fault, result: Arrived, old: Weights) -> Arrived:
    """The result as a client sends it that lies in this way; unchanged where that is no lie."""
    if fault in _WEIGHTS:
        return replace(result, weights=_WEIGHTS[fault](result.weights))
    if fault is Fault.HUGE:
        far = FAR[result.task_id % len(FAR)]
        return replace(
            result, weights=replace(result.weights, flat=result.weights.flat * 0.0 + far)
        )
    if fault is Fault.OLD:
        return replace(result, weights=old)
    if fault is Fault.SIZE:
        size = cast(int, FALSE_SIZES[result.task_id % len(FALSE_SIZES)])
        return replace(result, report=replace(result.report, num_examples=size))
    if fault is Fault.LOSS:
        loss = FALSE_LOSSES[result.task_id % len(FALSE_LOSSES)]
        return replace(result, report=_with_loss(result.report, loss))
    return result


def _with_loss(report: Report, loss: float) -> Report:
    return replace(report, loss=loss, loss_rms=abs(loss), loss_left=loss)


# Only what a tensor can do by itself: nothing here imports torch.
_WEIGHTS: Mapping[Fault, Callable[[Weights], Weights]] = {
    Fault.NAN: lambda w: replace(w, flat=w.flat * math.nan),
    Fault.ZEROS: lambda w: replace(w, flat=w.flat * 0.0),
    Fault.SHAPE: lambda w: replace(w, flat=w.flat[:-1]),
    Fault.DTYPE: lambda w: replace(w, flat=w.flat.half()),
}
