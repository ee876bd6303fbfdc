"""Working through studies: what is left to run, running it, and writing the pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import pisces
from pisces.cli.console import stderr
from pisces.cli.many import Crew, Failure, Job, at_once
from pisces.cli.progress import Batch, Overview, Standing, shown
from pisces.errors import ConfigError, DataError
from pisces.record.reader import Run
from pisces.record.writer import SUMMARY, replace_file
from pisces.report.facts import Facts
from pisces.study import plan, records
from pisces.study.page import PAGE, Missing, Results, index, page
from pisces.study.records import Key, Record, record_of
from pisces.study.runs import Planned, Wish, planned


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
    whole: Sequence[Planned]  # all its runs, of every case
    asked: Sequence[Planned]  # of the cases asked for
    records: dict[Key, Record]
    num_dropped: int
    has_changed: bool = False

    def left(self, among: Sequence[Planned]) -> list[Planned]:
        """Those that have no record yet."""
        return [run for run in among if run.key not in self.records]

    def run_s(self, case: str) -> float:
        """About how long a run of a case takes: as long as those measured."""
        measured = [r.wall_s for r in self.records.values() if r.case == case]
        return median(measured) if measured else self.study.case_named(case).run_s

    def left_s(self) -> float:
        """About how long all that is left takes, one run at a time."""
        return sum(self.run_s(run.case) for run in self.left(self.whole))

    def add(self, run: Planned) -> None:
        """Keep what there is to keep of a finished run."""
        self.records[run.key] = _record(self.runs / run.folder, run, self.study.figures)
        self.has_changed = True
        records.save(self.pages, self.in_order())

    def in_order(self) -> list[Record]:
        """The records as the study names them: by case, point, variant and seed."""
        order = {run.key[:3]: number for number, run in enumerate(self.whole)}
        return sorted(self.records.values(), key=lambda r: (order.get(r.key[:3], 0), r.seed))

    def missing(self) -> dict[str, Missing]:
        """What is left of each case."""
        left = self.left(self.whole)
        return {
            run.case: Missing(
                num_runs=(num := sum(other.case == run.case for other in left)),
                seconds=num * self.run_s(run.case),
                dataset=run.config.data.dataset,
            )
            for run in left
        }


@dataclass(slots=True)
class Outcome:
    """What came of the work."""

    num_runs: int = 0
    interrupted: bool = False
    failures: Sequence[Failure] = ()
    skipped: dict[str, str] = field(default_factory=dict)  # study/case -> what it lacks


def wish_for(
    seeds: Sequence[int] | None, cases: Sequence[str], device: str, *, smoke: bool
) -> Wish:
    """What is asked of every study."""
    from pisces import build

    return Wish(build.resolved, seeds, cases, device, smoke)


def open_study(folder: Path, place: Place, wish: Wish) -> Work:
    """A study with what is known of it; records of other settings or targets are left out."""
    study = plan.load(folder)
    pages = place.pages_of(folder)
    found = records.load(pages)
    seeds = sorted({record.seed for record in found})
    whole = planned(study, folder, replace(wish, cases=()))
    known = planned(study, folder, replace(wish, cases=(), seeds=seeds)) if found else []
    now = {run.key: (run.digest, run.target) for run in known}
    kept = {r.key: r for r in found if now.get(r.key) == (r.digest, r.target)}
    return Work(
        name=folder.name,
        study=study,
        pages=pages,
        runs=place.runs_of(folder),
        whole=whole,
        asked=[run for run in whole if not wish.cases or run.case in wish.cases],
        records=kept,
        num_dropped=len(found) - len(kept),
    )


# --- running --------------------------------------------------------------------------------------


def run(works: Sequence[Work], num_workers: int | None, *, quiet: bool) -> Outcome:
    """Make all runs that are left, and keep a record of each as it ends."""
    outcome, todo = Outcome(), []
    for work in works:
        todo += [(work, run) for run in _runnable(work, outcome)]
    if todo:
        _work_through(todo, num_workers, outcome, quiet=quiet)
    return outcome


def collect(work: Work) -> None:
    """Keep runs that were finished and have no record, or one for another target."""
    for run in work.left(work.asked):
        if _is_finished(work.runs / run.folder):
            work.add(run)


def _is_finished(folder: Path) -> bool:
    try:
        summary = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(summary.get("reason") != "interrupted")


def _runnable(work: Work, outcome: Outcome) -> list[Planned]:
    """What is left, checked before anything starts; cases whose data is missing are left out."""
    from pisces import build

    left, runnable = work.left(work.asked), []
    for case in dict.fromkeys(run.case for run in left):
        runs = [run for run in left if run.case == case]
        for run in runs:
            build.policies_of(run.config)
        try:
            build.simulation(runs[0].config)
            runnable += runs
        except (DataError, ConfigError) as error:
            if isinstance(error, ConfigError) and "pip install" not in str(error):
                raise  # a setting is wrong; else an optional package is not here
            outcome.skipped[f"{work.name}/{case}"] = str(error)
    return runnable


def _work_through(
    todo: Sequence[tuple[Work, Planned]],
    num_workers: int | None,
    outcome: Outcome,
    *,
    quiet: bool,
) -> None:
    jobs = [Job(run.config, work.runs / run.folder) for work, run in todo]
    for job in jobs:
        shutil.rmtree(job.out, ignore_errors=True)  # begun, not finished
    standings = [Standing(_label(run), run.seed, run.config.stop) for _, run in todo]
    batches = _batches(todo, standings)
    by_folder = {job.out: pair for job, pair in zip(jobs, todo, strict=True)}

    def keep(job: Job) -> None:
        work, run = by_folder[job.out]
        work.add(run)
        outcome.num_runs += 1

    device = todo[0][1].config.train.device
    num_workers = min(num_workers or at_once(device), len(jobs))
    crew = Crew(jobs, standings, num_workers, keep_going=True, when_done=keep)
    tell = _teller(batches, quiet)
    with shown(Overview(batches), quiet) as redraw, crew:
        while crew.work():
            redraw()
            tell()
    tell()
    outcome.interrupted, outcome.failures = crew.interrupted, crew.failures


def _label(run: Planned) -> str:
    return run.variant if run.x is None else f"{run.variant} {run.x:g}"


def _batches(todo: Sequence[tuple[Work, Planned]], standings: Sequence[Standing]) -> list[Batch]:
    groups: dict[str, list[Standing]] = {}
    run_s: dict[str, float] = {}
    for (work, run), standing in zip(todo, standings, strict=True):
        name = f"{work.name}/{run.case}"
        groups.setdefault(name, []).append(standing)
        run_s[name] = work.run_s(run.case)
    return [Batch(name, runs, run_s[name]) for name, runs in groups.items()]


def _teller(batches: Sequence[Batch], quiet: bool) -> Callable[[], None]:
    """Says once of each batch that it is done: what stays on the screen, or in a log."""
    told: set[str] = set()

    def tell() -> None:
        for batch in batches:
            if batch.num_done == len(batch.runs) and batch.name not in told and not quiet:
                told.add(batch.name)
                stderr.print(f"done: {batch.name}, {len(batch.runs)} runs", highlight=False)

    return tell


def _record(folder: Path, planned: Planned, pictures: Sequence[plan.Picture]) -> Record:
    from pisces.world import corrupted_clients

    run, settings = Run.open(folder), planned.config
    facts = Facts.of(
        run,
        planned.target,
        settings.stop.metric,
        settings.clients.concurrency,
        corrupted_clients(settings).tolist(),
    )
    return record_of(run, planned, facts, made_with(settings.train.device), pictures)


def made_with(device: str) -> str:
    """The software and the machine, for the record."""
    import torch

    from pisces.machine import device_of, num_cores

    on_gpu = device_of(device).type == "cuda"
    machine = torch.cuda.get_device_name() if on_gpu else f"{num_cores()} CPU cores"
    return f"pisces {pisces.__version__}, torch {torch.__version__}, {machine}"


# --- pages ----------------------------------------------------------------------------------------


def write_pages(
    works: Sequence[Work], all_studies: Iterable[Path], place: Place, wish: Wish, *, redraw: bool
) -> None:
    """The page of each study that has changed, and the one over all of them."""
    for work in works:
        if redraw or work.has_changed or work.num_dropped or not (work.pages / PAGE).exists():
            _write_page(work, place)
    studies = list(all_studies)
    opened = {work.name: work for work in works}
    rows = []
    for path in studies:
        work = opened.get(path.name) or open_study(path, place, wish)
        rows.append((work.name, work.study, work.in_order()))
    text = index(rows, smoke=place.is_trial)
    replace_file(place.index_of(studies[0].parent), text.encode())


def _write_page(work: Work, place: Place) -> None:
    from pisces.study.figures import draw  # matplotlib is slow to import

    kept = work.in_order()
    if work.num_dropped:
        records.save(work.pages, kept)
    pictures = {
        case.name: draw(work.study, case, of_case, work.pages / "figures")
        for case in work.study.case
        if (of_case := [record for record in kept if record.case == case.name])
    }
    results = Results(work.name, work.study, kept, pictures, work.missing(), place.is_trial)
    replace_file(work.pages / PAGE, page(results).encode())
