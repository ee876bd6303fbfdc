"""Working through studies: running what is left of them, and writing their pages."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pisces.cli.checks import Wanted, check, label_of, name_of
from pisces.cli.console import stderr
from pisces.errors import RunError
from pisces.many.crew import Crew, Failure
from pisces.many.jobs import Job, make_folder
from pisces.many.where import Where, made_where
from pisces.progress.boards import Overview
from pisces.progress.showing import Manner, shown
from pisces.progress.standing import Batch, Standing, Whole
from pisces.record.writer import replace_file
from pisces.study.page import PAGE, Results, index, page
from pisces.study.runs import Wish
from pisces.study.work import Place, Work, open_study

LOCK = ".lock"
INDEX_LOCK = ".index.lock"  # whoever works on a study writes the page over all of them


@contextmanager
def alone_with(studies: Iterable[Path]) -> Iterator[None]:
    """Alone with studies' records: of two that write them, one would lose the other's.

    They are to be read within: until then another may add to them.
    """
    with ExitStack() as held:
        for study in sorted(studies):  # in one order: two never refuse each other
            busy = f"another pisces reproduce is at work on {study}: wait for it"
            held.enter_context(_locked(study / LOCK, busy, "mend the permissions"))
        yield


@contextmanager
def alone_in(runs: Path) -> Iterator[None]:
    """Alone in a folder of runs: two at work would make, and remove, the same ones."""
    make_folder(runs)
    busy = f"another pisces reproduce is at work in {runs}: wait for it, or choose another --out"
    with _locked(runs / LOCK, busy, "choose another --out"):
        yield


@contextmanager
def _locked(path: Path, busy: str | None, remedy: str) -> Iterator[None]:
    """With the lock; while another has it, refused in words that say so, or waiting without."""
    try:
        file = path.open("a")
    except OSError as error:
        raise RunError(f"cannot write in {path.parent}: {error.strerror}; {remedy}") from error
    with file:  # closing it, or the end of the process, gives it back
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            raise RunError(busy) from error
        yield


@dataclass(slots=True)
class Outcome:
    """What came of the work."""

    num_runs: int = 0
    interrupted: bool = False
    failures: Sequence[Failure] = ()
    skipped: dict[str, str] = field(default_factory=dict)  # study/case -> what it lacks
    spoilt: dict[str, str] = field(default_factory=dict)  # study/case -> what of it is damaged


def run(
    works: Sequence[Work], num_workers: int | None, manner: Manner, ray: str | None = None
) -> Outcome:
    """Make all runs that are left, and keep a record of each as it ends."""
    checked = check(works)
    outcome = Outcome(skipped=checked.lacking, spoilt=checked.spoilt)
    wanted: dict[str, list[Wanted]] = {}  # studies may ask for the same run
    for work, run in checked.runnable:
        wanted.setdefault(run.digest, []).append((work, run))
    if wanted:
        configs = [who[0][1].config for who in wanted.values()]
        with made_where(configs, num_workers, ray) as where:
            _work_through(list(wanted.values()), where, outcome, manner)
    return outcome


def _work_through(
    wanted: Sequence[Sequence[Wanted]],
    where: Where,
    outcome: Outcome,
    manner: Manner,
) -> None:
    todo = [who[0] for who in wanted]
    jobs = [Job(run.config, work.runs / run.folder) for work, run in todo]
    standings = [
        Standing(label_of(run), run.seed, run.config.stop, name_of(work, run)) for work, run in todo
    ]
    batches = _batches(todo, standings)
    by_folder = {job.out: who for job, who in zip(jobs, wanted, strict=True)}

    def keep(job: Job) -> None:
        for work, run in by_folder[job.out]:
            work.add(run, job.out)
        outcome.num_runs += 1

    crew = Crew(jobs, standings, where, keep_going=True, when_done=keep)
    tell = _teller(batches, told=manner in ("live", "lines"))
    with shown(Overview(Whole(batches)), manner) as changed, crew:
        while crew.work():
            changed()
            tell()
    tell()
    outcome.interrupted, outcome.failures = crew.interrupted, crew.failures


def _batches(todo: Sequence[Wanted], standings: Sequence[Standing]) -> list[Batch]:
    groups: dict[str, list[Standing]] = {}
    run_s: dict[str, float] = {}
    for (work, run), standing in zip(todo, standings, strict=True):
        name = name_of(work, run)
        groups.setdefault(name, []).append(standing)
        run_s[name] = work.run_s(run.case)
    return [Batch(name, runs, run_s[name]) for name, runs in groups.items()]


def _teller(batches: Sequence[Batch], *, told: bool) -> Callable[[], None]:
    """Says once of each batch that it is done: what stays on the screen, or in a log."""
    over: set[str] = set()

    def tell() -> None:
        for batch in batches:
            if told and batch.num_done == len(batch.runs) and batch.name not in over:
                over.add(batch.name)
                stderr.print(f"done: {batch.name}, {len(batch.runs)} runs", highlight=False)

    return tell


# --- pages ----------------------------------------------------------------------------------------


def write_pages(
    works: Sequence[Work], all_studies: Iterable[Path], place: Place, wish: Wish, *, anew: bool
) -> None:
    """The page of each study that has changed, and the one over all of them."""
    studies = list(all_studies)
    folder = studies[0].parent
    for work in works:
        # Only now: what was refused has cost nothing.
        if (work.outdated or work.off_target) and not anew:
            work.save()
        has_page = (work.pages / PAGE).exists()
        if work.has_changed or (anew and has_page) or (work.records and not has_page):
            _write_page(work, place, folder)
    over_all = place.index_of(folder)
    if not over_all.exists() and not any(work.records for work in works):
        return
    with _locked(over_all.parent / INDEX_LOCK, None, "mend the permissions"):
        _write_index(works, studies, place, wish)


def _write_index(works: Sequence[Work], studies: Sequence[Path], place: Place, wish: Wish) -> None:
    opened = {work.name: work for work in works}
    rows = []
    for path in studies:
        work = opened.get(path.name) or open_study(path, place, wish)
        rows.append((work.name, work.study, work.in_order()))
    text = index(rows, smoke=place.is_trial)
    replace_file(place.index_of(studies[0].parent), text.encode())


def _write_page(work: Work, place: Place, folder: Path) -> None:
    from pisces.study.figures import draw  # matplotlib is slow to import

    kept = work.in_order()
    pictures = {
        case.name: draw(work.study, case, of_case, work.pages / "figures", is_trial=place.is_trial)
        for case in work.study.case
        if (of_case := [record for record in kept if record.case == case.name])
    }
    missing = {} if place.is_trial else work.missing()
    results = Results(
        name=work.name,
        study=work.study,
        records=kept,
        pictures=pictures,
        missing=missing,
        smoke=place.is_trial,
        folder=folder,
        every_s=work.every_s(),
    )
    replace_file(work.pages / PAGE, page(results).encode())
