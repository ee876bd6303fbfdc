"""`pisces report`: tables and plots again, from run folders alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pisces.cli.console import Json, print_json, stdout
from pisces.cli.sharing import Csv, Figures, Html, Pdf, Png, Svg, Wanted, Width, warn, write
from pisces.errors import RunError
from pisces.record.reader import Run, find_runs, sampled_log
from pisces.record.writer import EVENTS
from pisces.report.compare import compare, in_order, is_cut_short
from pisces.report.settings import differences_of_world
from pisces.report.table import comparison_table, run_table
from pisces.stop import lower_is_better


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
    runs = [run for folder in folders for run in _runs_in(folder)]
    _check_whole(runs, needed=bool(wanted) or len(runs) > 1)
    goal = target if target is not None else _common(runs, "target")
    by = metric or _common(runs, "metric") or "accuracy"
    _check_target(runs, goal, by)
    _warn_of_differences(runs)
    if wanted.places and len(runs) > 1 and goal is not None:
        runs = in_order(runs, compare(runs, goal, metric=by, reference=reference))
    files = write(wanted, runs, goal, by, reference) if wanted else []
    # Whoever asks for files wants these, and none beside the runs.
    pictures = out or (None if wanted else folders[0])
    if len(runs) == 1:
        _show_run(runs[0], goal, by, pictures, files, as_json=as_json, quiet=quiet)
    elif goal is None and files:
        warn("no table: these runs have no target in common; say one with --target 0.9")
        _name([], [] if quiet else files)
    elif goal is None:
        raise RunError("these runs have no target in common: say one with --target 0.9")
    else:
        show_comparison(
            runs, goal, by, pictures, files, reference=reference, as_json=as_json, quiet=quiet
        )


def _check_whole(runs: Sequence[Run], *, needed: bool) -> None:
    """Logs of some clients cannot be counted: of a single run there is a table, and no more."""
    for run in runs:
        if run.sampled is not None:
            why = sampled_log(run.path / EVENTS)
            if needed:
                raise RunError(why)
            warn(f"no pictures: {why}")


def show_comparison(
    runs: Sequence[Run],
    target: float,
    metric: str,
    out: Path | None,
    files: Sequence[str] = (),
    *,
    reference: str | None = None,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Protocols side by side on stdout, and the plots beside the runs, or in no place at all.

    Runs cut short are drawn only where there are no others, and then without the target.
    """
    rows = compare(runs, target, metric=metric, reference=reference)
    runs = in_order(runs, rows)
    over = [run for run in runs if not is_cut_short(run)]
    pictures = _draw(over, target, metric, out) if over else _draw(runs, None, metric, out)
    if as_json:
        print_json({"rows": [asdict(row) for row in rows], **_named(pictures, files)})
        return
    stdout.print(comparison_table(rows, target=target, metric=metric, width=stdout.width))
    if not quiet:
        _name(pictures, files)


def _show_run(
    run: Run,
    target: float | None,
    metric: str,
    out: Path | None,
    files: Sequence[str],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    table = run_table(run, target=target, metric=metric)
    pictures = _draw([run], target, metric, out) if run.sampled is None else []
    if as_json:
        print_json({**run.summary, **_named(pictures, files)})
        return
    stdout.print(table)
    if not quiet:
        _name(pictures, files)


def _draw(runs: Sequence[Run], target: float | None, metric: str, out: Path | None) -> list[str]:
    from pisces.report import plots

    if out is None:
        return []

    # A metric may be called anything, and a run folder may be anybody's: no path comes of it.
    of_metric = re.sub(r"[^\w.-]", "_", metric)[:100]
    names = (of_metric, "staleness", "involvement")
    curves, stale, involved = (out / f"{name}.png" for name in names)
    pictures = [stale, involved]
    if target is not None and len({run.protocol for run in runs}) > 1:
        pictures.insert(0, out / "time_to_target.png")
        plots.time_to_target(runs, pictures[0], target, metric=metric)
    if plots.accuracy_over_time(runs, curves, target, metric=metric):
        pictures.insert(0, curves)
    else:
        warn(f"no picture of {metric} over time: nothing was evaluated")
    plots.staleness(runs, stale)
    plots.involvement(runs, involved)
    return [str(path) for path in pictures]


def _named(pictures: Sequence[str], files: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"plots": pictures, **({"files": files} if files else {})}


def _name(pictures: Sequence[str], files: Sequence[str]) -> None:
    for what, paths in (("plot", pictures), ("file", files)):
        for path in paths:
            stdout.print(f"{what}: {path}", soft_wrap=True, highlight=False, markup=False)


def _runs_in(folder: Path) -> list[Run]:
    found = find_runs(folder)
    return found or [Run.open(folder)]


def _check_target(runs: Sequence[Run], target: float | None, metric: str) -> None:
    """Runs that stopped because they were good enough cannot be held to more."""
    sign = -1 if lower_is_better(metric) else 1
    for run in runs:
        own = run.summary.get("target")
        cut = run.summary["reason"] == "target" and run.summary.get("metric") == metric
        if cut and own is not None and target is not None and sign * target > sign * own:
            raise RunError(
                f"{run.path} stopped once it had reached {own:g}: ask for a target up to that, or "
                "run again with another stop.target"
            )


def _warn_of_differences(runs: Sequence[Run]) -> None:
    """Times are worth comparing only in the same world."""
    found = differences_of_world(runs)
    if found is not None:
        run, keys = found
        first = ", ".join(keys[:3])
        warn(f"not the same world: {runs[0].path} and {run.path} differ in {first}")


def _common(runs: Sequence[Run], setting: str) -> Any:
    """What all runs that say have under `stop`; a killed run has no summary, but its config."""
    said = (run.summary.get(setting, run.setting("stop", setting)) for run in runs)
    values = {value for value in said if value is not None}
    return values.pop() if len(values) == 1 else None
