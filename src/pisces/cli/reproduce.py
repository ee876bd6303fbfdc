"""`pisces reproduce`: the paper's experiments, run as far as they are not done, and their pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pisces.cli.codes import INTERRUPTED
from pisces.cli.compare import Jobs
from pisces.cli.console import Json, Quiet, print_json, stdout, warn
from pisces.cli.listing import as_values, listing
from pisces.cli.options import OnRay, names, numbers
from pisces.cli.studies import Outcome, alone_in, alone_with, run, write_pages
from pisces.config import Config
from pisces.errors import ConfigError, MissingDataError
from pisces.explain import known
from pisces.progress.showing import manner_of
from pisces.study import plan
from pisces.study.claims import in_short, judge
from pisces.study.page import MEANS_NOTHING, PAGE
from pisces.study.runs import Wish
from pisces.study.work import Place, Work, borrow, collect, open_study

SMOKE_RUNS = Path("runs/reproduce-smoke")
RUNS = Path("runs/reproduce")


def reproduce(
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY...|all]", help="Which studies; without any: list them."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds such as 1-5, counted from a study's first_seed; default: of each case."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda.")] = "auto",
    jobs: Jobs = None,
    case: Annotated[
        str | None, typer.Option(help="Only these tasks of the studies: mnist,cifar10.")
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A trial: everything, but small, on a CPU in minutes.")
    ] = False,
    pages_only: Annotated[
        bool, typer.Option("--pages-only", help="Run nothing; pages anew, from results.json alone.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Where the studies are.")] = plan.FOLDER,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"Where runs go; default: {RUNS}, of a trial with its pages: {SMOKE_RUNS}."
        ),
    ] = None,
    ray: OnRay = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments and hold its claims against the numbers.

    What is finished is not run again: stop with Ctrl-C and go on later.
    Each study gets a page, RESULTS.md, beside its study.toml.

    [bold]Examples[/]

      pisces reproduce

      pisces reproduce end_to_end --case mnist --seeds 1-5 --device cuda

      pisces reproduce all --smoke

      pisces reproduce --json | jq .together
    """
    found = _found(folder)
    chosen = _chosen(studies or [], found)
    wish = _wish(
        None if seeds is None else _counted(seeds),
        names(case or ""),
        "cpu" if smoke and device == "auto" else device,
        smoke=smoke,
    )
    place = Place(out or SMOKE_RUNS, True) if smoke else Place(out or RUNS, False)
    _check_out(place.runs, found.values())
    if not studies:
        works = [open_study(path, place, wish) for path in found.values()]
        borrow(works, found.values(), place)
        if as_json:
            print_json(as_values(works))
        else:
            stdout.print(listing(works))
        return
    folders = [found[name] for name in chosen]
    outcome = Outcome()
    with ExitStack() as held:
        if not (pages_only or smoke):  # a trial's records lie with its runs
            held.enter_context(alone_with(folders))
        works = [open_study(path, place, wish) for path in folders]
        _check_cases(wish.cases, works)
        borrow(works, found.values(), place)
        if not pages_only:
            held.enter_context(alone_in(place.runs))
            collect(works, place)
            outcome = run(works, jobs, manner_of(quiet=quiet, as_json=as_json), ray)
        write_pages(works, found.values(), place, wish, anew=pages_only)
    if as_json:
        print_json(_document(works, outcome, is_trial=smoke))
    _say(works, outcome, pages_only=pages_only, is_trial=smoke, only_warn=as_json)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.failures or outcome.spoilt:
        raise typer.Exit(1)
    if outcome.skipped and not any(work.records for work in works):
        raise MissingDataError("nothing could be run: get first what is missing")


def _counted(text: str) -> list[int]:
    """Seeds as they are counted: before the first there is none, or another study's."""
    asked = numbers(text)
    if min(asked) < 1:
        raise ConfigError(
            f"--seeds: must be 1 or more, not {min(asked)}: 1 is a study's first_seed, whichever "
            "that is, and 1-5 are its first five"
        )
    return asked


