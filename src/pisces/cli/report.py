"""`pisces report`: tables and plots again, from run folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pisces.cli.console import Json, print_json, stdout
from pisces.errors import RunError
from pisces.record.reader import Run, find_runs
from pisces.report import plots
from pisces.report.compare import compare
from pisces.report.table import comparison_table, run_table


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of them.")
    ],
    target: Annotated[
        float | None, typer.Option(help="Value to reach; default: the runs' own.")
    ] = None,
    metric: Annotated[str, typer.Option(help="What to compare by.")] = "accuracy",
    reference: Annotated[
        str | None, typer.Option(help="Protocol whose speed-up is shown; default: the first.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where plots go; default: the first folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show finished (or interrupted, or running) runs: a table and plots.

    [bold]Examples[/]

      pisces report runs/demo

      pisces report runs/a runs/b --target 0.9 --out figures
    """
    runs = [run for folder in folders for run in _runs_in(folder)]
    goal = target if target is not None else _target_of(runs)
    if goal is None and len(runs) > 1:
        raise RunError("these runs had no target: say one with --target 0.9")
    show(runs, goal, metric, out or folders[0], reference=reference, as_json=as_json)


def show(
    runs: Sequence[Run],
    target: float | None,
    metric: str,
    out: Path,
    *,
    reference: str | None,
    as_json: bool,
) -> None:
    """A table on stdout and the plots beside it."""
    pictures = _draw(runs, target, metric, out)
    if len(runs) == 1:
        if as_json:
            print_json({**runs[0].summary, "plots": pictures})
        else:
            stdout.print(run_table(runs[0], target=target, metric=metric))
    else:
        rows = compare(runs, target or 0.0, metric=metric, reference=reference)
        if as_json:
            print_json({"rows": [asdict(row) for row in rows], "plots": pictures})
        else:
            stdout.print(comparison_table(rows, target=target, metric=metric))
    if not as_json:
        for picture in pictures:
            stdout.print(f"plot: {picture}", soft_wrap=True)


def _draw(runs: Sequence[Run], target: float | None, metric: str, out: Path) -> list[str]:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {out}: {error.strerror}; choose another --out") from error
    curves, stale, involved = (out / f"{name}.png" for name in (metric, "staleness", "involvement"))
    plots.accuracy_over_time(runs, curves, target, metric=metric)
    plots.staleness(runs, stale)
    plots.involvement(runs, involved)
    return [str(path) for path in (curves, stale, involved)]


def _runs_in(folder: Path) -> list[Run]:
    found = find_runs(folder)
    return found or [Run.open(folder)]


def _target_of(runs: Sequence[Run]) -> float | None:
    targets = {run.summary.get("target") for run in runs}
    return targets.pop() if len(targets) == 1 else None
