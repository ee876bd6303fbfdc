"""`pisces runs`: what is in a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pisces.cli.console import Json, print_json, stdout
from pisces.errors import RunError
from pisces.record.reader import Run, find_runs
from pisces.report.table import duration


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look, also in folders below.")] = Path(
        "runs"
    ),
    as_json: Json = False,
) -> None:
    """List the runs below a folder: how they ended, how good they got.

    [bold]Example[/]

      pisces runs runs/demo
    """
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder: name one with runs, or make some: pisces demo")
    found = find_runs(folder)
    if as_json:
        print_json([{"folder": str(run.path), **run.summary} for run in found])
    elif not found:
        stdout.print(f"no runs below {folder}; make some: pisces demo")
    else:
        stdout.print(_table(found, folder))


def _table(found: list[Run], below: Path) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(f"folder in {escape(str(below))}", overflow="fold")
    table.add_column("protocol", overflow="fold")
    for heading in ("seed", "versions", "time", "best", "ended by"):
        table.add_column(heading, justify="right")
    for run in found:
        table.add_row(*_cells(run, below))
    return table


def _cells(run: Run, below: Path) -> tuple[str, ...]:
    summary = run.summary
    best = summary["best"].get(summary.get("metric", "accuracy"))
    return (
        escape(str(run.path.relative_to(below))),
        escape(run.protocol),
        "" if run.seed is None else str(run.seed),
        str(summary["versions"]),
        duration(summary["at"]),
        "" if best is None else f"{best:.3f}",
        summary["reason"] or "not over",
    )
