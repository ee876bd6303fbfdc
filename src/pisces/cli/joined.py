"""How far a client is, as `pisces join` shows it: a status, lines in a log, JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from pisces.progress.screen import stderr
from pisces.progress.showing import Manner
from pisces.progress.telling import JsonLines, Sentences, write
from pisces.record.lines import plain

if TYPE_CHECKING:
    from pisces.client import Progress

Tell = Callable[["Progress"], None]


class StatusLine:
    """Says where a client stands, and knows where it stood last."""

    def __init__(self) -> None:
        self.last: Progress | None = None
        self._tell: Tell = lambda _progress: None

    def update(self, progress: Progress) -> None:
        """Where it stands now; called in another thread."""
        self.last = progress
        self._tell(progress)

    @contextmanager
    def shown(self, manner: Manner) -> Iterator[None]:
        """Show it on stderr meanwhile."""
        if manner == "live":
            with stderr.status("connecting") as status:
                self._tell = lambda progress: status.update(escape(line(progress)))
                yield
            return
        if manner == "lines":
            self._tell = NowAndThen(line, Sentences().every_s, write).tell
        elif manner == "json":
            self._tell = NowAndThen(as_json, JsonLines().every_s, write).tell
        yield


class NowAndThen:
    """One line when the client is connected, again or at first, and one every few seconds.

    That it is not connected is a warning in the log, and how it ended is its result.
    """

    def __init__(
        self,
        words: Callable[[Progress], str],
        every_s: Callable[[float], float],
        write: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words, self._every_s, self._write, self._now = words, every_s, write, now
        self._began_at = now()
        self._due_at = self._began_at + every_s(0.0)
        self._state = "connecting"

    def tell(self, progress: Progress) -> None:
        """Say where it stands, if that is news or was not said for a while."""
        now = self._now()
        is_news = progress.state == "connected" != self._state
        self._state = progress.state
        if is_news or (now >= self._due_at and progress.state != "over"):
            self._write(self._words(progress))
            self._due_at = now + self._every_s(now - self._began_at)


def line(p: Progress) -> str:
    """Progress in words."""
    state = {
        "connecting": "connecting",
        "connected": f"connected as client {p.number}",
        "retrying": f"{p.reason}; again in {p.retry_s:.1f} s",
        "over": p.reason,
    }[p.state]
    doing = "idle" if p.task is None else f"task {p.task} of version {p.version}"
    loss = "" if p.loss is None else f", last loss {p.loss:.4g}"
    return f"{state}: {doing}, done {p.num_done}, held {p.num_held}{loss}"


def as_json(p: Progress) -> str:
    """Progress for a program."""
    return json.dumps(plain({"kind": "progress", **asdict(p)}))
