"""Paces by name, for `[pace]`: their keyword parameters are its settings."""

from __future__ import annotations

from math import inf
from typing import Annotated

from pydantic import Field

from pisces.pace.fedavg import Rounds
from pisces.pace.fedbuff import Buffered
from pisces.pace.fedcompass import Grouped
from pisces.pace.papaya import Papaya
from pisces.pace.pisces import Adaptive
from pisces.pace.port import Port
from pisces.pace.remaining import Remaining
from pisces.pace.timed import Timed
from pisces.policy import Pacer
from pisces.protocols.buffered import goal_of
from pisces.protocols.synchronous import enough_of
from pisces.words import (
    Bound,
    BufferSize,
    CalledOffBeyond,
    Mode,
    MostStale,
    OverSelection,
    RoundDeadline,
    Slack,
    TaskTimeout,
    Timeout,
    Unseen,
    WideBound,
)


def rounds(
    concurrency: int,
    *,
    over_selection: OverSelection = None,
    round_deadline_s: RoundDeadline = None,
) -> Pacer:
    """FedAvg's: start a cohort of C and wait for it."""
    enough = enough_of(over_selection, concurrency)
    return Rounds(concurrency, enough=enough, deadline_s=round_deadline_s)


def timed(concurrency: int, *, timeout_s: Timeout = 60.0) -> Pacer:
    """FedAR's: start a cohort of up to C and wait so long; the late count next time."""
    return Timed(concurrency, timeout_s)


def buffered(
    concurrency: int, *, buffer_size: BufferSize = None, max_staleness: MostStale = None
) -> Pacer:
    """FedBuff's: keep C running, aggregate every K updates; with K = 1 each as it arrives."""
    return Buffered(concurrency, goal_of(buffer_size, concurrency), max_staleness=max_staleness)


def papaya(
    concurrency: int,
    *,
    buffer_size: BufferSize = None,
    timeout_s: TaskTimeout = 240.0,
    max_staleness: CalledOffBeyond = None,
) -> Pacer:
    """Papaya's: as buffered, but tasks that run too long or got too stale are called off."""
    after_s = None if timeout_s == inf else timeout_s
    return Papaya(concurrency, goal_of(buffer_size, concurrency), after_s, max_staleness)


def port(
    concurrency: int, *, buffer_size: BufferSize = None, staleness_bound: Bound = None
) -> Pacer:
    """PORT's: as buffered, but whoever would be too stale hands in what there is."""
    bound = concurrency if staleness_bound is None else staleness_bound
    return Port(concurrency, goal_of(buffer_size, concurrency), bound)


def adaptive(
    concurrency: int,
    *,
    staleness_bound: Bound = None,
    mode: Annotated[
        Mode,
        Field(description="paper: latency / b; elapsed: or time running / b; strict: a hard bound"),
    ] = "paper",
    unseen_latency_s: Unseen = 180.0,
) -> Pacer:
    """The Pisces paper's: versions are the slowest running latency / b apart."""
    bound = concurrency if staleness_bound is None else staleness_bound
    return Adaptive(concurrency, bound, mode=mode, unseen_latency_s=unseen_latency_s)


def remaining(concurrency: int, *, staleness_bound: WideBound = None) -> Pacer:
    """That of pisces: what is left of b is spread over the time each client has left."""
    return Remaining(concurrency, 2 * concurrency if staleness_bound is None else staleness_bound)


def grouped(concurrency: int, *, slack: Slack = 1.2) -> Pacer:
    """FedCompass': whoever is expected together is aggregated together."""
    return Grouped(concurrency, slack)
