"""On a node of a cluster: makes one run, in a process of its own, and says what it has written."""

from __future__ import annotations

import fcntl
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pisces.errors import RunError
from pisces.many.jobs import Job
from pisces.many.processes import interrupt_children, make_run, prepare
from pisces.progress.showing import REFRESH_S
from pisces.record.writer import EVENTS
from pisces.train.elsewhere import Raised

MOST_AT_ONCE = 8 << 20  # bytes of files in one answer
PREFIX, LOCK = "pisces-run-", ".held"  # of folders on other nodes


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file of a run folder."""

    path: str
    at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class News:
    """What a run has written since it was last asked; `over` when that is all there will be."""

    pieces: tuple[Piece, ...] = ()
    over: bool = False
    error: Raised | None = None
    interrupted: bool = False
    was_killed: bool = False


class Outpost:
    """Makes a run on its node, and says how it goes."""

    def __init__(self) -> None:
        _sweep()
        self._above = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._held = (self._above / LOCK).open("wb")  # as long as this process lives
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._sent: dict[Path, int] = {}

    def begin(self, job: Job, software: str) -> News:
        """Begin it, in a process that can be interrupted."""
        from pisces.train import hands  # torch is slow to import

        try:
            hands.check_software(software, "of the comparison")
        except RunError as error:
            self.leave()
            return News(over=True, error=Raised.of(error))
        self._folder = self._above / job.out.name
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=prepare)
        cores = job.config.train.workers or 1
        self._run = self._pool.submit(make_run, replace(job, out=self._folder), cores)
        return News()

    def look(self) -> News:
        """What is new, after a moment: of the log while it goes on, then of all files."""
        wait([self._run], REFRESH_S)
        over = self._run.done()
        pieces = tuple(self._new(over))
        if not over or any(self._left(path) for path in self._files(over)):
            return News(pieces)
        error = self._run.exception()
        self._pool.shutdown()
        self.leave()
        if isinstance(error, BrokenProcessPool):
            return News(over=True, was_killed=True)
        if isinstance(error, Exception):
            return News(pieces, over=True, error=Raised.of(error))
        return News(pieces, over=True, interrupted=error is not None)

    def interrupt(self) -> News:
        """Have the run end early, with what there is so far."""
        interrupt_children()
        return News()

    def leave(self) -> News:
        """Leave nothing behind on this node."""
        shutil.rmtree(self._above, ignore_errors=True)
        return News()

    def _files(self, over: bool) -> list[Path]:
        files = self._folder.rglob("*") if over else [self._folder / EVENTS]
        return [path for path in files if path.is_file()]

    def _left(self, path: Path) -> int:
        return path.stat().st_size - self._sent.get(path, 0)

    def _new(self, over: bool) -> Iterator[Piece]:
        room = MOST_AT_ONCE
        for path in self._files(over):
            at = self._sent.get(path, 0)
            with path.open("rb") as file:
                file.seek(at)
                content = file.read(room)
            if content or path not in self._sent:
                self._sent[path] = at + len(content)
                room -= len(content)
                yield Piece(str(path.relative_to(self._folder)), at, content)
            if not room:
                return


def _sweep() -> None:
    """Remove what workers left on this node that were killed: nobody holds it any more."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError), lock.open("rb") as file:  # or it is somebody else's
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
