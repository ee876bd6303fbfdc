"""Which runs there are in the folder that is watched, and in no other.

A run is known by its path below that folder. Nobody turns what a browser sends into a path: it is
looked up among the runs that were found. Folders that are links are not entered, and a run with a
file that leads out of the folder is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pisces.record.writer import CHECKPOINTS, CLIENTS, CONFIG, EVENTS, JOURNAL, MODEL, SUMMARY

ITSELF = "."  # the run that is the folder watched
MAX_RUNS = 2000
MAX_FOLDERS = 20_000  # looked into: who watches a whole disk by mistake gets an answer all the same
MAX_DEPTH = 8
READ = (EVENTS, CONFIG, SUMMARY, CLIENTS, MODEL, CHECKPOINTS, JOURNAL)


class Stamp(NamedTuple):
    """What a log is like, and when its config was written; nanoseconds since 1970."""

    inode: int
    num_bytes: int
    changed_ns: int
    config_ns: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A run folder that was found; `stamp` changes whenever its log does, or its config."""

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
    """The runs in and below a folder that is given with all links resolved.

    Of too many those that changed last are kept: what goes on is looked for most.
    """
    folders = _folders(root, MAX_DEPTH)
    some = [_place(root, *entered) for entered in islice(folders, MAX_FOLDERS)]
    found = [place for place in some if place is not None]
    is_cut = len(found) > MAX_RUNS or next(folders, None) is not None
    newest = nlargest(MAX_RUNS, found, key=lambda place: place.changed_at)
    return Found({place.id: place for place in newest}, is_cut)


def named(path: Path) -> str:
    """The path as text that can travel: bytes that are no UTF-8 are written out (`\\xff`).

    So that no other folder is called the same, a backslash is written twice.
    """
    told = os.fsencode(PurePosixPath(path).as_posix()).replace(b"\\", b"\\\\")
    return told.decode(errors="backslashreplace")


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
        named(folder.relative_to(root)),
        folder,
        Stamp(facts.st_ino, facts.st_size, facts.st_mtime_ns, _changed_ns(entries.get(CONFIG))),
        facts.st_mtime,
        f"{leading_out[0]} is a link that leads out of the folder watched: put what it leads to "
        "in its place"
        if leading_out
        else None,
    )


def _changed_ns(entry: os.DirEntry[str] | None) -> int | None:
    try:
        return None if entry is None else entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return None


def _is_inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link that leads to itself
        return False
