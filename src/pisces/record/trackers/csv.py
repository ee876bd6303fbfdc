"""Points as rows of a table that every program reads, `metrics.csv` in the run's folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pisces.errors import RunError
from pisces.record.trackers.base import Point, Subject, Tracker
from pisces.record.writer import replace_file

METRICS = "metrics.csv"
FIRST = ("version", "seconds")


class CSV(Tracker):
    """One row per point: its version and second, then a column per name, empty where it has none.

    A run that is resumed has the file written anew, so that it is that of a run left alone.
    """

    name = "csv"

    def __init__(self, path: str | Path | None = None) -> None:
        self.needs_folder = path is None
        self._given = None if path is None else Path(path)
        self._path = Path(METRICS)
        self._columns: list[str] = []

    def begin(self, run: Subject) -> None:
        """Begin the file; another's is not written over."""
        self._path = self._given or (run.folder or Path()) / METRICS
        if self._path.exists() and not run.is_resumed:
            raise RunError(f"{self._path} exists already: name another file")
        self._columns = list(FIRST)
        self._replace([])

    def track(self, points: Sequence[Point]) -> None:
        """Append rows; where there are new names, the file gets new columns first."""
        names = dict.fromkeys(name for point in points for name in point.values)
        new = [name for name in names if name not in self._columns]
        if new:
            rows = self._rows()
            self._columns += new
            self._replace([row + [""] * len(new) for row in rows])
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(self._row(point) for point in points)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """All is written: the summary stands in the run's folder."""

    def _row(self, point: Point) -> list[Any]:
        cells = {**point.values, "version": point.version, "seconds": point.at}
        return [cells.get(name, "") for name in self._columns]

    def _rows(self) -> list[list[str]]:
        with self._path.open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))[1:]

    def _replace(self, rows: Sequence[Sequence[str]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([self._columns, *rows])
        replace_file(self._path, text.getvalue().encode())
