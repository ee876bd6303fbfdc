"""The journal of a run in real time: what it was told and what it said, to be told again.

    <run>/journal/000001.journal     and so on; a new one begins behind every checkpoint

Records are only ever added. One that a kill cut short is the last one, and nobody was told of it
yet: it is cut off. Any other damage is found before anything is believed (docs/decisions/016).
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pisces.errors import ConfigError, RunError
from pisces.record.segment import HEAD, Place, Record, Segment, framed, made_up
from pisces.record.writer import JOURNAL, refuse_links, sync_folder

log = logging.getLogger("pisces")

SUFFIX = ".journal"
_FILE = re.compile(r"(\d{6,})\.journal")


@dataclass(frozen=True, slots=True)
class Journaling:
    """How a journal is written.

    With `sync` what counts is on the disk itself before anybody is told, so that not even a power
    failure loses it; without, only a kill does not. A segment of `segment_bytes` asks for a
    checkpoint, behind which it is not needed.
    """

    sync: bool = True
    segment_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.segment_bytes < 1:
            raise ConfigError(
                f"a journal's segment_bytes must be at least 1, not {self.segment_bytes}"
            )


class Journal:
    """The journal of a run folder; `made` says what the run is."""

    def __init__(self, run: Path, made: Mapping[str, Any], how: Journaling | None = None) -> None:
        self.made = made
        self.how = how or Journaling()
        self.end = Place()  # what is written next goes behind it
        self._folder = run / JOURNAL
        refuse_links(self._folder, *map(self._path, self._numbers()))
        self._file: BinaryIO | None = None
        self._is_synced = True
        self._is_broken = False

    @property
    def is_full(self) -> bool:
        """Is it time for a checkpoint?"""
        return self._file is not None and self.end.num_bytes >= self.how.segment_bytes

    # --- reading ----------------------------------------------------------------------------------

    def made_then(self) -> Mapping[str, Any] | None:
        """What the run was that wrote the oldest segment; none: there is none."""
        for number in self._numbers():
            with closing(Segment(self._path(number), number)) as segment:
                return segment.made
        return None

    def check(
        self, begin: Place, accepts: Callable[[Record], None] = lambda _record: None
    ) -> Place:
        """Where it ends, if everything behind `begin` is whole; changes nothing.

        `accepts` raises a ValueError that says what is wrong with a record.
        """
        end = begin
        for record in self.records(begin):
            end = record.end
            try:
                accepts(record)
            except ValueError as error:
                path = self._path(end.segment)
                raise RunError(made_up(path, record.at, str(error))) from error
        return end

    def records(self, begin: Place) -> Iterator[Record]:
        """All that was written behind a place, to the last whole record."""
        end = begin
        numbers = [number for number in self._numbers() if number >= begin.segment]
        for number in numbers:
            with closing(Segment(self._path(number), number)) as segment:
                if number == begin.segment:
                    segment.go_to(begin)
                elif segment.follows not in (None, end):
                    raise RunError(self._gap(end, number))
                for record in segment.records():
                    end = record.end
                    yield record
                segment.refuse_rest(is_last=number == numbers[-1])

    def _gap(self, end: Place, number: int) -> str:
        return (
            f"between {self._path(end.segment)}, byte {end.num_bytes}, and "
            f"{self._path(number)} something is missing: put it back, or remove the folder "
            f"{self._folder} to go on from the last checkpoint without what came after it"
        )

    # --- writing ----------------------------------------------------------------------------------

    def append(self, facts: Mapping[str, Any], contents: Sequence[memoryview] = ()) -> None:
        """Write a record and hand it to the system, so that a killed run keeps it."""
        self._refuse_if_broken()
        if self._file is None:
            self._begin()
        self._write(json.dumps(facts).encode(), contents)

    def sync(self) -> None:
        """See to it that what was written is on the disk, if that is wanted."""
        if self._file is None or self._is_synced:
            return
        self._refuse_if_broken()
        try:
            getattr(os, "fdatasync", os.fsync)(self._file.fileno())
        except OSError as error:
            self._is_broken = True  # nobody knows what is there now
            raise _refused(self._path(self.end.segment), error) from error
        self._is_synced = True

    def begin_next(self) -> None:
        """What comes next goes to a new segment."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def remove_before(self, number: int) -> None:
        """Remove the segments before this one: no checkpoint needs them any more."""
        for old in self._numbers():
            if old < number:
                with suppress(OSError):  # then the next one will
                    self._path(old).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def settle(self) -> None:
        """Cut off what a kill left behind the end; what is before it is on the disk from now on."""
        for number in self._numbers():
            try:
                self._cut(number)
            except OSError as error:
                self._is_broken = True  # nobody knows what is there now
                raise _refused(self._path(number), error) from error

    def _cut(self, number: int) -> None:
        path = self._path(number)
        if number > self.end.segment:  # nothing whole is in it
            path.unlink()
        elif number == self.end.segment:
            with path.open("r+b") as file:
                if rest := path.stat().st_size - self.end.num_bytes:
                    log.warning("%s: the last %d bytes, cut short, are cut off", path, rest)
                    file.truncate(self.end.num_bytes)
                os.fsync(file.fileno())

    def _refuse_if_broken(self) -> None:
        if self._is_broken:
            raise RunError(f"the journal {self._folder} could not be written any more")

    def _begin(self) -> None:
        number = self.end.segment + 1
        path = self._path(number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.settle()
            self._file = path.open("xb", buffering=0)
            sync_folder(self._folder)
        except OSError as error:
            raise _refused(path, error) from error
        first = {"follows": list(self.end), "made": self.made}
        self.end = Place(number)
        self._write(json.dumps(first).encode(), [], HEAD)

    def _write(self, text: bytes, contents: Sequence[memoryview], head: bytes = b"") -> None:
        assert self._file is not None
        frame, chain = framed(text, contents, self.end.chain)
        front = head + frame + text
        try:
            for part in (memoryview(front), *contents):
                _write_all(self._file, part)
        except OSError as error:
            self._is_broken = True
            with suppress(OSError):  # make room; what is cut short would be cut off anyhow
                self._file.truncate(self.end.num_bytes)
            raise _refused(self._path(self.end.segment), error) from error
        end = self.end.num_bytes + len(front) + sum(map(len, contents))
        self.end = Place(self.end.segment, end, chain)
        self._is_synced = not self.how.sync

    def _numbers(self) -> list[int]:
        names = (path.name for path in self._folder.glob(f"*{SUFFIX}"))
        return sorted(int(found[1]) for name in names if (found := _FILE.fullmatch(name)))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}{SUFFIX}"


def _write_all(file: BinaryIO, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


def _refused(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write {path}: {error.strerror or error}; nothing was acknowledged that is not "
        "there: make room or mend the permissions, and go on with the run"
    )
