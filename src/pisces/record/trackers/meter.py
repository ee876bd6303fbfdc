"""From a run's lines to points for trackers: one per evaluation and per aggregation, no more.

The same lines give the same points, whether they come live or from a log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pisces.record.lines import Line
from pisces.record.summary import ending_of, metrics_of
from pisces.record.trackers.base import Point

# So many aggregations have a point each; then every 2nd has one, from twice as many on every 4th.
EACH = 1024


def has_point(version: int) -> bool:
    """Is there a point for this aggregation? A million have some 6000."""
    return version % (1 << (version // EACH).bit_length()) == 0


class Meter:
    """Counts lines; where aggregations are skipped, a point speaks for all since the one before."""

    def __init__(self) -> None:
        self._number = 0
        self._num_running = self._num_buffered = 0
        self._num_updates = self._num_failed = self._num_dropped = self._num_distrusted = 0
        self._losses: dict[int, float | None] = {}  # of updates that wait, by task
        self._last_at = 0.0  # of the last point for an aggregation
        self._window = _Window()

    def add(self, line: Line) -> Point | None:
        """Count one line; gives the point it makes, if it makes one."""
        match line["kind"]:
            case "started":
                self._num_running += 1
            case "arrived":
                self._num_running -= 1
                self._num_buffered += 1
                self._num_updates += 1
                self._losses[line["task"]] = line["loss"]
            case "failed" | "left":
                self._lose(line)
            case "dropped":
                self._num_buffered -= 1
                self._num_dropped += 1
                self._losses.pop(line["task"], None)
            case "distrusted":
                self._num_distrusted += 1
            case "aggregated":
                return self._aggregated(line)
            case "evaluated":
                named = [(_own_name(name), value) for name, value in metrics_of(line).items()]
                return self._point(line, named, is_evaluation=True)
        return None

    def _lose(self, line: Line) -> None:
        if "task" in line:  # else nothing was running
            self._num_running -= 1
            self._num_failed += ending_of(line["reason"]) == "failed"

    def _aggregated(self, line: Line) -> Point | None:
        tasks = line["tasks"]
        self._num_buffered -= len(tasks)
        self._window.add(line["staleness"], [self._losses.pop(task, None) for task in tasks])
        if not has_point(line["version"]):
            return None
        window, self._window = self._window, _Window()
        elapsed_s, self._last_at = line["at"] - self._last_at, line["at"]
        values = {
            "aggregation/size": window.num_updates / window.num,
            "aggregation/interval_s": elapsed_s / window.num,
            "staleness/mean": window.mean_staleness,
            "staleness/max": window.max_staleness,
            "loss/train": window.mean_loss,
            "clients/running": self._num_running,
            "clients/distrusted": self._num_distrusted,
            "updates/total": self._num_updates,
            "updates/buffered": self._num_buffered,
            "updates/failed": self._num_failed,
            "updates/dropped": self._num_dropped,
            **{f"pace/{name}": value for name, value in line.get("pace", {}).items()},
        }
        return self._point(line, values.items())

    def _point(
        self, line: Line, values: Iterable[tuple[str, Any]], *, is_evaluation: bool = False
    ) -> Point:
        number, self._number = self._number, self._number + 1
        finite = {name: value for name, value in values if _is_finite(value)}
        return Point(number, line["version"], line["at"], finite, is_evaluation)


class _Window:
    """The aggregations that a point speaks for."""

    def __init__(self) -> None:
        self.num = self.num_updates = self._num_losses = 0
        self._staleness, self._loss = 0, 0.0
        self.max_staleness: int | None = None

    def add(self, staleness: list[int], losses: list[float | None]) -> None:
        self.num += 1
        self.num_updates += len(staleness)
        self._staleness += sum(staleness)
        if staleness:
            self.max_staleness = max(*staleness, self.max_staleness or 0)
        told = [loss for loss in losses if loss is not None]
        self._num_losses += len(told)
        self._loss += math.fsum(told)

    @property
    def mean_staleness(self) -> float | None:
        return self._staleness / self.num_updates if self.num_updates else None

    @property
    def mean_loss(self) -> float | None:
        return self._loss / self._num_losses if self._num_losses else None


def _own_name(metric: str) -> str:
    """Beside a point's values trackers tell its seconds."""
    return f"metric/{metric}" if metric == "seconds" else metric


def _is_finite(value: Any) -> bool:
    """Is it a number one can draw?"""
    return isinstance(value, int | float) and math.isfinite(value)
