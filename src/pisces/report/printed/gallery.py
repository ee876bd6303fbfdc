"""Pictures by name, each with the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from pisces.errors import ConfigError, RunError
from pisces.record.reader import Run
from pisces.report.arrays import Ints
from pisces.report.compare import drawn_of, grouped
from pisces.report.goal import SAY_ONE, Goal
from pisces.report.ledger.notes import Notes
from pisces.report.ledger.rows import count_or_none
from pisces.report.ledger.summary import involvement, notes_of, read_once
from pisces.report.ledger.tables import OUTCOMES
from pisces.report.printed import plots, portraits
from pisces.report.printed.paper import SCREEN, Paper

Columns: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Material:
    """The runs that are drawn, and what they are held against: see `drawn_of`.

    Each log is read once, however many pictures are made of it.
    """

    all_runs: Sequence[Run]
    asked: Goal

    @property
    def runs(self) -> Sequence[Run]:
        """Those that are drawn."""
        return self._drawn[0]

    @property
    def goal(self) -> Goal:
        """With the target, where they are held to it."""
        return self._drawn[1]

    @cached_property
    def _read(self) -> Sequence[Run]:
        return [read_once(run) for run in self.all_runs]

    @cached_property
    def _drawn(self) -> tuple[Sequence[Run], Goal]:
        return drawn_of(self._read, self.asked)

    @property
    def notes(self) -> Notes:
        """All that the log of the only run tells."""
        (run,) = self._read
        return notes_of(run)


@dataclass(frozen=True, slots=True)
class Picture:
    """How something is drawn, and the numbers it is drawn from.

    `draw` gives None where there is nothing to draw, `empty` says why.
    """

    title: str
    draw: Callable[[Material, Paper], Figure | None]
    columns: Callable[[Material], Columns]
    empty: str = "no task was started"
    of_one: bool = False
    needs_target: bool = False

    def missing(self, material: Material) -> str | None:
        """Why it is not drawn of these runs, if so, and what to do."""
        if self.of_one and len(material.all_runs) > 1:
            return f"of one run only, and there are {len(material.all_runs)}: give one run folder"
        if self.needs_target and material.asked.target is None:
            return SAY_ONE
        if self.needs_target and material.goal.target is None:
            return "none of these runs has come to its end: finish one"
        return None


def chosen(names: Iterable[str], material: Material) -> dict[str, Picture]:
    """The pictures of these names; without names all that can be drawn of these runs."""
    asked = dict.fromkeys(names)
    for name in asked:
        if name not in PICTURES:
            raise ConfigError(f"no figure is called {name!r}: choose from {', '.join(PICTURES)}")
        missing = PICTURES[name].missing(material)
        if missing:
            raise RunError(f"figure {name!r}: {missing}")
    if asked:
        return {name: PICTURES[name] for name in asked}
    return {name: picture for name, picture in PICTURES.items() if not picture.missing(material)}


def drawn(name: str, material: Material, paper: Paper = SCREEN) -> Figure | None:
    """The picture of that name; None where there is nothing to draw."""
    return PICTURES[name].draw(material, paper)


# --- the numbers behind ---------------------------------------------------------------------------


def _curve_columns(material: Material) -> Columns:
    rows = [
        (*_who(run), at, value)
        for run in material.runs
        for at, value in zip(
            *(part.tolist() for part in run.curve(material.goal.metric)), strict=True
        )
    ]
    return _columns(("protocol", "seed", "time_s", material.goal.metric), rows)


def _times_columns(material: Material) -> Columns:
    rows = [
        (
            *_who(run),
            run.time_to_target(material.goal.needed, material.goal.metric),
            run.counts.at,
        )
        for run in material.runs
    ]
    return _columns(("protocol", "seed", "time_to_target_s", "ended_at"), rows)


def _staleness_columns(material: Material) -> Columns:
    rows = [
        (protocol, staleness, num)
        for protocol, group in grouped(material.runs).items()
        for staleness, num in sorted(plots.pooled_staleness(group).items())
    ]
    return _columns(("protocol", "staleness", "num_updates"), rows)


def _involvement_columns(material: Material) -> Columns:
    parts = [(run, involvement(notes_of(run))) for run in material.runs]
    rows = [
        (*_who(run), *row)
        for run, part in parts
        for row in zip(
            *(c.tolist() for c in (part.clients, part.num_examples, part.num_started)), strict=True
        )
    ]
    return _columns(("protocol", "seed", "client", "num_examples", "num_picked"), rows)


def _task_columns(material: Material) -> Columns:
    notes, tasks = material.notes, material.notes.tasks
    return {
        "task": tasks["task"].tolist(),
        "client": notes.clients["client"][tasks["client"]].tolist(),
        "version": _counts(tasks["version"]),
        "started_at": tasks["started_at"].tolist(),
        "ended_at": tasks["ended_at"].tolist(),
        "outcome": [OUTCOMES[code] for code in tasks["outcome"].tolist()],
        "staleness": _counts(tasks["staleness"]),
    }


def _interval_columns(material: Material) -> Columns:
    notes, versions = material.notes, material.notes.aggregations
    return {
        "version": versions["version"].tolist(),
        "at": versions["at"].tolist(),
        "interval_s": notes.intervals().tolist(),
        "limit_s": notes.paced("limit_s").tolist(),
        "num_updates": versions["num"].tolist(),
    }


def _loss_columns(material: Material) -> Columns:
    notes, tasks = material.notes, material.notes.tasks
    told = np.flatnonzero(~np.isnan(tasks["loss"]))
    return {
        "at": tasks["ended_at"][told].tolist(),
        "client": notes.clients["client"][tasks["client"][told]].tolist(),
        "task": tasks["task"][told].tolist(),
        "version": _counts(tasks["version"][told]),
        "loss": tasks["loss"][told].tolist(),
        "is_outlier": tasks["is_outlier"][told].tolist(),
    }


def _score_columns(material: Material) -> Columns:
    notes, picks = material.notes, material.notes.picks
    told = np.flatnonzero(picks.scores["first"] >= 0)
    scores = {name: picks.scores[name][told] for name in ("decision", "client", "is_picked")}
    columns = (
        picks.decisions["at"][scores["decision"]],
        notes.clients["client"][scores["client"]],
        scores["is_picked"],
        *(picks.term_of(told, term) for term in picks.names),
    )
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return _columns(("at", "client", "was_picked", *picks.names), rows)


def _counts(column: Ints) -> list[int | None]:
    return [count_or_none(count) for count in column.tolist()]


def _who(run: Run) -> tuple[str, int | None]:
    return run.protocol, run.seed


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    """By name; a metric or a term that is called as another column keeps one of its own."""
    columns: dict[str, list[Any]] = {}
    for place, name in enumerate(names):
        own = f"{name} (2)" if name in columns else name
        columns[own] = [row[place] for row in rows]
    return columns


PICTURES: Mapping[str, Picture] = {
    "curve": Picture(
        "How good the model is, over time",
        lambda m, paper: plots.curves(m.runs, m.goal, paper=paper),
        _curve_columns,
        "nothing was evaluated",
    ),
    "times": Picture(
        "Time to the target",
        lambda m, paper: plots.times(m.runs, m.goal, paper=paper),
        _times_columns,
        needs_target=True,
    ),
    "staleness": Picture(
        "How stale updates were",
        lambda m, paper: plots.histograms(m.runs, paper=paper),
        _staleness_columns,
    ),
    "involvement": Picture(
        "Who was picked, by how much data it has",
        lambda m, paper: plots.picks(m.runs, paper=paper),
        _involvement_columns,
    ),
    "timeline": Picture(
        "Who worked when",
        lambda m, paper: portraits.timeline(m.notes, paper=paper),
        _task_columns,
        of_one=True,
    ),
    "intervals": Picture(
        "How far apart aggregations were",
        lambda m, paper: portraits.intervals(m.notes, paper=paper),
        _interval_columns,
        "nothing was aggregated",
        of_one=True,
    ),
    "losses": Picture(
        "What clients lost on their own data",
        lambda m, paper: portraits.losses(m.notes, paper=paper),
        _loss_columns,
        "no client told a loss",
        of_one=True,
    ),
    "scores": Picture(
        "What clients were worth to the selector",
        lambda m, paper: portraits.scores(m.notes, paper=paper),
        _score_columns,
        "no scores were written down",
        of_one=True,
    ),
}
