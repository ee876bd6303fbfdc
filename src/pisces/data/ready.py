"""Datasets made ready: written whole or not at all, with their checksums beside them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

import numpy as np

from pisces.data.catalogue import CATALOGUE, Entry
from pisces.data.finding import Place, absent, forms, search
from pisces.data.formats import npz
from pisces.data.raw import MOST_BYTES, Raw, Tell, reading, reason, silent
from pisces.errors import DataError, MissingDataError
from pisces.types import Objective

CHECKSUMS = "sha256.json"


@dataclass(frozen=True, slots=True)
class Checked:
    """What files hold; `published`: whether that is the published dataset, where we know it.

    `digest` is that of the content: equal for two copies of the same, whatever files they are in.
    """

    num_train: int
    num_test: int
    num_classes: int
    num_clients: int | None
    has_checksums: bool
    digest: str
    published: bool | None
    objective: Objective


def ready_file(name: str, folder: Path) -> Path:
    """The file `get` writes."""
    return folder / name / CATALOGUE[name].ready.files[0]


def get(name: str, folder: Path, origin: Path | None = None, tell: Tell = silent) -> bool | None:
    """Make a dataset ready in `folder`, out of files at `origin` or from the hub.

    What is there is replaced. Returns whether it is the published one, where we know that.
    """
    entry, target = CATALOGUE[name], ready_file(name, folder)
    raw, path = _from_hub(name, entry, tell) if origin is None else _from(name, origin, tell)
    with reading(path):
        published = entry.published(entry.kind.check(raw, path).digest())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target):
            _keep(raw, target)
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}; choose another --folder"
        ) from error
    return published


def check(place: Place) -> Checked:
    """Compare a dataset's files with their checksums and load them; an error says what is wrong."""
    compared = compare(place.folder)
    raw = place.read()
    data = place.dataset(raw)
    with reading(place.files[0][0]):
        digest = raw.digest()
    return Checked(
        num_train=len(data.targets),
        num_test=len(data.test_targets),
        num_classes=data.num_classes,
        num_clients=None if data.natural is None else len(np.unique(data.natural)),
        has_checksums=compared.issuperset(file for files in place.files for file in files),
        digest=digest,
        published=place.entry.published(digest),
        objective=data.objective,
    )


def compare(folder: Path) -> set[Path]:
    """Compare a folder's files with its checksums; returns those that have one."""
    sums = folder / CHECKSUMS
    if not sums.is_file():
        return set()
    try:
        wanted = {
            folder / Path(name).name: of for name, of in json.loads(sums.read_bytes()).items()
        }
        for file, digest in wanted.items():
            if _digest(file) != digest:
                raise DataError(
                    f"{file} has changed since it was written (its checksum is another); "
                    f"{_again(folder)}"
                )
    except DataError:
        raise
    except Exception as error:  # as with any other file
        raise DataError(
            f"{sums} cannot be used ({reason(error)}); delete it, or {_again(folder)}"
        ) from error
    return set(wanted)


def _again(folder: Path) -> str:
    if folder.name not in CATALOGUE:
        return "put a good copy there"
    return f"get it again: pisces data get {folder.name} --force --folder {folder.parent}"


# --- where it comes from --------------------------------------------------------------------------


def _from_hub(name: str, entry: Entry, tell: Tell) -> tuple[Raw, Path]:
    if entry.hub is None:
        raise MissingDataError(
            f"{name} is not on the Hugging Face hub in a form we know. To get it, {entry.by_hand}: "
            f"pisces data get {name} --from FOLDER"
        )
    return entry.hub.fetch(tell), Path(entry.hub.name)


def _from(name: str, origin: Path, tell: Tell) -> tuple[Raw, Path]:
    if not origin.exists():
        raise MissingDataError(f"--from {origin}: no such file or folder")
    if origin.is_file() and _is_archive(origin):
        with _unpacked(origin, CATALOGUE[name]) as folder:
            return _place(name, folder, origin).read(tell), origin
    place = _place(name, origin, origin)
    return place.read(tell), place.files[0][0]


