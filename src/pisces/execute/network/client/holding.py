"""Finished results on a client's disk, until the server says that it has them.

One file per result: a line of JSON, then its bytes as they travel. It is written beside and
renamed, so that it is there whole or not at all; what is damaged nevertheless is put aside.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pisces.errors import RunError
from pisces.execute.network.messages import Content, Result
from pisces.types import Report

log = logging.getLogger("pisces")

MOST_HELD = 100
KEPT_S = 7 * 24 * 3600.0  # results of another run: nobody may ever come for them
CONTENT = ("encoding", "num_bytes", "zstd", "scale")
HELD, DAMAGED, PART = ".held", ".damaged", ".part"


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A finished result of a run."""

    run: str
    result: Result
    data: memoryview | bytes

    @property
    def task(self) -> int:
        """Whose result it is."""
        return self.result.task


def default_folder(name: str, authority: bytes) -> Path:
    """Where a client of that name, known to that authority, keeps its results."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    digest = hashlib.sha256(authority + b"/" + name.encode()).hexdigest()[:12]
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:64]
    return Path(home) / "pisces" / "held" / f"{safe}-{digest}"


class Holding:
    """A folder of results, of one process at a time, and one thread."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._lock = _locked(folder)
        for path in folder.glob(f"*{PART}"):  # a crash left it
            path.unlink(missing_ok=True)

    def keep(self, held: Held, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Put a result on the disk, as long as it is wanted; False: the disk refuses."""
        if not is_wanted():
            return True
        path = self._path(held.run, held.task)
        beside = path.with_suffix(PART)
        try:
            self._write(held, beside)
            if is_wanted():  # writing takes long
                beside.replace(path)
            else:
                beside.unlink()
        except OSError as error:
            log.warning("the result of task %d is in memory only: %s", held.task, error)
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            return False
        self._bound()
        return True

    def _write(self, held: Held, path: Path) -> None:
        # An update tells of the data it comes from: it is nobody else's business.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_header(held))
            file.write(held.data)
            file.flush()
            os.fsync(file.fileno())

    def forget(self, run: str, task: int) -> None:
        """Nobody needs this one any more."""
        with suppress(OSError):
            self._path(run, task).unlink(missing_ok=True)

    def tasks(self, run: str) -> list[int]:
        """Whose results of a run are there."""
        start = f"{_digest(run)}-"
        stems = [path.stem for path in self._files() if path.name.startswith(start)]
        tasks = [stem.removeprefix(start) for stem in stems]
        # Whatever else somebody put there is none of ours.
        return sorted(
            int(task) for task in tasks if task.isascii() and task.isdecimal() and len(task) < 19
        )

    def latest_run(self) -> str:
        """The run of the newest result; empty: there is none."""
        for path in reversed(self._files()):
            held = self._read(path)
            if held is not None:
                return held.run
        return ""

    def read(self, run: str, task: int) -> Held | None:
        """One result, whole; None: it is not there, or damaged."""
        path = self._path(run, task)
        held = self._read(path) if path.exists() else None
        return held if held is not None and (held.run, held.task) == (run, task) else None

    def tidy(self, run: str) -> None:
        """Remove what is damaged or of other runs than this, if nobody came for it for long."""
        old, ours = self._clock() - KEPT_S, f"{_digest(run)}-"
        others = [path for path in self._files() if not path.name.startswith(ours)]
        for path in (*others, *self._folder.glob(f"*{DAMAGED}")):
            with suppress(OSError):
                if path.stat().st_mtime < old:
                    path.unlink()

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()

    def _path(self, run: str, task: int) -> Path:
        return self._folder / f"{_digest(run)}-{task}{HELD}"

    def _files(self) -> list[Path]:
        """The oldest first."""
        found: list[tuple[float, Path]] = []
        for path in self._folder.glob(f"*-*{HELD}"):
            with suppress(OSError):  # forgotten this moment
                found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found)]

    def _read(self, path: Path) -> Held | None:
        try:
            return _parsed(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s is damaged (%s), and put aside: it is not sent", path, error)
            with suppress(OSError):
                path.replace(path.with_suffix(DAMAGED))
            return None

    def _bound(self) -> None:
        for path in self._files()[:-MOST_HELD]:
            log.warning("more than %d results are held: the oldest is given up", MOST_HELD)
            path.unlink(missing_ok=True)


def _digest(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def _locked(folder: Path) -> BinaryIO:
    """Take the folder for this process, until it ends however it does."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / "lock").open("ab")
    except OSError as error:
        raise RunError(
            f"cannot keep results in {folder}: {error.strerror}; choose another folder to keep them"
        ) from error
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise RunError(
            f"{folder} is in use: another client of this identity runs on this machine; end it, or "
            "give this one an identity (and a folder to keep results in) of its own"
        ) from error
    except (ImportError, OSError):
        pass  # where the system has no such locks, nobody is kept out
    return file


def _header(held: Held) -> bytes:
    result = held.result
    told = {
        "task": result.task,
        "run": held.run,
        "report": asdict(result.report),
        "layout": result.layout,
        "content": {key: getattr(result.content, key) for key in CONTENT},
        "crc32": zlib.crc32(held.data),
    }
    return json.dumps({"told": told, "crc32": _sum_of(told)}).encode() + b"\n"


def _sum_of(told: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(told).encode())


def _parsed(text: bytes) -> Held:
    head, _, data = text.partition(b"\n")
    line = json.loads(head)
    told: dict[str, Any] = line["told"]
    content, report = Content(**told["content"]), Report(**told["report"])
    if len(data) != content.num_bytes:
        raise ValueError(f"{len(data)} bytes, not {content.num_bytes}")
    if zlib.crc32(data) != told["crc32"] or _sum_of(told) != line["crc32"]:
        raise ValueError("the checksum differs")
    return Held(told["run"], Result(told["task"], report, content, told["layout"]), data)
