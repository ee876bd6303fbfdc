"""How `pisces data` shows what it found: tables, sizes, a bar."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pisces.cli.console import complain, stderr, stdout
from pisces.errors import DataError, PiscesError
from pisces.quantities import in_bytes

if TYPE_CHECKING:
    from pisces.data.finding import Place
    from pisces.data.ready import Checked

OF_TEXT = (
    "of text, samples are windows of {} words and classes are the words known "
    "(data.sequence_length, data.vocabulary)"
)
BUILT_IN = "digits"
SHOWN = 12  # characters of a digest
PUBLISHED = {True: ", as published", False: ", but not the published one", None: ""}


def listed(rows: dict[str, dict[str, Any]]) -> Table:
    """The datasets there are, a row each."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("dataset", "what it is", "licence", "where"):
        table.add_column(heading, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_row(BUILT_IN, "handwritten digits, 8 x 8, 10 classes", "BSD 3-clause", "built in", "")
    for name, row in rows.items():
        size = "" if row["size_bytes"] is None else in_bytes(row["size_bytes"])
        table.add_row(name, row["about"], row["licence"], _where(row), size)
    return table


def _where(row: dict[str, Any]) -> str:
    if row["error"] is not None:
        return f"[red]{escape(row['error'])}[/]"
    return "[dim]not here[/]" if row["folder"] is None else escape(row["folder"])


def show(places: dict[str, Place | DataError], results: dict[str, Checked | PiscesError]) -> None:
    """What a check found, then what is wrong."""
    from pisces.data.ready import Checked
    from pisces.data.text import Cut

    if not places:
        stdout.print("no datasets are there; get one: pisces data get mnist")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("dataset", overflow="fold")
    for heading in ("train", "test", "classes", "clients", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for name, result in results.items():
        place = places[name]
        size = "" if isinstance(place, DataError) else in_bytes(place.num_bytes)
        table.add_row(name, *_cells(result, size))
    stdout.print(table)
    if any(isinstance(r, Checked) and r.objective == "next_word" for r in results.values()):
        stdout.print(OF_TEXT.format(Cut().sequence_length), soft_wrap=True, highlight=False)
    for result in results.values():
        if isinstance(result, PiscesError):
            complain(str(result))


def _cells(result: Checked | PiscesError, size: str) -> tuple[str, ...]:
    if isinstance(result, PiscesError):
        return "", "", "", "", size, "[red]wrong[/]"
    said = "good" + (PUBLISHED[result.published] or f", digest {result.digest[:SHOWN]}")
    said += "" if result.has_checksums else ", no checksums"
    clients = "" if result.num_clients is None else str(result.num_clients)
    counts = (result.num_train, result.num_test, result.num_classes)
    return *map(str, counts), clients, size, said


def plain(result: Checked | PiscesError) -> dict[str, Any]:
    """The same for `--json`."""
    if isinstance(result, PiscesError):
        return {"good": False, "error": str(result)}
    return {"good": True, **dataclasses.asdict(result)}


@contextmanager
def progress(name: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr from the first word on; the hub shows its download by itself."""
    columns = (TextColumn("reading {task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=stderr, transient=True, disable=quiet)
    task = bar.add_task(name, total=None)

    def tell(done: int, of: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=of)

    try:
        yield tell
    finally:
        if bar.live.is_started:  # else it would leave an empty line
            bar.stop()
