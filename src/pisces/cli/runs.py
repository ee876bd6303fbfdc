"""`pisces runs`: what is in a folder of runs."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pisces.cli.console import Json, print_json, stdout
from pisces.errors import RunError
from pisces.quantities import duration
from pisces.record.reader import Run, find_runs
from pisces.record.writer import SUMMARY
from pisces.report.table import Room, empty_table, fitting, whole

LONGEST_PART = 26  # of a folder's name that is broken


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
        print_json([{"folder": str(run.path), **_summary(run)} for run in found])
    elif not found:
        stdout.print(f"no runs below {folder}; make some: pisces demo")
    else:
        stdout.print(fitting(partial(_table, found, folder), stdout.width))


def _table(found: list[Run], below: Path, room: Room) -> Table:
    table = empty_table(room)
    table.add_column(f"folder in {escape(str(below))}", overflow="fold")
    is_told = room != "roomy" and all(map(_is_told, found))
    if not is_told:
        table.add_column("protocol", overflow="fold")
        table.add_column("seed", justify="right", no_wrap=True)
    for heading in ("versions", "time", "best", "ended by"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in found:
        names = [_folder(run, below, room), *([] if is_told else _protocol(run, room))]
        table.add_row(*map(escape, names), *_cells(run))
    return table


def _is_told(run: Run) -> bool:
    """Whether the folder's name says protocol and seed, as those of `pisces compare` do."""
    return run.path.name.startswith(f"{run.protocol}-seed{run.seed}")


def _folder(run: Run, below: Path, room: Room) -> str:
    path = run.path.relative_to(below)
    if room != "broken":
        return str(path)
    return f"{os.sep}\n".join(whole(part, room, LONGEST_PART) for part in path.parts)


def _protocol(run: Run, room: Room) -> tuple[str, str]:
    return whole(run.protocol, room), "" if run.seed is None else str(run.seed)


def _summary(run: Run) -> dict[str, Any]:
    """What is known of it: nobody can count a sampled log that is not over."""
    unknown = run.sampled is not None and not (run.path / SUMMARY).exists()
    return {"reason": None, "sampled": run.sampled} if unknown else run.summary


def _cells(run: Run) -> tuple[str, ...]:
    summary = _summary(run)
    if "versions" not in summary:
        return "", "", "", "not over (sampled)"
    metric, _ = run.aim
    best = None if metric is None else run.counts.best.get(metric)
    return (
        str(summary["versions"]),
        duration(summary["at"]),
        "" if best is None else f"{best:.3f}",
        summary["reason"] or "not over",
    )
