"""A run at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pisces.report.ledger.book import Ledger

State: TypeAlias = Literal["empty", "running", "silent", "interrupted", "finished"]
Clock: TypeAlias = Literal["virtual", "wall"]


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at a glance; None is what is not known.

    `state`: `empty` (no line yet), `running` (the log grows, or a process holds it), `silent` (it
    has no end, and nobody writes it: killed, or broken off; see `silent_s`), `interrupted` (it
    stopped and may be resumed), `finished`. `reason` is why it stopped. `at` counts the run's own
    seconds, by its `clock`; `silent_s`, `left_s` those of the wall. `staleness_now` is the mean of
    updates that wait, counted up to now, or else of those last aggregated. `updates_per_s` is over
    the last tenth of the run, `updates_per_wall_s` as it was seen growing.
    """

    name: str
    protocol: str
    seed: int | None
    state: State
    reason: str | None
    clock: Clock
    at: float
    silent_s: float | None
    num_lines: int
    version: int
    metric: str | None
    value: float | None
    best: float | None
    target: float | None
    time_to_target_s: float | None
    lower_is_better: bool
    metrics: dict[str, float | None]  # all of them, last values
    concurrency: int | None
    num_clients: int  # that ever joined
    num_running: int
    num_idle: int  # there, trusted, without work
    num_buffered: int  # updates that wait
    num_gone: int
    num_distrusted: int
    num_started: int
    num_updates: int
    num_aggregated: int
    num_dropped: int
    num_failed: int
    num_called_off: int
    num_left: int
    num_outliers: int
    updates_per_s: float | None
    updates_per_wall_s: float | None
    staleness_now: float | None
    staleness_mean: float | None
    staleness_max: int | None
    staleness_bound: float | None
    share_done: float | None
    limit: str | None  # which limit of `stop` is nearest: time, versions, updates
    left_s: float | None
    has_decisions: bool
    problem: str | None


def overview(ledger: Ledger) -> Overview:
    """The run as far as it was read."""
    raise NotImplementedError
