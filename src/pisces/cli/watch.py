"""`pisces watch`: runs in a browser, live."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pisces.cli.codes import INTERRUPTED
from pisces.cli.console import stderr, stdout
from pisces.errors import RunError

if TYPE_CHECKING:
    from pisces.dashboard.serving import Address

RUNS = Path("runs")


def watch(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN|FOLDER]", help="A run, or a folder of them; else ./runs."),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the page; 0: any that is free.", min=0, max=65535)
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    host: Annotated[
        str, typer.Option(help="Where it can be reached; others than this machine need the token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PISCES_WATCH_TOKEN",
            help="What whoever looks must know; with --host one is made.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show runs in the browser, live while they go on and the same afterwards.

    Reads run folders only: the runs do not notice. Ctrl-C ends it.

    [bold]Examples[/]

      pisces watch --open

      pisces watch runs/demo --port 8080
    """
    from pisces.dashboard.serving import watch as serve

    where = folder or RUNS
    _check(where, is_told=folder is not None)
    try:
        serve(
            where,
            lambda address: _tell(where, address, is_to_open=open_),
            host=host,
            port=port,
            token=token,
        )
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _check(folder: Path, *, is_told: bool) -> None:
    """A folder that will be there later is watched, too; a file is not, nor a slip of the pen."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: name a run folder, or a folder of them")
    if is_told and not folder.exists() and not folder.absolute().parent.is_dir():
        raise RunError(f"{folder} is not there, nor the folder it would be in: check the path")


def _tell(folder: Path, address: Address, *, is_to_open: bool) -> None:
    if not folder.is_dir():
        _say(f"{folder} is not there yet: check the name, or wait, and runs appear as they come")
    stdout.say(f"watching {folder}: {address.link}")
    if not address.is_near:
        _say("others can reach it; whoever has this link sees the runs, and so does the network")
    _say("Ctrl-C ends it")
    if is_to_open and not webbrowser.open(address.link):
        _say("no browser could be opened: open the link yourself")


def _say(text: str) -> None:
    stderr.say(text, style="dim")