def _wish(seeds: Sequence[int] | None, cases: Sequence[str], device: str, *, smoke: bool) -> Wish:
    from pisces import build, world  # torch is slow to import

    def corrupted(config: Config) -> list[int]:
        return list(map(int, world.corrupted_clients(config)))

    return Wish(build.resolved, corrupted, seeds, cases, device, smoke, build.revision_of)


def _check_out(runs: Path, studies: Iterable[Path]) -> None:
    """What is written there must not take the place of a study's own results."""
    here = runs.resolve()
    for study in studies:
        if here == study.resolve().parent or here.is_relative_to(study.resolve()):
            raise ConfigError(
                f"--out: must not be where studies are, {study.parent}, nor in one, not {runs}"
            )


def _found(folder: Path) -> dict[str, Path]:
    found = plan.find(folder)
    if not found:
        raise ConfigError(
            f"no studies in {folder}: a study is a folder with a {plan.STUDY}; go to a checkout of "
            "Pisces, or name the folder with --folder"
        )
    return found


def _chosen(asked: Sequence[str], found: dict[str, Path]) -> list[str]:
    if "all" in asked:
        return list(found)
    return [known(name, found, "STUDY") for name in dict.fromkeys(asked)]


def _check_cases(asked: Sequence[str], works: Sequence[Work]) -> None:
    cases = {case.name for work in works for case in work.study.case}
    for name in asked:
        known(name, sorted(cases), "--case")


def _document(works: Sequence[Work], outcome: Outcome, *, is_trial: bool) -> dict[str, Any]:
    """What there is now, for programs."""
    failed = {str(f.job.out): f"{type(f.error).__name__}: {f.error}" for f in outcome.failures}
    return {
        "is_trial": is_trial,
        "interrupted": outcome.interrupted,
        "num_made": outcome.num_runs,
        "studies": [_study_document(work) for work in works],
        "skipped": outcome.skipped,
        "failed": {**outcome.spoilt, **failed},
    }


def _study_document(work: Work) -> dict[str, Any]:
    judged, page = judge(work.study, work.in_order()), work.pages / PAGE
    claims = [
        {
            "text": one.claim.text,
            "case": one.case,
            "of": one.of,
            "at": one.x,
            "found": one.found and asdict(one.found),
            "verdict": one.verdict,
        }
        for one in judged
    ]
    told = str(page) if page.exists() else None
    return {"study": work.name, "runs": len(work.records), "page": told, "claims": claims}


def _say(
    works: Sequence[Work],
    outcome: Outcome,
    *,
    pages_only: bool,
    is_trial: bool,
    only_warn: bool,
) -> None:
    """What there is now, study by study; what could not be run and why."""
    for work in works:
        judged = judge(work.study, work.in_order())
        found = MEANS_NOTHING if is_trial else in_short(judged)
        page = work.pages / PAGE
        text = f"{work.name}: {found}" + (f" ({page})" if page.exists() else "")
        if not only_warn:
            stdout.say(text)
        for told in _left_out(work, pages_only):
            warn(f"{work.name}: {told}")
    for name, lack in outcome.skipped.items():
        warn(f"skipped {name}: {lack}")
    for name, damage in outcome.spoilt.items():
        warn(f"failed {name}: {damage}")
    for failure in outcome.failures:
        warn(f"failed {failure.job.out}: {type(failure.error).__name__}: {failure.error}")
    if outcome.interrupted:
        warn(f"interrupted: {outcome.num_runs} runs were finished and are kept")


def _left_out(work: Work, pages_only: bool) -> Iterator[str]:
    """What became of records that do not count any more."""
    gone = "left out" if pages_only else "dropped"
    if work.outdated:
        yield f"{gone} {_records(len(work.outdated))} made with other settings"
    if work.num_reread:
        yield f"read {_records(work.num_reread)} anew from their run folders, for another target"
    if work.off_target:
        again = "their runs are made again"
        if pages_only:
            again = f"without --pages-only read anew from run folders; where those are gone {again}"
        else:
            again = f"their run folders are not there, so {again}"
        yield f"{gone} {_records(len(work.off_target))} for another target: {again}"


def _records(num: int) -> str:
    return f"{num} record" if num == 1 else f"{num} records"
