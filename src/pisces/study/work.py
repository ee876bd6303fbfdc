"""A study at work: what is asked of it, what is known of it, and what is left to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.record.writer import SUMMARY
from pisces.study import plan, records
from pisces.study.facts import Facts
from pisces.study.page import PAGE, Missing
from pisces.study.records import Key, Record, record_of
from pisces.study.runs import Corrupted, Planned, Wish, planned

# What reading a run folder raises that is not as it was written.
DAMAGED = (RunError, ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs go, and with those of a trial its pages."""

    runs: Path
    is_trial: bool

    def runs_of(self, study: Path) -> Path:
        """Where the runs of a study go."""
        return self.runs / study.name / "runs" if self.is_trial else self.runs / study.name

    def pages_of(self, study: Path) -> Path:
        """Where its page, pictures and records go: a trial's never beside the real ones."""
        return self.runs / study.name if self.is_trial else study

    def index_of(self, folder: Path) -> Path:
        """Where the page over all studies goes."""
        return (self.runs if self.is_trial else folder) / PAGE


@dataclass(slots=True)
class Work:
    """A study, what is known of it and what is asked."""

    name: str
    study: plan.Study
    pages: Path
    runs: Path
    whole: Sequence[Planned]  # all its runs, with its own seeds
    asked: Sequence[Planned]  # those of the cases and seeds asked for
    records: dict[Key, Record]
    outdated: Sequence[Record]  # left out: of other settings
    off_target: dict[Key, Record]  # left out: of the same run, but for another target
    corrupted: Corrupted
    num_reread: int = 0  # of those for another target, from their run folders
    has_changed: bool = False

    def left(self) -> list[Planned]:
        """What is asked and has no record yet."""
        return [run for run in self.asked if run.key not in self.records]

    def run_s(self, case: str) -> float:
        """About how long a run of a case takes: as those measured, be it with other settings."""
        same = (*self.records.values(), *self.off_target.values())
        for known in (same, self.outdated):
            measured = [record.wall_s for record in known if record.case == case]
            if measured:
                return median(measured)
        return self.study.case_named(case).run_s

    def add(self, run: Planned, folder: Path) -> None:
        """Keep what there is to keep of a finished run."""
        self.records[run.key] = self._record(run, folder)
        self.save()

    def add_if_sound(self, run: Planned, folder: Path) -> None:
        """Keep a run that was found, unless its folder is damaged: it is then left to make."""
        with suppress(*DAMAGED):
            self.records[run.key] = self._record(run, folder)
        if run.key in self.records:
            self.num_reread += self.off_target.pop(run.key, None) is not None
            self.save()

    def borrow(self, run: Planned, lenders: Iterable[Record]) -> None:
        """Keep the first of these records of the same run that has what the pictures need."""
        lent = (records.lent(record, run, self.study.figures) for record in lenders)
        found = next(filter(None, lent), None)
        if found is not None:
            self.records[run.key] = found
            self.has_changed = True

    def save(self) -> None:
        """Write the records that count; those of other settings or targets are gone for good."""
        self.has_changed = True
        records.save(self.pages, self.in_order())

    def _record(self, run: Planned, folder: Path) -> Record:
        made, settings = Run.open(folder), run.config
        facts = Facts.of(
            made,
            run.target,
            settings.stop.metric,
            settings.clients.concurrency,
            self.corrupted(settings),
        )
        return record_of(made, run, facts, self.study.figures)

    def in_order(self) -> list[Record]:
        """The records as the study names them: by case, point, variant and seed."""
        order = [
            (case.name, variant.name, x)
            for case in self.study.case
            for x in self.study.xs_of(case)
            for variant in self.study.variants_of(case)
        ]
        return sorted(self.records.values(), key=lambda r: (order.index(r.key[:3]), r.seed))

    def every_s(self) -> dict[str, float]:
        """How often each case is evaluated; nothing of one whose variants or points differ."""
        found: dict[str, set[float]] = {}
        for run in (*self.whole, *self.asked):
            found.setdefault(run.case, set()).add(run.config.evaluate.every_s)
        return {case: values.pop() for case, values in found.items() if len(values) == 1}

    def missing(self) -> dict[str, Missing]:
        """What each case lacks of its own runs, whatever was asked."""
        left = [run for run in self.whole if run.key not in self.records]
        return {
            run.case: Missing(
                num_runs=(num := sum(other.case == run.case for other in left)),
                seconds=num * self.run_s(run.case),
                dataset=run.config.data.dataset,
            )
            for run in left
        }


def open_study(folder: Path, place: Place, wish: Wish) -> Work:
    """A study with what is known of it; records of other settings or targets are left out."""
    study = plan.load(folder)
    pages = place.pages_of(folder)
    found = records.load(pages)
    seeds = sorted({1 + record.seed - study.first_seed for record in found})
    every_case = [case.name for case in study.case]
    known = planned(study, folder, replace(wish, cases=every_case, seeds=seeds)) if found else []
    now = {run.key: run for run in known}
    same = {r.key: r for r in found if r.key in now and r.digest == now[r.key].digest}
    kept = {key: record for key, record in same.items() if record.target == now[key].target}
    return Work(
        name=folder.name,
        study=study,
        pages=pages,
        runs=place.runs_of(folder),
        whole=planned(study, folder, replace(wish, cases=(), seeds=None)),
        asked=planned(study, folder, wish),
        records=kept,
        outdated=[record for record in found if record.key not in same],
        off_target={key: record for key, record in same.items() if key not in kept},
        corrupted=wish.corrupted,
    )


def borrow(works: Sequence[Work], studies: Iterable[Path], place: Place) -> None:
    """Keep what other studies' records say of the same runs: what is the same is made once."""
    known: dict[tuple[str, float], list[Record]] = {}
    for study in studies:
        for record in records.load(place.pages_of(study)):
            known.setdefault((record.digest, record.target), []).append(record)
    for work in works:
        for run in work.left():
            work.borrow(run, known.get((run.digest, run.target), ()))


def collect(works: Sequence[Work], place: Place) -> None:
    """Keep runs that were finished and have no record, or one for another target.

    They may be another study's, as in `borrow`.
    """
    summaries = sorted(place.runs.glob(f"**/*-seed*/{SUMMARY}"))
    finished = {
        path.parent.name.rpartition("-")[2]: path.parent
        for path in summaries
        if _is_finished(path.parent)
    }
    for work in works:
        for run in work.left():
            if run.short_digest in finished:
                work.add_if_sound(run, finished[run.short_digest])
        if work.has_changed:  # by what it borrowed
            work.save()


def _is_finished(folder: Path) -> bool:
    try:
        summary = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("reason") != "interrupted"