def _is_archive(file: Path) -> bool:
    """By its name too: a damaged archive is one."""
    with reading(file):
        return ".tar" in file.suffixes or file.suffix == ".tgz" or tarfile.is_tarfile(file)


def _place(name: str, within: Path, named: Path) -> Place:
    entry = CATALOGUE[name]
    place = _single(entry, within) if within.is_file() else search(entry, within)
    if place is None:
        raise MissingDataError(
            f"--from {named}: {absent(name, [within])}. It comes as {forms(entry)}. "
            f"To get it, {entry.by_hand}"
        )
    return place


def _single(entry: Entry, file: Path) -> Place | None:
    """One file that is all of a dataset."""
    for source in (entry.ready, *entry.sources):
        if len(source.files) == 1 and fnmatch(file.name, source.files[0]):
            return Place(entry, source, [[file]])
    return None


@contextmanager
def _unpacked(archive: Path, entry: Entry) -> Iterator[Path]:
    """The files of a tar archive that a dataset may come in, for a while, in a folder."""
    patterns = {Path(file).name for source in entry.sources for file in source.files}
    with tempfile.TemporaryDirectory() as folder, _named(folder, archive):
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if any(fnmatch(Path(member.name).name, pattern) for pattern in patterns):
                        _unpack(tar, member, Path(folder))
                _read_to_end(tar)
        except Exception as error:  # as with any other file
            raise DataError(
                f"{archive} cannot be unpacked: {reason(error)}; download it again"
            ) from error
        yield Path(folder)


@contextmanager
def _named(folder: str, archive: Path) -> Iterator[None]:
    """Errors within name the archive, not the folder where its files are for a while."""
    try:
        yield
    except DataError as error:
        raise type(error)(str(error).replace(folder, str(archive))) from error


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Only plain files, by their own names: a path in an archive may lead anywhere."""
    if not member.isfile():
        return
    if member.size > MOST_BYTES:
        raise ValueError(f"{member.name} is too large")
    content = tar.extractfile(member)
    assert content is not None  # it is a plain file
    within = folder / Path(member.name).parent.name.replace("..", "")
    within.mkdir(exist_ok=True)
    with (within / Path(member.name).name).open("wb") as file:
        while chunk := content.read(1 << 20):
            file.write(chunk)


def _read_to_end(tar: tarfile.TarFile) -> None:
    """Past the last member, where `tarfile` stops: a checksum comes only after it.

    A member that cannot be read looks like the end, too; but the end is a block of zeros.
    """
    file = cast(BinaryIO, tar.fileobj)
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise ValueError("it ends early, or a part of it is damaged")
    while file.read(1 << 20):
        pass


# --- whole or not at all --------------------------------------------------------------------------


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Nobody else gets it meanwhile; what one who was killed left behind is removed."""
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems lock no folders: then nothing is removed
            fcntl.flock(handle, fcntl.LOCK_EX)
            for name in (target.name, CHECKSUMS):
                for left in target.parent.glob(f".{name}-*.part"):
                    left.unlink()
        yield
    finally:
        os.close(handle)  # and with it the lock, as when the process ends


def _keep(raw: Raw, target: Path) -> None:
    """The data and its checksum; between them there is none, never another file's."""
    sums = target.parent / CHECKSUMS

    def fill(file: BinaryIO) -> None:
        npz.write(raw, file)
        sums.unlink(missing_ok=True)

    content = json.dumps({target.name: _write(target, fill)}, indent=2) + "\n"
    _write(sums, lambda file: file.write(content.encode()))


def _write(target: Path, fill: Callable[[BinaryIO], object]) -> str:
    """Write under another name, then rename; returns the checksum."""
    # Named before it is made: however early Ctrl-C comes, it is known what to remove.
    part = target.with_name(f".{target.name}-{uuid4().hex[:8]}.part")
    try:
        with part.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        digest = _digest(part)
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink()  # there only if something went wrong, or Ctrl-C
    return digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
