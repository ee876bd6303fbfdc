"""A run in columns: what its measures, and its record in a study, are made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.report.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Everything about one run that is measured; instants in seconds since it began.

    `running_s` and `buffered_s` are integrals over time: of the number of running clients, and of
    the moments in which at least one update waits to be aggregated.
    """

    metric: str
    target: float
    concurrency: int
    corrupted: frozenset[int]
    end_s: float
    times: Floats  # of the evaluations ...
    values: Floats  # ... of the metric
    aggregated_at: Floats
    arrived_at: Floats
    arrived_from: Ints  # which client
    losses: Floats  # NaN where it was not a number
    staleness: dict[int, list[int]]  # of a client's aggregated updates
    num_examples: dict[int, int]  # by client
    num_started: dict[int, int]
    distrusted: frozenset[int]
    running_s: float
    buffered_s: float

    @classmethod
    def of(
        cls, run: Run, target: float, metric: str, concurrency: int, corrupted: Collection[int] = ()
    ) -> Facts:
        """Read a run folder once."""
        pass_ = _Pass()
        for line in run.events():
            pass_.add(line)
        times, values = run.curve(metric)
        return cls(
            metric=metric,
            target=target,
            concurrency=concurrency,
            corrupted=frozenset(corrupted),
            end_s=pass_.now,
            times=times,
            values=values,
            aggregated_at=np.array(pass_.aggregated_at, np.float64),
            arrived_at=np.array([at for at, _, _ in pass_.arrived], np.float64),
            arrived_from=np.array([client for _, client, _ in pass_.arrived], np.int64),
            losses=np.array([loss for _, _, loss in pass_.arrived], np.float64),
            staleness=dict(pass_.staleness),
            num_examples=pass_.num_examples,
            num_started=dict(pass_.num_started),
            distrusted=frozenset(pass_.distrusted),
            running_s=pass_.running_s,
            buffered_s=pass_.buffered_s,
        )


@dataclass(slots=True)
class _Pass:
    """Goes through the lines of a run and keeps count."""

    now: float = 0.0
    aggregated_at: list[float] = field(default_factory=list)
    arrived: list[tuple[float, int, float | None]] = field(default_factory=list)
    staleness: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    num_examples: dict[int, int] = field(default_factory=dict)
    num_started: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    distrusted: set[int] = field(default_factory=set)
    running_s: float = 0.0
    buffered_s: float = 0.0
    _num_running: int = 0
    _buffer: dict[int, int] = field(default_factory=dict)  # task -> client

    def add(self, line: Line) -> None:
        """Move the clock, then note what the line says."""
        elapsed = max(0.0, line["at"] - self.now)  # an evaluation may be told late
        self.running_s += elapsed * self._num_running
        self.buffered_s += elapsed * bool(self._buffer)
        self.now += elapsed
        note = getattr(self, f"_note_{line['kind']}", None)
        if note is not None:
            note(line)

    def _note_joined(self, line: Line) -> None:
        self.num_examples[line["client"]] = line["num_examples"]

    def _note_started(self, line: Line) -> None:
        self._num_running += 1
        self.num_started[line["client"]] += 1

    def _note_arrived(self, line: Line) -> None:
        self._num_running -= 1
        self._buffer[line["task"]] = line["client"]
        self.arrived.append((line["at"], line["client"], line["loss"]))

    def _note_failed(self, line: Line) -> None:
        self._num_running -= "task" in line

    def _note_left(self, line: Line) -> None:
        self._num_running -= "task" in line

    def _note_dropped(self, line: Line) -> None:
        self._buffer.pop(line["task"], None)

    def _note_aggregated(self, line: Line) -> None:
        self.aggregated_at.append(line["at"])
        for task, staleness in zip(line["tasks"], line["staleness"], strict=True):
            self.staleness[self._buffer.pop(task)].append(staleness)

    def _note_distrusted(self, line: Line) -> None:
        self.distrusted.add(line["client"])
