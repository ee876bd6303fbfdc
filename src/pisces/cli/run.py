"""`pisces run`: one config, one run folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pisces import config
from pisces.cli.codes import INTERRUPTED, TERMINATED
from pisces.cli.console import Json, Quiet, Verbose, print_json, set_up_logging, stderr, stdout
from pisces.cli.options import Changes, ConfigFile, Out, Track, fresh_folder, tracked
from pisces.errors import FinishedError, Terminated
from pisces.progress import screen
from pisces.progress.boards import Board
from pisces.progress.showing import Listener, manner_of, shown
from pisces.progress.standing import Standing
from pisces.record.reader import Run, called
from pisces.record.writer import SUMMARY
from pisces.report.goal import Goal
from pisces.report.table import run_table

if TYPE_CHECKING:
    from pisces.resuming import Job

EXIT_CODES = {
    "interrupted": INTERRUPTED,
    "no clients left": 3,
    "nobody may be selected": 3,
    "no trusted clients left": 3,
    "silent clients": 3,
}


def run(
    file: ConfigFile,
    changes: Changes = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set seed=N.")] = None,
    out: Out = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train one model by one protocol, in virtual time.

    [bold]Examples[/]

      pisces config > my.toml

      pisces run my.toml

      pisces run my.toml --set protocol=fedbuff --set clients.count=50 --seed 3

      pisces run my.toml --out runs/first --json | jq .final
    """
    from pisces import build
    from pisces.resuming import Job

    set_up_logging(verbose)
    extra = [] if seed is None else [f"seed={seed}"]
    settings = build.resolved(tracked(config.load(file, [*(changes or []), *extra]), track))
    protocol = called(settings.model_dump())
    folder = out or fresh_folder(f"{file.stem}-{protocol}-seed{settings.seed}")
    carry_out(Job(settings, folder), as_json, quiet)


def carry_out(job: Job, as_json: bool, quiet: bool) -> NoReturn:
    """Begin a run or go on with it, and show what came of it."""
    from pisces import world

    settings, terminated = job.config, False
    standing = Standing(job.name, settings.seed, settings.stop)
    manner = manner_of(quiet=quiet, as_json=as_json)
    # Interrupted, a run still saves what there is; it is shown from its folder either way.
    with suppress(KeyboardInterrupt), shown(Board([standing]), manner) as changed:
        try:
            job.run(Listener(standing, changed), standing.recall)
        except Terminated:
            terminated = True
            screen.forget_if_closed()
        except FinishedError as error:  # nothing to do is no failure: who asks again may rely on it
            stderr.say(str(error))
    require_summary(job.folder)
    corrupted = world.corrupted_clients(settings).tolist()
    summary = show(Run.open(job.folder), as_json, corrupted, f"pisces resume {job.folder}")
    raise typer.Exit(code_of(summary, terminated=terminated))


def require_summary(folder: Path) -> None:
    """End here where a run was interrupted before it began: there is nothing to show."""
    if not (folder / SUMMARY).exists():
        raise typer.Exit(INTERRUPTED)


def code_of(summary: Mapping[str, Any], *, terminated: bool) -> int:
    """How the command ends, given how its run did."""
    return TERMINATED if terminated else EXIT_CODES.get(summary["reason"], 0)


def show(run: Run, as_json: bool, corrupted: Collection[int], again: str) -> dict[str, Any]:
    """What came of a run, and how to go on with it."""
    summary = run.summary
    if as_json:
        print_json({**summary, "folder": str(run.path)})
        return summary
    stdout.print(run_table(run, Goal.of([run])))
    if corrupted:
        stdout.print(_found(corrupted, summary["distrusted"]), highlight=False)
    more = f"; to go on: {again}" if summary["reason"] == "interrupted" else ""
    stdout.say(f"written to {run.path}{more}")
    return summary


def _found(corrupted: Collection[int], distrusted: Collection[int]) -> str:
    """How many of those corrupted, and of the others, are distrusted."""
    num = len(set(corrupted).intersection(distrusted))
    others = len(distrusted) - num
    return f"distrusted: {num} of {len(corrupted)} corrupted clients, {others} of the others"
