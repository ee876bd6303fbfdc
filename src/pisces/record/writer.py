"""Writing a run folder: `config.toml` and `events.jsonl` as the run goes, the rest at its end."""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO

from pisces.errors import RunError
from pisces.record.behind import AtOnce, Behind, Log
from pisces.record.lines import Line, encode, line, plain
from pisces.record.sample import KIND, Sample
from pisces.types import Entry

if TYPE_CHECKING:
    import torch

CONFIG = "config.toml"
EVENTS = "events.jsonl"
CLIENTS = "clients.jsonl"  # who is who, where clients came over a network
SUMMARY = "summary.json"
MODEL = "model.safetensors"
CHECKPOINTS = "checkpoints"
JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log is: its length, and a checksum of it."""

    num_bytes: int = 0
    crc32: int = 0

    def after(self, text: bytes) -> Position:
        """The position behind more text."""
        return Position(self.num_bytes + len(text), zlib.crc32(text, self.crc32))

    def as_json(self) -> dict[str, int]:
        """Its values by name."""
        return {"num_bytes": self.num_bytes, "crc32": self.crc32}


class RunFolder:
    """A recorder that writes `events.jsonl`, and the rest of the run folder around it.

    While it is open, no other process can write there.
    """

    def __init__(self, path: Path, events: BinaryIO, *, is_new: bool = False) -> None:
        self.path, self._is_new = path, is_new
        self.position = Position()
        self._events = events
        self._log: Log = AtOnce(events)
        self._sample: Sample | None = None

    @classmethod
    def create(cls, path: str | Path, config_text: str) -> RunFolder:
        """Make the folder and its parents; one that holds anything already is refused."""
        path = Path(path)
        with _writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunError(f"{path} is not empty: choose another folder{_or_go_on(path)}")
            events = (path / EVENTS).open("xb")  # who opens it first owns the folder
            _lock(events, path)
            _replace(path / CONFIG, config_text.encode())
            return cls(path, events, is_new=True)

    @classmethod
    def reopen(cls, path: str | Path) -> RunFolder:
        """A folder to go on in, left as it is so far; one that is in use is refused."""
        path = Path(path)
        refuse_links(path / EVENTS)
        try:
            events = (path / EVENTS).open("r+b")
        except OSError as error:
            why = error.strerror or error
            raise RunError(f"{path} holds no run to go on with: {EVENTS}: {why}") from error
        try:
            _lock(events, path)
        except RunError:
            events.close()
            raise
        return cls(path, events)

    def write_behind(self) -> None:
        """From the first line on let a thread write, so that nobody waits for a slow disk."""
        self._log = Behind(self._events)

    def write_sample(self, share: float) -> None:
        """From the first line on write those of a share of the clients; a log keeps its share."""
        share = _share_of(self.path / EVENTS) or share
        self._sample = Sample(share) if share < 1 else None

    @property
    def is_sampled(self) -> bool:
        """Are only the lines of some clients written?"""
        return self._sample is not None

    @property
    def is_finished(self) -> bool:
        """Has the run come to its end, be it for now?"""
        return (self.path / SUMMARY).exists()

    def abandon(self) -> None:
        """The run cannot begin: leave nothing behind, if the folder was made for it."""
        if self._is_new and self.position == Position():
            with suppress(OSError):
                (self.path / CONFIG).unlink()
                (self.path / EVENTS).unlink()
                self.path.rmdir()

    def holds(self, position: Position) -> bool:
        """Does the log begin as it did when it was at this position?"""
        found = Position()
        with (self.path / EVENTS).open("rb") as file:
            while found.num_bytes < position.num_bytes:
                text = file.read(min(1 << 20, position.num_bytes - found.num_bytes))
                if not text:
                    return False
                found = found.after(text)
        return found == position

    def go_on_from(self, position: Position, config_text: str) -> Iterator[Line]:
        """Cut the log to this position, and give what is left of it.

        What was written when the run was over goes first: it is not over any more.
        """
        with _writing(self.path):
            (self.path / SUMMARY).unlink(missing_ok=True)
            (self.path / MODEL).unlink(missing_ok=True)
            _replace(self.path / CONFIG, config_text.encode())
            self._events.truncate(position.num_bytes)
            self._events.seek(position.num_bytes)
        self.position = position
        with (self.path / EVENTS).open("rb") as file:
            for text in file:
                line = json.loads(text)
                if self._sample is not None:
                    self._sample.recall(line)
                yield line

    def sync(self) -> None:
        """See to it that what was recorded is on the disk."""
        with _writing(self.path / EVENTS):
            self._log.flush()
            os.fsync(self._events.fileno())

    def record(self, entry: Entry) -> None:
        """Write one line; where it is not left to a thread, a killed run keeps it."""
        if self._sample is not None:
            if self.position == Position():
                self._write(self._sample.header)
            written = self._sample.of(entry)
            if written is None:
                return
            entry = written
        self._write(line(entry))

    def _write(self, line: Line) -> None:
        text = encode(line)
        try:
            self._log.write(text)
            self.position = self.position.after(text)
        except OSError as error:
            raise _refused(self.path / EVENTS, error) from error

    def finish(
        self, summary: Mapping[str, Any], state_dict: Mapping[str, torch.Tensor], wall_s: float
    ) -> None:
        """Write the model, then the summary: a folder with a summary is complete."""
        import safetensors.torch  # here, because the reader shares this file and needs no torch

        # Tied tensors share memory, which safetensors refuses: each name gets its own copy.
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in state_dict.items()}
        text = json.dumps(plain({**summary, "wall_s": wall_s}), indent=2, allow_nan=False)
        with _writing(self.path):
            self._log.flush()  # a folder with a summary has its whole log
            _replace(self.path / MODEL, safetensors.torch.save(tensors))
            _replace(self.path / SUMMARY, text.encode() + b"\n")

    def close(self) -> None:
        """Close `events.jsonl`."""
        with _writing(self.path / EVENTS):
            self._log.close()


def _share_of(path: Path) -> float | None:
    """Of how many clients a log tells; nothing where it is empty, or its first line is no line."""
    with path.open("rb") as file, suppress(ValueError, RecursionError):
        first = json.loads(file.readline())
        if type(first) is dict:
            share = first.get("share") if first.get("kind") == KIND else 1.0
            return share if type(share) is float and 0 < share <= 1 else None
    return None


def refuse_links(*paths: Path) -> None:
    """Refuse to go on where one of these is a link: a run writes to its own folder, nowhere else.

    Whoever packed a folder may have put a link to anything there.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{path} is a link, and a run is written only to its own folder: put what it leads "
                "to in its place"
            )


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, and its folder if need be, so that it is there whole or not at all."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)


