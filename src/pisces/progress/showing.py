"""Live progress of one run or many: a view on a terminal, or lines."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal

from rich.errors import LiveError
from rich.live import Live

from pisces.progress.boards import Board, Overview
from pisces.progress.screen import stderr
from pisces.progress.standing import Standing
from pisces.progress.telling import JsonLines, Sentences, Teller, Words, write
from pisces.record.lines import Recorder
from pisces.types import Entry

REFRESH_S = 0.1  # how often to look
REDRAW_S = 0.25  # drawing costs some milliseconds, which are the run's

Manner = Literal["live", "lines", "json", "none"]
Changed = Callable[[], None]


def manner_of(*, quiet: bool, as_json: bool = False) -> Manner:
    """How to show progress: what was asked for, and else what stderr is made for."""
    if quiet:
        return "none"
    if as_json:
        return "json"
    is_watched = stderr.is_interactive and stderr.file.isatty()
    return "live" if is_watched else "lines"


class Listener(Recorder):
    """Keeps a standing up to date while a run goes on in this process."""

    def __init__(self, standing: Standing, changed: Changed) -> None:
        self._standing = standing
        self._changed = changed
        self._told_at = 0.0

    def record(self, entry: Entry) -> None:
        """Note the entry; tell now and then."""
        self._standing.note(entry)
        now = time.monotonic()
        if now - self._told_at >= REFRESH_S or self._standing.reason:
            self._told_at = now
            self._changed()

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def shown(
    board: Board | Overview, manner: Manner, *, by_itself: bool = False, stays: bool = False
) -> Iterator[Changed]:
    """Show the board on stderr while it changes; gives what is to be called when it may have.

    `by_itself` a view is drawn anew every now and then as well; one that `stays` is left on the
    screen at the end.
    """
    if manner == "none":
        yield lambda: None
    elif manner == "live":
        with _live(board, by_itself=by_itself, stays=stays) as changed:
            yield changed
    else:
        yield from _told(board, JsonLines() if manner == "json" else Sentences())


def _told(board: Board | Overview, words: Words) -> Iterator[Changed]:
    teller = Teller(board.whole, words, write)
    try:
        yield teller.tell
    finally:
        teller.tell()


@contextmanager
def _live(board: Board | Overview, *, by_itself: bool, stays: bool) -> Iterator[Changed]:
    live = Live(
        board,
        console=stderr,
        auto_refresh=by_itself,
        refresh_per_second=1 / REDRAW_S,
        transient=not stays,
    )
    try:
        _unless_closed(live.start)
    except LiveError:  # another is on the screen: this one would overwrite it
        yield lambda: None
        return
    try:
        yield now_and_then(partial(_unless_closed, live.refresh), REDRAW_S)
    finally:
        with _deaf():  # or a second Ctrl-C would leave the terminal without its cursor
            _unless_closed(live.stop)


def _unless_closed(draw: Changed) -> None:
    """A run does not end because its terminal is gone."""
    with suppress(OSError):
        draw()


def now_and_then(act: Changed, every_s: float) -> Changed:
    """Does it when it is called, but no more often than that."""
    due = 0.0

    def changed() -> None:
        nonlocal due
        if time.monotonic() >= due:
            act()
            due = time.monotonic() + every_s

    return changed


@contextmanager
def _deaf() -> Iterator[None]:
    """Nothing interrupts this; only the main thread ever hears of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
