"""Which runs there are in the folder that is watched, and in no other.

A run is known by its path below that folder. Nobody turns what a browser sends into a path: it is
looked up among the runs that were found. Folders that are links are not entered, and a run with a
file that leads out of the folder is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from pisces.record.writer import CLIENTS, CONFIG, EVENTS, SUMMARY

Stamp: TypeAlias = tuple[int, int, int]  # file number, bytes, when it was changed
ITSELF = "."  # the run that is the folder watched
MAX_RUNS = 2000
MAX_FOLDERS = 20_000  # looked into: who watches a whole disk by mistake gets an answer all the same
MAX_DEPTH = 8
READ = (EVENTS, CONFIG, SUMMARY, CLIENTS)


@dataclass(frozen=True, slots=True)
class Place:
    """A run folder that was found; `stamp` changes whenever its log does."""

    id: str
    path: Path
    stamp: Stamp
    changed_at: float  # seconds since 1970
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """All runs below a folder; `is_cut` where there were too many to look at."""

    places: dict[str, Place]
    is_cut: bool = False


def find(root: Path) -> Found:
    """The runs in and below a folder that is given with all links resolved."""
    places: dict[str, Place] = {}
    for number, (folder, entries) in enumerate(_folders(root, MAX_DEPTH)):
        if len(places) >= MAX_RUNS or number >= MAX_FOLDERS:
            return Found(places, is_cut=True)
        if (place := _place(root, folder, entries)) is not None:
            places[place.id] = place
    return Found(places)


def hidden(text: str, root: Path) -> str:
    """The text without the path of the folder watched: a browser need not know where it lies."""
    return text.replace(f"{root}{os.sep}", "").replace(str(root), root.name or ITSELF)


def _folders(folder: Path, depth: int) -> Iterator[tuple[Path, dict[str, os.DirEntry[str]]]]:
    """The folder and those below it, with what is in them; nothing lies below a run."""
    try:
        with os.scandir(folder) as found:
            entries = {entry.name: entry for entry in found}
    except OSError:
        return  # gone meanwhile, or not for us to see
    yield folder, entries
    if EVENTS in entries or not depth:
        return
    for name in sorted(entries):
        if not name.startswith(".") and entries[name].is_dir(follow_symlinks=False):
            yield from _folders(folder / name, depth - 1)


def _place(root: Path, folder: Path, entries: dict[str, os.DirEntry[str]]) -> Place | None:
    if EVENTS not in entries:
        return None
    links = [name for name in READ if name in entries and entries[name].is_symlink()]
    leading_out = [name for name in links if not _is_inside(folder / name, root)]
    try:
        facts = entries[EVENTS].stat(follow_symlinks=not leading_out)
    except OSError:
        return None
    return Place(
        PurePosixPath(folder.relative_to(root)).as_posix(),
        folder,
        (facts.st_ino, facts.st_size, facts.st_mtime_ns),
        facts.st_mtime,
        f"{leading_out[0]} is a link that leads out of the folder watched: put what it leads to "
        "in its place"
        if leading_out
        else None,
    )


def _is_inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link that leads to itself
        return False
