"""`pisces report`: tables and plots again, from run folders alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pisces.cli.console import Json, print_json, stdout, warn
from pisces.cli.sharing import Csv, Figures, Html, Pdf, Png, Svg, Wanted, Width, write
from pisces.errors import RunError
from pisces.record.reader import Run, find_runs
from pisces.report.compare import Row, compare, drawn_of, in_order
from pisces.report.goal import SAY_ONE, Goal
from pisces.report.ledger.summary import ReadRun
from pisces.report.settings import apart, differences_of_world, told_apart
from pisces.report.table import comparison_table, run_table


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of them.")
    ],
    target: Annotated[
        float | None, typer.Option(help="Value to reach; default: the runs' own.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="What to compare by; default: the runs' own.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Protocol whose speed-up is shown; default: pisces, or else the fastest."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where plots go; default: the first folder.")
    ] = None,
    html: Html = None,
    png: Png = None,
    svg: Svg = None,
    pdf: Pdf = None,
    as_csv: Csv = None,
    figure: Figures = None,
    width: Width = None,
    as_json: Json = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say which files were written.")
    ] = False,
) -> None:
    """Show finished, interrupted or running runs: a table and plots.

    With --html, --png, --svg, --pdf or --csv these take the place of the
    plots beside the runs. PLACE is a folder or, with one --figure, a file.

    [bold]Examples[/]

      pisces report runs/demo

      pisces report runs/a runs/b --target 0.9 --out figures

      pisces report runs/demo --html demo.html

      pisces report runs/demo/pisces-seed1 --pdf timeline.pdf --figure timeline --width column
    """
    places = {"png": png, "svg": svg, "pdf": pdf, "csv": as_csv}
    wanted = Wanted.of(html, places, figure, width)
    found = dict.fromkeys(run for folder in folders for run in _runs_in(folder))
    # Once, for all that is made of them.
    read = told_apart([ReadRun.whole(run) for run in found])
    page_alone = wanted.is_page and out is None and not as_json
    _check_logs(read, all_needed=bool(wanted) or len(read) > 1, page_alone=page_alone)
    runs: list[Run] = [run.ledger.run if run.ledger.is_sampled else run for run in read]
    goal = Goal.of(runs, metric, target, reference)
    goal.check(runs)
    _warn_of_differences(runs)
    if wanted.places and len(runs) > 1 and goal.target is not None:
        runs = in_order(runs, _rows(runs, goal))
    files = write(wanted, runs, goal) if wanted else []
    # Whoever asks for files wants these, and none beside the runs.
    pictures = out or (None if wanted else folders[0])
    if files and (why := _why_no_table(read, goal)):
        warn(f"no table: {why}")
        _name([], [] if quiet else files)
    elif len(runs) == 1:
        _show_run(runs[0], goal, pictures, files, as_json=as_json, quiet=quiet)
    else:
        show_comparison(runs, goal, pictures, files, as_json=as_json, quiet=quiet)


def _check_logs(runs: Sequence[ReadRun], *, all_needed: bool, page_alone: bool) -> None:
    """Logs of some clients cannot be counted: of a single run there is a table, and no more.

    Of one that was damaged there is a page: it shows what can be read, and where that ends.
    """
    for ledger in (run.ledger for run in runs if run.ledger.problem is not None):
        if ledger.is_sampled and not all_needed:
            warn(f"no pictures: {ledger.problem}")
        elif not (ledger.is_damaged and page_alone):
            raise RunError(ledger.problem)


def _why_no_table(runs: Sequence[ReadRun], goal: Goal) -> str | None:
    damage = next((run.ledger.problem for run in runs if run.ledger.problem), None)
    return damage or (SAY_ONE if goal.target is None and len(runs) > 1 else None)


def show_comparison(
    runs: Sequence[Run],
    goal: Goal,
    out: Path | None,
    files: Sequence[str] = (),
    *,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Protocols side by side on stdout, and the plots beside the runs, or in no place at all."""
    rows = _rows(runs, goal)
    pictures = _draw(in_order(runs, rows), goal, out)
    if as_json:
        print_json({"rows": [row.as_json() for row in rows], **_named(pictures, files)})
        return
    stdout.print(comparison_table(rows, goal, width=stdout.width))
    if not quiet:
        _name(pictures, files)


def _show_run(
    run: Run,
    goal: Goal,
    out: Path | None,
    files: Sequence[str],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    table = run_table(run, goal)
    pictures = _draw([run], goal, out) if run.sampled is None else []
    if as_json:
        print_json({**run.summary, **_named(pictures, files)})
        return
    stdout.print(table)
    if not quiet:
        _name(pictures, files)


def _draw(runs: Sequence[Run], goal: Goal, out: Path | None) -> list[str]:
    """The pictures beside the runs; what there is nothing for is left out, and told."""
    if out is None:
        return []
    from pisces.report.printed.gallery import Material, drawn
    from pisces.report.printed.paper import save

    material, pictures = Material(runs, goal), []
    for name, file in _beside(runs, goal).items():
        figure = drawn(name, material)
        if figure is None:
            warn(f"no picture of {goal.metric} over time: nothing was evaluated")
            continue
        save(figure, out / f"{file}.png")
        pictures.append(str(out / f"{file}.png"))
    return pictures


def _beside(runs: Sequence[Run], goal: Goal) -> dict[str, str]:
    """Pictures of the gallery, and what their files are called."""
    # A metric may be called anything, and a run folder may be anybody's: no path comes of it.
    named = {"curve": re.sub(r"[^\w.-]", "_", goal.metric)[:100]}
    drawn, held_to = drawn_of(runs, goal)
    if held_to.target is not None and len({run.protocol for run in drawn}) > 1:
        named["times"] = "time_to_target"
    return {**named, "staleness": "staleness", "involvement": "involvement"}


def _named(pictures: Sequence[str], files: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"plots": pictures, **({"files": files} if files else {})}


def _name(pictures: Sequence[str], files: Sequence[str]) -> None:
    for what, paths in (("plot", pictures), ("file", files)):
        for path in paths:
            stdout.say(f"{what}: {path}")


def _runs_in(folder: Path) -> list[Run]:
    found = find_runs(folder)
    return found or [Run.open(folder)]


def _rows(runs: Sequence[Run], goal: Goal) -> list[Row]:
    return compare(runs, goal.needed, metric=goal.metric, reference=goal.reference)


def _warn_of_differences(runs: Sequence[Run]) -> None:
    """Times are worth comparing only in the same world."""
    found = differences_of_world(runs)
    if found is not None:
        run, keys = found
        warn(apart(runs[0].path, run.path, keys))
