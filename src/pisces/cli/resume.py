"""`pisces resume`: a run that was killed, interrupted or stopped goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pisces.cli.console import Json, Quiet, Verbose, set_up_logging
from pisces.cli.options import Track, tracked
from pisces.cli.run import carry_out


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another stop, e.g. stop.time_s=2000."),
    ] = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Go on with a run that was killed, interrupted or stopped.

    It goes on from its last checkpoint as if nothing had happened: log and
    model come out as those of a run that was left alone. A run that is
    finished goes on to a later stop.

    [bold]Examples[/]

      pisces resume runs/first

      pisces resume runs/first --set stop.time_s=2000
    """
    from pisces.resuming import Job

    set_up_logging(verbose)
    job = Job.of(folder, changes or [])
    carry_out(replace(job, config=tracked(job.config, track)), as_json, quiet)
