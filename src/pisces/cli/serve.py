"""`pisces serve`: a run whose clients come over the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pisces import config
from pisces.cli.console import Json, Quiet, Verbose, set_up_logging, stderr
from pisces.cli.options import Changes, Out, Track, fresh_folder, tracked
from pisces.cli.run import code_of, require_summary, show
from pisces.errors import ConfigError, FinishedError, Terminated
from pisces.progress import screen
from pisces.progress.boards import Board
from pisces.progress.showing import Listener, manner_of, shown
from pisces.progress.standing import Standing
from pisces.record.reader import Run, called

if TYPE_CHECKING:
    from pisces.hosting import Host, Place
    from pisces.resuming import Job


def serve(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where clients find it; port 0: any.")
    ],
    file: Annotated[
        Path | None, typer.Argument(help="A config file; `pisces config` prints a full one.")
    ] = None,
    certs: Annotated[
        Path | None, typer.Option(help="Folder of `pisces certs`; without it ./certs.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No certificates; on this machine only.")
    ] = False,
    out: Out = None,
    changes: Changes = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Let updates count when their latency has passed.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="For Prometheus, on this machine (or HOST:PORT)."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")
    ] = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train one model with clients that join over the network.

    Clients show certificates (`pisces certs`), and join with `pisces join`.
    Ctrl-C and SIGTERM end it for now: all is saved, clients keep what they
    have and wait for the server to come back. A server that was killed goes
    on as well, and loses nothing.

    [bold]Examples[/]

      pisces certs init && pisces certs server --host fl.example.org

      pisces serve my.toml --listen 0.0.0.0:8440 --out runs/first

      pisces serve --resume runs/first --listen 0.0.0.0:8440

      pisces serve my.toml --listen 127.0.0.1:8440 --insecure --metrics 9090
    """
    from pisces.hosting import Place

    set_up_logging(verbose)
    place = Place(listen, certs, insecure, metrics, hears_core=True)
    job = _job(file, resume, changes or [], out)
    job = replace(job, config=tracked(job.config, track))
    carry_out(job, place, emulate=emulate, as_json=as_json, quiet=quiet)


def _job(file: Path | None, resume: Path | None, changes: list[str], out: Path | None) -> Job:
    from pisces import build
    from pisces.resuming import Job

    if (file is None) == (resume is None):
        raise ConfigError("name a config file, or with --resume a run to go on with; one of both")
    if resume is not None:
        if out is not None:
            raise ConfigError(f"--out: a run goes on in its own folder, {resume}: leave it out")
        return Job.of(resume, changes, served=True)
    assert file is not None
    settings = build.resolved(config.load(file, changes))
    protocol = called(settings.model_dump())
    return Job(settings, out or fresh_folder(f"{file.stem}-{protocol}-seed{settings.seed}"))


def carry_out(job: Job, place: Place, *, emulate: bool, as_json: bool, quiet: bool) -> None:
    """Serve a run, and show what came of it."""
    from pisces import hosting

    settings, terminated = job.config, False
    standing = Standing(job.name, settings.seed, settings.stop)
    board = ServerBoard([standing])
    manner = manner_of(quiet=quiet, as_json=as_json)
    with suppress(KeyboardInterrupt), shown(board, manner, by_itself=True) as changed:
        listener, recall, ready = Listener(standing, changed), standing.recall, board.listens
        try:
            hosting.serve(
                job, place, emulate=emulate, listener=listener, recall=recall, ready=ready
            )
        except Terminated:
            terminated = True
            screen.forget_if_closed()
        except FinishedError as error:
            stderr.say(str(error))
    require_summary(job.folder)
    summary = show(Run.open(job.folder), as_json, (), _again(job, place, emulate))
    raise typer.Exit(code_of(summary, terminated=terminated))


def _again(job: Job, place: Place, emulate: bool) -> str:
    """The command that goes on with it."""
    certs = [] if place.certs is None else [f"--certs {place.certs}"]
    flags = [*certs, *["--insecure"] * place.insecure, *["--emulate"] * emulate]
    return " ".join([f"pisces serve --resume {job.folder} --listen {place.listen}", *flags])


@dataclass(slots=True)
class ServerBoard(Board):
    """The board of a run, and below it who is there."""

    host: Host | None = field(default=None)

    def listens(self, host: Host) -> None:
        """From now on there is a server."""
        self.host = host
        stderr.say(f"listening on {host.address}")
        if host.metrics_at is not None:
            stderr.say(f"metrics at {host.metrics_at}")

    def notes(self) -> Iterator[str]:
        """Who is there."""
        if self.host is not None:
            yield self._who(self.host)

    def _who(self, host: Host) -> str:
        stats, wanted = host.stats, host.terms.at_least
        of = f" of {wanted} to begin with" if stats.num_connected < wanted else ""
        kept_out = f", {stats.refused.total()} times kept out" if stats.refused else ""
        return f"{stats.num_connected} connected{of}, {stats.num_given} running{kept_out}"
