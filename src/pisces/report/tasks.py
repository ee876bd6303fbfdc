"""What became of every task of a run, and of every aggregation: what it is drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.types import AT_THE_END, CALLED_OFF

Outcome: TypeAlias = Literal[
    "aggregated", "dropped", "waiting", "failed", "called off", "left", "running", "cut off"
]


@dataclass(slots=True)
class TaskFacts:
    """One task; None is what is not known, or did not come to pass.

    `cut off`: it was under way when the run stopped; `running` and `waiting`: it still is, or
    nobody wrote down what became of it.
    """

    task: int
    client: int
    version: int | None
    started_at: float
    ended_at: float | None = None
    outcome: Outcome = "running"
    staleness: int | None = None
    loss: float | None = None
    is_outlier: bool = False


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One version: since when the one before it, and what the pacer's limit was."""

    at: float
    version: int
    interval_s: float
    limit_s: float | None
    num_updates: int


@dataclass(frozen=True, slots=True)
class Score:
    """What a client was worth to the selector when its score was written down."""

    at: float
    client: int
    terms: Mapping[str, float | None]
    was_picked: bool


@dataclass(slots=True)
class Log:
    """Tasks by number, aggregations and scores in the order in which they came."""

    tasks: dict[int, TaskFacts] = field(default_factory=dict)
    aggregations: list[Aggregation] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    distrusted: dict[int, float] = field(default_factory=dict)  # client -> when
    end_s: float = 0.0

    @classmethod
    def of(cls, run: Run) -> Log:
        """Read a run folder once."""
        log = cls()
        for line in run.events():
            log.add(line)
        return log

    def add(self, line: Line) -> None:
        """Note what a line says; kinds nobody knows only move the clock."""
        self.end_s = max(self.end_s, line["at"])
        note = getattr(self, f"_note_{line['kind']}", None)
        if note is not None:
            note(line)

    def _note_started(self, line: Line) -> None:
        task = TaskFacts(line["task"], line["client"], line.get("version"), line["at"])
        self.tasks[task.task] = task

    def _note_arrived(self, line: Line) -> None:
        task = self._end(line, "waiting")
        if task is not None:
            task.loss = line.get("loss")

    def _note_failed(self, line: Line) -> None:
        reason: str = line["reason"]
        if reason.startswith(AT_THE_END):
            self._end(line, "cut off")
        else:
            self._end(line, "called off" if reason.startswith(CALLED_OFF) else "failed")

    def _note_left(self, line: Line) -> None:
        self._end(line, "left")

    def _note_dropped(self, line: Line) -> None:
        task = self.tasks.get(line["task"])
        if task is not None:
            task.outcome = "dropped"

    def _note_aggregated(self, line: Line) -> None:
        before = self.aggregations[-1].at if self.aggregations else 0.0
        pace = line.get("pace")
        limit_s = _number(pace.get("limit_s")) if isinstance(pace, dict) else None
        at, num = line["at"], len(line["staleness"])
        self.aggregations.append(Aggregation(at, line["version"], at - before, limit_s, num))
        for number, staleness in zip(line["tasks"], line["staleness"], strict=False):
            task = self.tasks.get(number)
            if task is not None:
                task.outcome, task.staleness = "aggregated", staleness

    def _note_outlier(self, line: Line) -> None:
        task = self.tasks.get(line["task"])
        if task is not None:
            task.is_outlier = True

    def _note_distrusted(self, line: Line) -> None:
        self.distrusted.setdefault(line["client"], line["at"])

    def _note_picked(self, line: Line) -> None:
        terms = line.get("terms")
        if not isinstance(terms, list):
            return  # drawn by lot
        for who, rows, was_picked in (
            ("clients", "scores", True),
            ("others", "other_scores", False),
        ):
            for client, row in zip(line.get(who) or (), line.get(rows) or (), strict=False):
                values = {str(t): _number(v) for t, v in zip(terms, row or (), strict=False)}
                self.scores.append(Score(line["at"], client, values, was_picked))

    def _end(self, line: Line, outcome: Outcome) -> TaskFacts | None:
        """The task that ended; None where the line is of no task that was started."""
        task = self.tasks.get(line.get("task", -1))
        if task is not None:
            task.ended_at, task.outcome = line["at"], outcome
        return task


def _number(value: Any) -> float | None:
    is_one = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_one else None
