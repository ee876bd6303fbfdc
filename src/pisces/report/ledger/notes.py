"""Taking in lines, one by one, into tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import zip_longest

import numpy as np

from pisces.record.lines import Line
from pisces.record.summary import ending_of, metrics_of
from pisces.report.arrays import Floats
from pisces.report.ledger import tables as t
from pisces.report.ledger.picks import Picks

MOST_REASONS = 10_000  # that are kept word by word
OTHER = "(one of very many reasons)"


class Notes:
    """Everything that is kept of a log."""

    def __init__(self) -> None:
        self.num_lines = 0
        self.at = 0.0
        self.reason: str | None = None  # why the run stopped
        self.version = 0
        self.counts: Counter[str] = Counter()
        self.num_called_off = 0
        self.num_under_way = 0  # of these, when the run stopped
        self.num_running = self.num_waiting = 0
        self.staleness: Counter[int] = Counter()
        self.reasons: list[str] = []
        self.clients, self.tasks, self.arrivals = t.Clients(), t.Tasks(), t.Arrivals()
        self.aggregations, self.shares = t.Aggregations(), t.Shares()
        self.evaluations, self.comings = t.Evaluations(), t.Comings()
        self.metrics: dict[str, t.Sparse] = {}
        self.pace: dict[str, t.Sparse] = {}
        self.picks = Picks()
        self.row_of_client: dict[int, int] = {}
        self._row_of_task: dict[int, int] | None = None  # none: a task's row is its number
        self._row_of_reason: dict[str, int] = {}
        self._takers = {
            "joined": self._joined,
            "started": self._started,
            "arrived": self._arrived,
            "failed": self._failed,
            "left": self._left,
            "dropped": self._dropped,
            "aggregated": self._aggregated,
            "evaluated": self._evaluated,
            "outlier": self._outlier,
            "distrusted": self._distrusted,
            "stopped": self._stopped,
            "picked": self._picked,
        }

    @property
    def num_bytes(self) -> int:
        """What all columns take in memory."""
        whole = (self.clients, self.tasks, self.arrivals, self.aggregations, self.shares)
        more = (self.evaluations, self.comings, *self.metrics.values(), *self.pace.values())
        return sum(table.num_bytes for table in (*whole, *more)) + self.picks.num_bytes

    def intervals(self) -> Floats:
        """Seconds of each aggregation since the one before, of the first since the beginning."""
        return np.diff(self.aggregations["at"], prepend=0.0)

    def paced(self, name: str) -> Floats:
        """What the pacer told of each aggregation by this name; NaN where it told nothing."""
        values = np.full(len(self.aggregations), np.nan)
        if (told := self.pace.get(name)) is not None:
            values[told["row"]] = told["value"]
        return values

    def take(self, lines: Iterable[Line]) -> None:
        """Take in sound lines; kinds nobody knows only move the clock."""
        counts, takers = self.counts, self._takers
        for line in lines:
            kind, at = line["kind"], line["at"]
            self.num_lines += 1
            counts[kind] += 1
            if at > self.at:
                self.at = at
            taker = takers.get(kind)
            if taker is not None:
                taker(line, at)

    # --- clients and tasks ------------------------------------------------------------------------

    def client_row(self, client: int) -> int:
        """The row of a client, which is added if it is new."""
        row = self.row_of_client.get(client)
        if row is None:
            row = self.row_of_client[client] = self.clients.add()
            self.clients.client[row] = client
        return row

    def task_row(self, task: int) -> int | None:
        """The row of a task that was started."""
        if self._row_of_task is not None:
            return self._row_of_task.get(task)
        return task if task < len(self.tasks) else None

    def _joined(self, line: Line, at: float) -> None:
        row = self.client_row(line["client"])
        clients = self.clients
        clients.num_examples[row] = line["num_examples"]
        if clients.joined_line[row] < 0:
            clients.joined_line[row] = self.num_lines
            clients.joined_at[row] = at
        if not clients.is_present[row]:
            self._note_coming(row, at, is_present=True)

    def _note_coming(self, client: int, at: float, *, is_present: bool) -> None:
        self.clients.is_present[client] = is_present
        row = self.comings.add()
        self.comings.client[row] = client
        self.comings.line[row] = self.num_lines
        self.comings.at[row] = at
        self.comings.is_present[row] = is_present

    def _started(self, line: Line, at: float) -> None:
        client, task = self.client_row(line["client"]), line["task"]
        tasks = self.tasks
        row = tasks.add()
        if task != row and self._row_of_task is None:
            self._row_of_task = {
                own: place for place, own in enumerate(tasks["task"][:-1].tolist())
            }
        if self._row_of_task is not None:
            self._row_of_task[task] = row
        tasks.task[row] = task
        tasks.client[row] = client
        tasks.version[row] = line.get("version", -1)
        tasks.started_at[row] = at
        tasks.started_line[row] = self.num_lines
        self.clients.picks[client] += 1
        self.clients.num_running[client] += 1
        self.num_running += 1

    def _end(self, row: int, at: float, outcome: int) -> int:
        """A task that runs ends; its client. Of one that does not, nothing is known anew: -1."""
        tasks = self.tasks
        if tasks.outcome[row] != t.RUNNING:
            return -1
        client: int = tasks.client[row]
        tasks.ended_at[row] = at
        tasks.ended_line[row] = self.num_lines
        tasks.outcome[row] = outcome
        self.clients.num_running[client] -= 1
        self.num_running -= 1
        return client

    def _arrived(self, line: Line, at: float) -> None:
        row = self.task_row(line["task"])
        client = -1 if row is None else self._end(row, at, t.WAITING)
        if row is None or client < 0:
            return
        tasks, clients = self.tasks, self.clients
        arrival = self.arrivals.add()
        self.arrivals.task[arrival] = row
        self.arrivals.at[arrival] = at
        loss, left, latency = line.get("loss"), line.get("loss_left"), line.get("latency_s")
        tasks.num_examples[row] = line.get("num_examples", -1)
        if left is not None:
            tasks.loss_left[row] = left
        tasks.loss[row] = clients.loss[client] = math.nan if loss is None else loss
        clients.latency_s[client] = math.nan if latency is None else latency
        clients.version[client] = tasks.version[row]
        clients.updates[client] += 1
        clients.num_waiting[client] += 1
        self.num_waiting += 1

    def _settle(self, row: int, outcome: int) -> int:
        """An update that waits meets its fate; its client, or -1."""
        tasks = self.tasks
        if tasks.outcome[row] != t.WAITING:
            return -1
        client: int = tasks.client[row]
        tasks.outcome[row] = outcome
        tasks.settled_line[row] = self.num_lines
        self.clients.num_waiting[client] -= 1
        self.num_waiting -= 1
        return client

    def _failed(self, line: Line, at: float) -> None:
        reason = line["reason"]
        outcome = t.OUTCOMES.index(ending_of(reason))
        self.num_called_off += outcome != t.FAILED
        self.num_under_way += outcome == t.CUT_OFF
        row = self._task_of(line)
        if row is None:
            return
        client = self._end(row, at, outcome)
        if client >= 0:
            self.tasks.reason[row] = self._reason_row(reason)
            self.clients.failures[client] += outcome == t.FAILED

    def _task_of(self, line: Line) -> int | None:
        task = line.get("task")
        return None if task is None else self.task_row(task)

    def _left(self, line: Line, at: float) -> None:
        row = self._task_of(line)
        if row is not None and self._end(row, at, t.LEFT) >= 0:
            self.tasks.reason[row] = self._reason_row(line.get("reason", ""))
        client = line.get("client")  # it may be anything: also of whom nobody knows is told
        place = self.row_of_client.get(client) if type(client) is int else None
        if place is not None and self.clients.is_present[place]:
            self._note_coming(place, at, is_present=False)

    def _reason_row(self, reason: str) -> int:
        row = self._row_of_reason.get(reason)
        if row is None:
            if len(self.reasons) >= MOST_REASONS and reason != OTHER:
                return self._reason_row(OTHER)
            row = self._row_of_reason[reason] = len(self.reasons)
            self.reasons.append(reason)
        return row

    # --- what becomes of updates ------------------------------------------------------------------

    def _dropped(self, line: Line, at: float) -> None:
        row = self.task_row(line["task"])
        if row is not None and self._settle(row, t.DROPPED) >= 0:
            self.tasks.reason[row] = self._reason_row(line.get("reason", ""))

    def _aggregated(self, line: Line, at: float) -> None:
        table, all_staleness = self.aggregations, line["staleness"]
        row = table.add()
        table.at[row] = at
        table.version[row] = self.version = line["version"]
        table.first[row] = len(self.shares)
        table.line[row] = self.num_lines
        if "reason" in line:
            table.reason[row] = self._reason_row(line["reason"])
        self.staleness.update(all_staleness)
        told = zip(
            all_staleness, zip_longest(line["tasks"], line.get("weights") or ()), strict=False
        )
        for staleness, (task, weight) in told:
            self._note_share(row, line["version"], task, staleness, weight)
        table.num[row] = len(self.shares) - table.first[row]
        self._note_pace(row, line.get("pace", {}))

    def _note_share(
        self, aggregation: int, version: int, task: int | None, staleness: int, weight: float | None
    ) -> None:
        shares, tasks = self.shares, self.tasks
        share = shares.add()
        shares.aggregation[share] = aggregation
        shares.staleness[share] = staleness
        weight = math.nan if weight is None else weight
        shares.weight[share] = weight
        row = None if task is None else self.task_row(task)
        client = -1 if row is None else self._settle(row, t.AGGREGATED)
        if row is None or client < 0:
            return
        shares.task[share] = row
        tasks.staleness[row] = self.clients.staleness[client] = staleness
        tasks.weight[row] = weight
        tasks.into_version[row] = version

    def _note_pace(self, aggregation: int, pace: Mapping[str, float | None]) -> None:
        for name, value in pace.items():
            if value is not None:
                note(self.pace, name, aggregation, value)

    def _outlier(self, line: Line, at: float) -> None:
        row, credits_left = self.task_row(line["task"]), line.get("credits", -1)
        if row is not None:
            self.tasks.is_outlier[row] = True
            self.tasks.credits[row] = credits_left
        self.clients.credits[self.client_row(line["client"])] = credits_left

    def _distrusted(self, line: Line, at: float) -> None:
        row, clients = self.client_row(line["client"]), self.clients
        clients.credits[row] = 0
        if clients.distrusted_line[row] < 0:
            clients.distrusted_line[row] = self.num_lines
            clients.distrusted_at[row] = at

    # --- the rest ---------------------------------------------------------------------------------

    def _evaluated(self, line: Line, at: float) -> None:
        row = self.evaluations.add()
        self.evaluations.at[row] = at
        self.evaluations.version[row] = line["version"]
        for name, value in metrics_of(line).items():
            note(self.metrics, name, row, math.nan if value is None else value)

    def _picked(self, line: Line, at: float) -> None:
        self.picks.take(line, at, self)

    def _stopped(self, line: Line, at: float) -> None:
        self.reason = line["reason"]


def note(tables: dict[str, t.Sparse], name: str, row: int, value: float) -> None:
    """A number of that name beside a row."""
    table = tables.get(name)
    if table is None:
        table = tables[name] = t.Sparse()
    place = table.add()
    table.row[place] = row
    table.value[place] = value
