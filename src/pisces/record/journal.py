"""The journal of a run in real time: what it was told and what it said, to be told again.

    <run>/journal/000001.journal     and so on; a new one begins behind every checkpoint

Records are only ever added. Each has a checksum that goes on from the one before, so nothing can be
missing between two of them. A record that a kill cut short is the last one and was not believed by
anybody yet: it is cut off. Any other damage is found before anything is believed. Nothing in it is
code (docs/decisions/016).
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pisces.errors import ConfigError, RunError
from pisces.record.writer import sync_folder

log = logging.getLogger("pisces")

FOLDER, SUFFIX = "journal", ".journal"
FORMAT = 1  # count up when an older Pisces would misread what is written
_HEAD = re.compile(rb"pisces journal (\d{1,9})\n")
_FILE = re.compile(r"(\d{6,})\.journal")
# Bytes of JSON, bytes behind it, checksum of both; then a checksum of this and all frames before.
_SIZES, _CHAIN = struct.Struct("<IQI"), struct.Struct("<I")
_FRAME_BYTES = _SIZES.size + _CHAIN.size


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


class Place(NamedTuple):
    """Behind so many bytes of a segment; `chain` is the checksum up to there."""

    segment: int = 0
    num_bytes: int = 0
    chain: int = 0


class Record(NamedTuple):
    """Facts, bytes that belong to them, and the place behind it."""

    facts: dict[str, Any]
    content: bytes
    end: Place


class Journal:
    """The journal of a run folder; `made` says what the run is."""

    def __init__(self, run: Path, made: Mapping[str, Any], how: Journaling | None = None) -> None:
        self.made = made
        self.how = how or Journaling()
        self.end = Place()  # behind all that was read or written
        self._folder = run / FOLDER
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
            with closing(_Segment(self._path(number), number)) as segment:
                return segment.made
        return None

    def check(self, begin: Place) -> Place:
        """Where it ends, if everything behind `begin` is whole; changes nothing."""
        end = begin
        for record in self.records(begin):
            end = record.end
        return end

    def records(self, begin: Place) -> Iterator[Record]:
        """All that was written behind a place, to the last whole record."""
        self.end = begin
        numbers = [number for number in self._numbers() if number >= begin.segment]
        for number in numbers:
            with closing(_Segment(self._path(number), number)) as segment:
                if number == begin.segment:
                    segment.go_to(begin)
                elif segment.follows not in (None, self.end):
                    raise RunError(self._gap(number))
                for record in segment.records():
                    self.end = record.end
                    yield record
                segment.refuse_rest(is_last=number == numbers[-1])

    def _gap(self, number: int) -> str:
        return (
            f"between {self._path(self.end.segment)}, byte {self.end.num_bytes}, and "
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
        self._write(json.dumps(first).encode(), [], f"pisces journal {FORMAT}\n".encode())

    def _write(self, text: bytes, contents: Sequence[memoryview], head: bytes = b"") -> None:
        assert self._file is not None
        num_bytes, checksum = 0, zlib.crc32(text)
        for content in contents:
            num_bytes, checksum = num_bytes + len(content), zlib.crc32(content, checksum)
        sizes = _SIZES.pack(len(text), num_bytes, checksum)
        chain = zlib.crc32(sizes, self.end.chain)
        front = head + sizes + _CHAIN.pack(chain) + text
        try:
            for part in (memoryview(front), *contents):
                _write_all(self._file, part)
        except OSError as error:
            self._is_broken = True
            with suppress(OSError):  # make room; what is cut short would be cut off anyhow
                self._file.truncate(self.end.num_bytes)
            raise _refused(self._path(self.end.segment), error) from error
        end = self.end.num_bytes + len(front) + num_bytes
        self.end = Place(self.end.segment, end, chain)
        self._is_synced = not self.how.sync

    def _numbers(self) -> list[int]:
        names = (path.name for path in self._folder.glob(f"*{SUFFIX}"))
        return sorted(int(found[1]) for name in names if (found := _FILE.fullmatch(name)))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}{SUFFIX}"


class _Segment:
    """Reads one file, as far as it is whole.

    It `follows` a place in another segment; that, and what it was `made` for, is none where not
    even its beginning is whole.
    """

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._place = path, Place(number)
        self._problem: str | None = None  # of what comes next, if that is not just cut short
        self._is_over = False
        self.made: Mapping[str, Any] | None = None
        self.follows: Place | None = None
        try:
            self._file = path.open("rb")
            self._size = path.stat().st_size
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error
        self._is_over = not self._read_head()
        if first := self._next():
            self.made, self.follows = first.facts["made"], Place(*first.facts["follows"])

    def go_to(self, place: Place) -> None:
        """Go on behind a place."""
        if place.num_bytes > self._size:
            raise RunError(f"{self._path} is shorter than when a checkpoint was made: it was cut")
        if place.num_bytes:
            self._place, self._is_over = place, False
            self._file.seek(place.num_bytes)

    def records(self) -> Iterator[Record]:
        """Those that are whole."""
        while record := self._next():
            yield record

    def refuse_rest(self, *, is_last: bool) -> None:
        """Raise if there is more that is not just the last record cut short."""
        rest = self._size - self._place.num_bytes
        if not rest or (is_last and self._problem is None):
            return
        at = self._place.num_bytes
        raise RunError(
            f"{self._path} is damaged at byte {at}: {self._problem or 'it ends too early'}; put a "
            f"good copy in its place, or cut it there (truncate -s {at}) to go on without the rest"
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_head(self) -> bool:
        line = self._file.readline(40)
        head = _HEAD.fullmatch(line)
        if head is None:
            if len(line) == self._size and f"pisces journal {FORMAT}\n".encode().startswith(line):
                return False  # killed while it was begun
            raise RunError(f"{self._path} is damaged: it does not begin as a journal does")
        if int(head[1]) > FORMAT:
            raise RunError(
                f"{self._path} has format {int(head[1])}, and this Pisces knows formats up to "
                f"{FORMAT}: use the Pisces that wrote it"
            )
        self._place = self._place._replace(num_bytes=len(line))
        return True

    def _next(self) -> Record | None:
        """The next record, if there is a whole one."""
        record = None if self._is_over else self._read()
        self._is_over = record is None
        return record

    def _read(self) -> Record | None:
        frame = self._file.read(_FRAME_BYTES)
        if len(frame) < _FRAME_BYTES:
            return None
        sizes, (chain,) = frame[: _SIZES.size], _CHAIN.unpack(frame[_SIZES.size :])
        if chain != zlib.crc32(sizes, self._place.chain):
            if any(frame) or any(self._file.read()):  # zeros are what a power failure leaves
                self._problem = "the checksum of a record's frame is another"
            return None
        num_text, num_content, checksum = _SIZES.unpack(sizes)
        end = self._place.num_bytes + _FRAME_BYTES + num_text + num_content
        if end > self._size:
            return None
        text, content = self._file.read(num_text), self._file.read(num_content)
        if checksum != zlib.crc32(content, zlib.crc32(text)):
            self._problem = "the checksum of a record is another"
            return None
        self._place = self._place._replace(num_bytes=end, chain=chain)
        return Record(json.loads(text), content, self._place)


def _write_all(file: BinaryIO, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


def _refused(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write {path}: {error.strerror or error}; nothing was acknowledged that is not "
        "there: make room or mend the permissions, and go on with the run"
    )
