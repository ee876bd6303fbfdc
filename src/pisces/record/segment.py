"""A journal's file: records of JSON and raw bytes, as far as they are whole.

Each record has a checksum, and its frame another one that goes on from the frame before, so nothing
can be missing between two of them. Nothing in it is code.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pisces.errors import RunError

FORMAT = 1  # count up when an older Pisces would misread what is written
HEAD = f"pisces journal {FORMAT}\n".encode()
_HEAD = re.compile(rb"pisces journal (\d{1,9})\n")
# Bytes of JSON, bytes behind it, checksum of both; then a checksum of this and all frames before.
_SIZES, _CHAIN = struct.Struct("<IQI"), struct.Struct("<I")
_FRAME_BYTES = _SIZES.size + _CHAIN.size


class Place(NamedTuple):
    """Behind so many bytes of a segment; `chain` is the checksum up to there."""

    segment: int = 0
    num_bytes: int = 0
    chain: int = 0


class Record(NamedTuple):
    """Facts, bytes that belong to them, the byte it begins at and the place behind it."""

    facts: dict[str, Any]
    content: bytes
    at: int
    end: Place


def framed(text: bytes, contents: Sequence[memoryview], chain: int) -> tuple[bytes, int]:
    """The frame of a record behind one with this checksum, and its own."""
    num_bytes, checksum = 0, zlib.crc32(text)
    for content in contents:
        num_bytes, checksum = num_bytes + len(content), zlib.crc32(content, checksum)
    sizes = _SIZES.pack(len(text), num_bytes, checksum)
    chain = zlib.crc32(sizes, chain)
    return sizes + _CHAIN.pack(chain), chain


class Segment:
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
            self._size = path.stat().st_size
            if not path.is_file():  # a pipe would be waited for without end
                raise OSError("it is no file")
            self._file = path.open("rb")
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            self._begin()
        except RunError:
            self.close()  # nobody else will
            raise

    def _begin(self) -> None:
        self._is_over = not self._read_head()
        first = self._next()
        if first is None:
            return
        made: Any = first.facts.get("made")
        follows: Any = first.facts.get("follows")
        if type(made) is not dict or not _is_place(follows):
            raise RunError(made_up(self._path, first.at, "it does not say what it follows"))
        self.made, self.follows = made, Place(*follows)

    def go_to(self, place: Place) -> None:
        """Go on behind a place."""
        if not 0 <= place.num_bytes <= self._size:
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

    def _unreadable(self, error: OSError) -> RunError:
        return RunError(f"cannot read {self._path}: {error.strerror or error}")

    def _read_head(self) -> bool:
        try:
            line = self._file.readline(40)
        except OSError as error:
            raise self._unreadable(error) from error
        head = _HEAD.fullmatch(line)
        if head is None:
            if len(line) == self._size and HEAD.startswith(line):
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
        try:
            record = None if self._is_over else self._read()
        except OSError as error:
            raise self._unreadable(error) from error
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
        at = self._place.num_bytes
        self._place = self._place._replace(num_bytes=end, chain=chain)
        return Record(self._facts(text, at), content, at, self._place)

    def _facts(self, text: bytes, at: int) -> dict[str, Any]:
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RunError(made_up(self._path, at, "it is no JSON")) from error
        if type(facts) is not dict:
            raise RunError(made_up(self._path, at, "it is no table"))
        return facts


def made_up(path: Path, at: int, why: str) -> str:
    """What to say of a record that is whole, and is not what a run writes."""
    return (
        f"{path} is not what it should be at byte {at} ({' '.join(why.split())[:200]}): put the "
        f"run's own in its place, or cut it there (truncate -s {at}) to go on without the rest"
    )


def _is_place(value: Any) -> bool:
    return type(value) is list and len(value) == 3 and all(type(n) is int for n in value)
