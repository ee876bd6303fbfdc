"""A run at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from pisces.record.reader import Run
from pisces.record.writer import CHECKPOINTS, SUMMARY
from pisces.report.ledger.book import Ledger
from pisces.report.ledger.rows import STATUSES, status_codes
from pisces.report.ledger.summary import (
    ReadRun,
    counted,
    is_target_known,
    reached_at,
)
from pisces.report.ledger.tables import LEFT, WAITING
from pisces.report.ledger.wall import (
    PATIENCE_S,
    is_locked,
    is_written,
    left,
    silent_s,
    speeds_of,
)

State: TypeAlias = Literal[
    "running", "silent", "interrupted", "finished", "empty", "unbegun", "damaged", "sampled"
]
STATES: tuple[State, ...] = get_args(State)
Clock: TypeAlias = Literal["virtual", "wall"]


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at a glance; None is what is not known.

    `state`: `empty` (no line yet), `unbegun` (and nobody is about to write one), `running` (the log
    grows, or a process holds it), `silent` (it has no end, and nobody writes it: killed, or broken
    off; see `silent_s`), `interrupted` (it stopped and may be resumed), `finished`, `damaged`
    (nobody writes it, and its end cannot be read), `sampled` (its log has some clients' lines only,
    and is not counted). `reason` is why it stopped. `at` counts the run's own
    seconds, by its `clock`; `silent_s`, `left_s` those of the wall. `staleness_now` is the mean of
    updates that wait, counted up to now, or else of those last aggregated. `updates_per_s` is over
    the last tenth of the run, or all of one that stopped; `updates_per_wall_s` as it was seen
    growing.
    """

    name: str
    protocol: str
    seed: int | None
    state: State
    goes_on: str | None  # who goes on with a run that was broken off, in words
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
    is_target_known: bool  # else there may be one that nobody told yet
    time_to_target_s: float | None
    concurrency: int | None
    num_clients: int  # that ever joined
    num_worked: int  # of these, that were ever given a task
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
    num_given_up: int  # called off by the protocol
    num_under_way: int  # when the run stopped
    num_tasks_left: int  # whose client left
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
    may_end_early: bool  # by its target, or for getting no better
    problem: str | None


LATELY = 0.1  # of a run is its last tenth


def overview(ledger: Ledger) -> Overview:
    """The run as far as it was read."""
    with ledger.lock:
        return _overview(ledger)


def _overview(ledger: Ledger) -> Overview:
    run, notes, total = ReadRun.of(ledger), ledger.notes, counted(ledger)
    state, (metric, target) = _state(ledger), run.aim
    rest = left(ledger, is_over=state == "finished")
    codes = np.bincount(status_codes(ledger), minlength=len(STATUSES))
    num_of = dict(zip(STATUSES, codes.tolist(), strict=True))
    concurrency = ledger.setting("clients", "concurrency")
    speeds = speeds_of(ledger) if state == "running" else {}
    return Overview(
        name=run.name,
        protocol=run.protocol,
        seed=run.seed,
        state=state,
        goes_on=_who_goes_on(run, state),
        reason=notes.reason,
        clock="wall" if run.in_real_time else "virtual",
        at=notes.at,
        silent_s=silent_s(ledger),
        num_lines=notes.num_lines,
        version=notes.version,
        metric=metric,
        value=None if metric is None else total.final.get(metric),
        best=None if metric is None else total.best.get(metric),
        target=target,
        is_target_known=is_target_known(ledger),
        time_to_target_s=None if metric is None else reached_at(ledger, target, metric),
        concurrency=concurrency if type(concurrency) is int else None,
        num_clients=total.num_clients,
        num_worked=total.num_clients_started,
        num_running=notes.num_running,
        num_idle=num_of["idle"] + num_of["new"],
        num_buffered=notes.num_waiting,
        num_gone=num_of["gone"],
        num_distrusted=num_of["distrusted"],
        num_started=total.num_started,
        num_updates=total.num_updates,
        num_aggregated=total.num_aggregated,
        num_dropped=total.num_dropped,
        num_failed=total.num_failed,
        num_given_up=total.num_given_up,
        num_under_way=total.num_under_way,
        num_tasks_left=int(np.count_nonzero(notes.tasks["outcome"] == LEFT)),
        num_outliers=total.num_outliers,
        updates_per_s=_updates_per_s(ledger),
        updates_per_wall_s=speeds.get("updates"),
        staleness_now=_staleness_now(ledger),
        staleness_mean=total.mean_staleness,
        staleness_max=total.max_staleness,
        staleness_bound=bound_of(ledger),
        share_done=rest.share_done,
        limit=rest.limit,
        left_s=rest.left_s if state in ("running", "finished") else None,
        may_end_early=target is not None or ledger.setting("stop", "patience") is not None,
        problem=ledger.problem,
    )


