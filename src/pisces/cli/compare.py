"""`pisces compare`: several protocols, the same seeds, one table and one plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pisces import config
from pisces.cli.codes import INTERRUPTED
from pisces.cli.console import Json, Quiet, stderr
from pisces.cli.options import (
    Changes,
    ConfigFile,
    OnRay,
    Target,
    Track,
    fresh_folder,
    names,
    numbers,
    tracked,
)
from pisces.cli.report import show_comparison
from pisces.config import Config
from pisces.errors import ConfigError
from pisces.many.crew import run_all
from pisces.many.jobs import Job, has_begun, jobs_of, misfits
from pisces.many.left import left_in
from pisces.many.where import made_where
from pisces.progress.showing import Manner, manner_of
from pisces.record.reader import Run
from pisces.report.goal import Goal
from pisces.report.ledger.summary import read_once

Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; without it one per processor core.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder to write, or to go on in where runs were cut short; without it a new one "
        "below ./runs."
    ),
]


def compare(
    file: ConfigFile,
    protocols: Annotated[
        str,
        typer.Option(help="Protocols, the first is the reference; all: every one, no variants."),
    ] = "pisces,fedbuff,oort,fedavg",
    seeds: Annotated[str, typer.Option(help="Seeds, each run by every protocol.")] = "1-3",
    changes: Changes = None,
    target: Target = None,
    jobs: Jobs = None,
    out: Out = None,
    track: Track = None,
    ray: OnRay = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare protocols on the same data, latencies and seeds.

    Every seed is one world; a speed-up is taken within a world,
    then the median over worlds is shown with its spread.

    [bold]Examples[/]

      pisces compare my.toml --protocols pisces,fedbuff --seeds 1-5

      pisces compare my.toml --set clients.concurrency=40 --target 0.9 --jobs 2

      pisces compare my.toml --protocols all --set clients.deadline_s=600

      pisces compare my.toml --seeds 1-20 --target 0.9 --ray auto
    """
    wish = [] if target is None else [f"stop.target={target}"]
    base = tracked(config.load(file, [*(changes or []), *wish]), track)
    target = base.stop.target
    if target is None:
        raise ConfigError("compare needs a target to reach: --target 0.9, or stop.target")
    folder = out or fresh_folder(f"{file.stem}-compare")
    chosen = all_that_run(base) if protocols.strip() == "all" else names(protocols)
    todo = jobs_of(base, chosen, numbers(seeds), folder)
    with left_in(folder, todo, quiet=quiet) as left:
        manner = manner_of(quiet=quiet, as_json=as_json)
        run_and_show(todo, left, target, folder, jobs, manner, ray=ray, as_json=as_json)


def all_that_run(base: Config) -> list[str]:
    """Every protocol but variants; those that these settings do not suit are left out, aloud."""
    from pisces.names import PROTOCOLS

    all_names = [name for name, of in PROTOCOLS.items() if not hasattr(of, "variant_of")]
    refused = dict(misfits(base.model_copy(update={"protocol": name}) for name in all_names))
    if len(refused) == len(all_names):
        raise next(iter(refused.values()))
    for name, why in refused.items():
        stderr.say(f"left out: {name}: {why}")
    return [name for name in all_names if name not in refused]


def run_and_show(
    jobs: Sequence[Job],
    left: Sequence[Job],
    target: float,
    folder: Path,
    num_workers: int | None,
    manner: Manner,
    *,
    ray: str | None = None,
    as_json: bool = False,
) -> None:
    """Make the runs that are left, then show all of them; exits with 130 if interrupted."""
    interrupted = False
    if left:
        with made_where([job.config for job in left], num_workers, ray) as where:
            interrupted = run_all(left, where, manner)
    runs = [read_once(Run.open(job.out)) for job in jobs if has_begun(job.out)]
    if runs:
        first = runs[0]  # of the protocol named first, if it was begun at all
        goal = Goal(jobs[0].config.stop.metric, target, first.protocol)
        show_comparison(runs, goal, folder, as_json=as_json, quiet=manner == "none")
    if interrupted:
        num_done = sum(not run.counts.is_cut_short for run in runs)
        text = f"interrupted: {num_done} of {len(jobs)} runs are done"
        if runs:
            text += f"; the same command with --out {folder} goes on"
        stderr.say(text)
        raise typer.Exit(INTERRUPTED)
