"""What is kept of a log: one table per kind of thing, rows in the order in which they turned up.

`line` columns count lines of the log, so that of two things at one instant the first is known.
A row of another table is -1 where there is none, and so is a count that nobody told.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import numpy as np

from pisces.report.ledger.table import Cells, Table

NONE = np.int32(-1)  # a row, or a small number, that there is not

Outcome: TypeAlias = Literal[  # of a task; the last: by the end of the run
    "running", "waiting", "aggregated", "dropped", "failed", "called off", "left", "cut off"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
RUNNING, WAITING, AGGREGATED, DROPPED, FAILED, CALLED_OFF, LEFT, CUT_OFF = range(len(OUTCOMES))


class Clients(Table):
    """Everybody the log tells of; `scored` is the last row of `Scores`."""

    FILLS = {
        "client": -1,
        "num_examples": -1,
        "joined_at": math.nan,
        "joined_line": -1,
        "is_present": False,
        "num_running": np.int32(0),
        "num_waiting": np.int32(0),
        "distrusted_at": math.nan,
        "distrusted_line": -1,
        "latency_s": math.nan,
        "loss": math.nan,
        "version": -1,
        "staleness": -1,
        "picks": np.int32(0),
        "updates": np.int32(0),
        "failures": np.int32(0),
        "credits": -1,
        "scored": NONE,
    }
    client: Cells
    num_examples: Cells
    joined_at: Cells
    joined_line: Cells
    is_present: Cells
    num_running: Cells
    num_waiting: Cells
    distrusted_at: Cells
    distrusted_line: Cells
    latency_s: Cells
    loss: Cells
    version: Cells
    staleness: Cells
    picks: Cells
    updates: Cells
    failures: Cells
    credits: Cells
    scored: Cells


class Tasks(Table):
    """Every task that was started; `settled_line` is where its update met its fate."""

    FILLS = {
        "task": -1,
        "client": NONE,
        "version": -1,
        "started_at": math.nan,
        "started_line": -1,
        "ended_at": math.nan,
        "ended_line": -1,
        "settled_line": -1,
        "outcome": np.int32(RUNNING),
        "reason": NONE,
        "num_examples": -1,
        "loss": math.nan,
        "loss_left": math.nan,
        "staleness": -1,
        "weight": math.nan,
        "into_version": -1,
        "is_outlier": False,
        "credits": -1,
    }
    task: Cells
    client: Cells
    version: Cells
    started_at: Cells
    started_line: Cells
    ended_at: Cells
    ended_line: Cells
    settled_line: Cells
    outcome: Cells
    reason: Cells
    num_examples: Cells
    loss: Cells
    loss_left: Cells
    staleness: Cells
    weight: Cells
    into_version: Cells
    is_outlier: Cells
    credits: Cells


class Arrivals(Table):
    """Rows of tasks, in the order in which their updates arrived."""

    FILLS = {"task": NONE, "at": math.nan}
    task: Cells
    at: Cells


class Aggregations(Table):
    """Every version made; its updates are rows of `Shares` from `first` on."""

    FILLS = {
        "at": math.nan,
        "version": -1,
        "num": np.int32(0),
        "first": 0,
        "line": -1,
        "reason": NONE,
    }
    at: Cells
    version: Cells
    num: Cells
    first: Cells
    line: Cells
    reason: Cells


class Shares(Table):
    """One update's share in a version."""

    FILLS = {"aggregation": NONE, "task": NONE, "staleness": -1, "weight": math.nan}
    aggregation: Cells
    task: Cells
    staleness: Cells
    weight: Cells


class Sparse(Table):
    """Numbers of one name, told beside some rows of another table: a metric, a pacer's term."""

    FILLS = {"row": NONE, "value": math.nan}
    row: Cells
    value: Cells


class Evaluations(Table):
    """Every look at a version; metrics are beside it."""

    FILLS = {"at": math.nan, "version": -1}
    at: Cells
    version: Cells


class Comings(Table):
    """Clients that came (again) or went."""

    FILLS = {"client": NONE, "line": -1, "at": math.nan, "is_present": False}
    client: Cells
    line: Cells
    at: Cells
    is_present: Cells


class Decisions(Table):
    """Every selection; `terms` is which set of names its scores have, `lowest` the least picked."""

    FILLS = {
        "line": -1,
        "at": math.nan,
        "version": -1,
        "slots": -1,
        "num_free": -1,
        "num_picked": np.int32(0),
        "num_unscored": np.int32(0),
        "lowest": math.nan,
        "terms": NONE,
    }
    line: Cells
    at: Cells
    version: Cells
    slots: Cells
    num_free: Cells
    num_picked: Cells
    num_unscored: Cells
    lowest: Cells
    terms: Cells


class Scores(Table):
    """A client in a decision; its terms are in `Values` from `first` on, -1: it has none."""

    FILLS = {"decision": NONE, "client": NONE, "is_picked": False, "first": -1}
    decision: Cells
    client: Cells
    is_picked: Cells
    first: Cells


class Values(Table):
    """Terms of scores, one behind the other."""

    FILLS = {"value": math.nan}
    value: Cells
