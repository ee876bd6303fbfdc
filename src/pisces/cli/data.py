"""`pisces data`: which datasets there are, getting them, checking them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from pisces.cli.console import Json, Quiet, complain, print_json, stderr, stdout
from pisces.cli.found import BUILT_IN, PUBLISHED, listed, plain, progress, show
from pisces.errors import DataError, MissingDataError, PiscesError
from pisces.explain import known
from pisces.quantities import in_bytes

if TYPE_CHECKING:
    from pisces.data.finding import Place
    from pisces.data.ready import Checked

app = typer.Typer(name="data", help="List, get and check datasets.", rich_markup_mode="rich")
Folder = Annotated[
    Path | None,
    typer.Option(help="Folder with datasets; default: PISCES_DATA, then the cache."),
]
NOTHING_TO_GET = f"{BUILT_IN} comes with scikit-learn: nothing to get"


@app.callback(invoke_without_command=True)
def _data(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list")
def list_(folder: Folder = None, as_json: Json = False) -> None:
    """List the datasets there are, and where each one is.

    [bold]Example[/]

      pisces data list
    """
    from pisces.data.catalogue import CATALOGUE

    rows = {name: _row(name, _looked(name, folder)) for name in CATALOGUE}
    if as_json:
        print_json([{"name": name, **row} for name, row in rows.items()])
    else:
        stdout.print(listed(rows))
        stdout.print("get one: pisces data get NAME")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A dataset; `pisces data list` shows them.")],
    origin: Annotated[
        Path | None,
        typer.Option("--from", help="Files you have, in their folder or a tar; default: the hub."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to put it; default: the cache (~/.cache/pisces).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the one that is there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Get a dataset, from the Hugging Face hub or from files you have.

    It is written whole or not at all, as one file with its checksum.
    A download that was broken off goes on where it stopped.

    [bold]Examples[/]

      pisces data get mnist

      pisces data get cifar10 --from cifar-10-python.tar.gz

      pisces data get femnist --from leaf/data/femnist/data
    """
    from pisces.data import finding, ready
    from pisces.data.catalogue import CATALOGUE

    if name == BUILT_IN:
        print(NOTHING_TO_GET)
        return
    known(name, CATALOGUE, "dataset")
    where = folder if folder is not None else finding.cache()
    target = ready.ready_file(name, where)
    there = target.is_file() and not force
    if there:
        published = ready.check(finding.found(name, [where])).published
    else:
        with progress(name, quiet) as tell:
            published = ready.get(name, where, origin, tell)
    said = f"{name}{' is ready' if there else ''}: {target}, {in_bytes(target.stat().st_size)}"
    said += PUBLISHED[published] + (_to_replace(name, origin, folder, published) if there else "")
    stdout.say(said)
    if folder is None:
        _say_what_comes_first(name, target)


@app.command("check")
def check(
    name: Annotated[
        str | None, typer.Argument(help="A dataset; default: all that are there.")
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Check and load datasets, and say what they hold.

    Where they have checksums, their files are compared with them.
    The exit code is 1 if something is wrong with one of them.

    [bold]Example[/]

      pisces data check mnist
    """
    from pisces.data.catalogue import CATALOGUE

    if name == BUILT_IN:
        print(NOTHING_TO_GET)
        return
    wanted = CATALOGUE if name is None else [known(name, CATALOGUE, "dataset")]
    _require(folder)
    looked = {name: _looked(name, folder) for name in wanted}
    absent = [place for place in looked.values() if isinstance(place, MissingDataError)]
    if name is not None and absent:
        raise absent[0]
    places = {name: place for name, place in looked.items() if place not in absent}
    results = {name: _checked(place) for name, place in places.items()}
    if as_json:
        print_json([{"name": name, **plain(result)} for name, result in results.items()])
    else:
        show(places, results)
    if any(isinstance(result, PiscesError) for result in results.values()):
        raise typer.Exit(1)


# --- what is found --------------------------------------------------------------------------------


def _looked(name: str, folder: Path | None) -> Place | DataError:
    """Where it is, or why it cannot be said where; a `MissingDataError` if it is not there."""
    from pisces.data import finding

    try:
        return finding.found(name, finding.folders(folder))
    except DataError as error:
        return error


def _to_replace(name: str, origin: Path | None, folder: Path | None, published: bool | None) -> str:
    """How to have another than the one that is there, where that may be wanted."""
    if origin is None and published is not False:
        return ""
    unread = "" if origin is None else f"; {origin} was not read"
    given = {"--from": origin, "--folder": folder}
    options = "".join(f" {key} {path}" for key, path in given.items() if path is not None)
    return f"{unread}; to replace it: pisces data get {name}{options} --force"


def _say_what_comes_first(name: str, got: Path) -> None:
    """Where `PISCES_DATA` has the dataset too, runs do not read the cache's."""
    first = _looked(name, None)
    if isinstance(first, DataError) or first.folder.samefile(got.parent):
        return
    stderr.print(
        f"[yellow]note:[/] runs read {escape(str(first.folder))} instead: PISCES_DATA comes first; "
        f"unset it, or get {name} there: --folder {escape(os.environ['PISCES_DATA'])}",
        soft_wrap=True,
        highlight=False,
    )


def _require(folder: Path | None) -> None:
    """A folder that is named and not there is a fault, not one without datasets."""
    named = folder or os.environ.get("PISCES_DATA")
    if named and not Path(named).is_dir():
        by = "--folder" if folder else "the variable PISCES_DATA"
        complain(f"no such folder: {named}, which {by} names")
        raise typer.Exit(1)


def _row(name: str, looked: Place | DataError) -> dict[str, Any]:
    from pisces.data.catalogue import CATALOGUE

    entry = CATALOGUE[name]
    place = None if isinstance(looked, DataError) else looked
    wrong = isinstance(looked, DataError) and not isinstance(looked, MissingDataError)
    return {
        "about": entry.about,
        "clients": entry.clients,
        "licence": entry.licence,
        "cite": entry.cite,
        "hub": None if entry.hub is None else entry.hub.name,
        "folder": None if place is None else str(place.folder),
        "size_bytes": None if place is None else place.num_bytes,
        "error": str(looked) if wrong else None,
    }


def _checked(place: Place | DataError) -> Checked | PiscesError:
    from pisces.data import ready

    if isinstance(place, DataError):
        return place
    try:
        return ready.check(place)
    except PiscesError as error:  # also that a package is not installed
        return error
