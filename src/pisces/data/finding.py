"""Where datasets are looked for, and reading the one that is found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pisces.data.catalogue import CATALOGUE, Entry, Source
from pisces.data.datasets import Dataset
from pisces.data.raw import Found, Raw, Tell, reading, silent
from pisces.data.text import Cut
from pisces.errors import DataError, MissingDataError


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that has a dataset's files, in one of its forms."""

    entry: Entry
    source: Source
    files: Found

    @property
    def folder(self) -> Path:
        """Where its first file is."""
        return self.files[0][0].parent

    @property
    def num_bytes(self) -> int:
        """What its files take."""
        return sum(file.stat().st_size for files in self.files for file in files)

    def read(self, tell: Tell = silent) -> Raw:
        """What the files hold."""
        with reading(self.files[0][0]):
            return self.source.read(self.files, tell)

    def dataset(self, raw: Raw, cut: Cut | None = None) -> Dataset:
        """The dataset that makes; an error names the first file."""
        with reading(self.files[0][0]):
            return self.entry.kind.dataset(raw, self.files[0][0], cut or Cut())


def load(name: str, folder: str | None = None, cut: Cut | None = None) -> Dataset:
    """A dataset of the catalogue, from `folder` or from where it is usually looked for."""
    place = found(name, folders(folder))
    return place.dataset(place.read(), cut)


def cache() -> Path:
    """Where `pisces data get` puts datasets."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pisces"


def folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where to look: the folder named, and only there; or `PISCES_DATA`, then the cache."""
    if folder is not None:
        return [Path(folder)]
    named = os.environ.get("PISCES_DATA")
    return [Path(named), cache()] if named else [cache()]


def found(name: str, folders: Sequence[Path]) -> Place:
    """The first of the folders that has the dataset, below its name."""
    for folder in folders:
        place = search(CATALOGUE[name], folder / name)
        if place is not None:
            return place
    raise _missing(name, folders)


def search(entry: Entry, folder: Path) -> Place | None:
    """A dataset's files in a folder or up to two below; a ready file before any others."""
    for source in (entry.ready, *entry.sources):
        for within in ([folder], sorted(folder.glob("*")), sorted(folder.glob("*/*"))):
            places = list(_places(entry, source, within))
            if len(places) > 1:  # MNIST and Fashion-MNIST, say, whose files have the same names
                there = " and in ".join(str(place.folder) for place in places)
                raise DataError(f"there are files such as {source.files[0]} in {there}: name one")
            if places:
                return places[0]
    return None


def _places(entry: Entry, source: Source, folders: Iterable[Path]) -> Iterator[Place]:
    for folder in folders:
        files = _files(source, folder)
        if all(files):
            yield Place(entry, source, files)


def _files(source: Source, folder: Path) -> list[list[Path]]:
    return [sorted(p for p in folder.glob(f) if p.is_file()) for f in source.files]


def _missing(name: str, folders: Sequence[Path]) -> MissingDataError:
    entry = CATALOGUE[name]
    places = " and ".join(str(folder / name) for folder in folders)
    return MissingDataError(
        f"{absent(name, [folder / name for folder in folders])}. Get it: pisces data get {name}"
        f"{'' if entry.hub else ' --from FOLDER'}. Looked in {places} (data.folder or the variable "
        f"PISCES_DATA names another folder) for {forms(entry)}"
    )


def absent(name: str, folders: Iterable[Path]) -> str:
    """That a dataset is not in these folders, or which of its files are missing beside others."""
    halves = [
        _half(source, within)
        for source in CATALOGUE[name].sources
        for folder in folders
        for within in (folder, *sorted(folder.glob("*")), *sorted(folder.glob("*/*")))
    ]
    has, lacks = max(halves, key=lambda half: (bool(half[0]), -len(half[1])))
    if not has:
        return f"{name} is not there"
    return f"{name} is not whole: there is {', '.join(has)}, but no {', '.join(lacks)} beside it"


def _half(source: Source, folder: Path) -> tuple[list[str], list[str]]:
    """The patterns that files in the folder match, and those that none does."""
    found = dict(zip(source.files, _files(source, folder), strict=True))
    return [p for p, files in found.items() if files], [p for p in found if not found[p]]


def forms(entry: Entry) -> str:
    """The files a dataset may come in, without those that only add to another form."""
    ways = [source.files for source in (entry.ready, *entry.sources)]
    least = [files for files in ways if not any(set(fewer) < set(files) for fewer in ways)]
    return "; or ".join(", ".join(files) for files in least)