def place_file(path: Path, content: bytes) -> None:
    """The same where people keep files of their own: only an ordinary file is replaced."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no ordinary file"
            raise RunError(f"cannot write {path}: it is {what}; choose another name")
        _replace(path, content, path.with_name(f".{path.name[:100]}.{token_hex(4)}.part"))


def sync_folder(path: Path) -> None:
    """See to it that the names in a folder are on the disk, where the system can."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep others from writing there until this process closes the file, or ends however it does.

    Where the system has no such locks, nobody is kept.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunError(
            f"{path} is in use: another process writes there; wait for its end, or end it"
        ) from error
    except (ImportError, OSError):
        return


def _or_go_on(path: Path) -> str:
    if not (path / EVENTS).exists():
        return ""
    with suppress(OSError):
        if b"made_in" in read_file(path / CONFIG):
            return ", or go on with its run: resume=True"
    command = "serve --resume" if (path / CLIENTS).exists() else "resume"
    return f", or go on with its run: pisces {command} {path}"


def read_file(path: Path, most_bytes: int | None = None) -> bytes:
    """All of a file, if it is one, and not larger than it may be."""
    with open_file(path) as file:
        content = file.read(-1 if most_bytes is None else most_bytes + 1)
    if most_bytes is not None and len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
    return content


def open_file(path: Path) -> BinaryIO:
    """A file to be read, if it is one: from a pipe nothing might ever come."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    return os.fdopen(number, "rb")


def _replace(path: Path, content: bytes, beside: Path | None = None) -> None:
    """Write a file so that it is there whole or not at all."""
    beside = beside or path.with_name(path.name + ".part")
    try:
        beside.unlink(missing_ok=True)  # a crash has left it, or it is a link to elsewhere
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the system refuses into an error the user can mend."""
    try:
        yield
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write {path}: {error.strerror or error}; "
        "make room, mend the permissions or choose another folder"
    )