def _state(ledger: Ledger) -> State:
    if ledger.is_sampled:
        return "sampled"
    if ledger.is_damaged and ledger.notes.reason is None and not _goes_on(ledger):
        return "damaged"
    if not ledger.notes.num_lines:
        return _state_before_lines(ledger)
    if ledger.notes.reason is not None:
        return "interrupted" if ledger.notes.reason == "interrupted" else "finished"
    return "running" if is_written(ledger) else "silent"


def _goes_on(ledger: Ledger) -> bool:
    """Does somebody write on behind what cannot be read? Whatever has a summary is over."""
    is_over = (ledger.path / SUMMARY).exists() and not is_locked(ledger.follower.last.inode)
    return not is_over and is_written(ledger)


def _state_before_lines(ledger: Ledger) -> State:
    if is_locked(ledger.follower.last.inode):
        return "running"
    return "unbegun" if (silent_s(ledger) or 0.0) > PATIENCE_S else "empty"


def _who_goes_on(run: Run, state: State) -> str | None:
    """Nobody needs to where it goes on, or is over."""
    if state not in ("silent", "interrupted", "unbegun"):
        return None
    if run.is_of_flower:
        return "its Flower app goes on with it, started with the same out"
    if run.is_of_a_program:
        by = "pisces.server.serve" if run.is_served else "pisces.simulate"
        return f"{by}(..., resume=True) goes on with it"
    if run.is_served:
        return "pisces serve --resume goes on with it"
    if state == "interrupted" and not (run.path / CHECKPOINTS).exists():
        return "it has no checkpoints: the command that made it makes it again, with the same --out"
    return f"pisces resume {'begins' if state == 'unbegun' else 'goes on with'} it"


def _updates_per_s(ledger: Ledger) -> float | None:
    """Arrivals per second of the run's own time: lately, or of one that is over on the whole."""
    now = ledger.notes.at
    span_s = now if ledger.notes.reason is not None else LATELY * now
    if span_s <= 0:
        return None
    at = ledger.notes.arrivals["at"]
    return float(np.count_nonzero(at >= now - span_s) / span_s)


def _staleness_now(ledger: Ledger) -> float | None:
    notes = ledger.notes
    if notes.num_waiting:
        waiting = np.flatnonzero(notes.tasks["outcome"] == WAITING)
        versions = notes.tasks["version"][waiting]
        known = versions[versions >= 0]
        return float(np.mean(notes.version - known)) if len(known) else None
    if not len(notes.aggregations):
        return None
    lately = notes.shares["staleness"][notes.aggregations["first"][-1] :]
    return float(lately.mean()) if len(lately) else None


def bound_of(ledger: Ledger) -> float | None:
    """The bound on staleness: as the pacer last told it, or as the config has it."""
    told = ledger.notes.pace.get("bound")
    if told is not None:
        return float(told["value"][-1])
    settings = ReadRun.of(ledger).protocol_settings
    bound = settings.get("staleness_bound")
    return float(bound) if isinstance(bound, (int, float)) else None
