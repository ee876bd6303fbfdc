"""Live progress of one run or many: a view on a terminal, a display in a notebook, or lines."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from io import StringIO
from typing import Any, Literal

from rich.console import Console
from rich.errors import LiveError
from rich.live import Live

from pisces.cli.boards import Board, Overview
from pisces.cli.console import stderr
from pisces.cli.standing import Standing
from pisces.cli.telling import JsonLines, Sentences, Teller, Words, write
from pisces.record.lines import Line, Recorder
from pisces.stop import Stop
from pisces.types import Entry

REFRESH_S = 0.1  # how often to look
REDRAW_S = 0.25  # drawing costs some milliseconds, which are the run's
NOTEBOOK_S = 0.5
NOTEBOOK_WIDTH = 100

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
        live.start()
    except LiveError:  # another is on the screen: this one would overwrite it
        yield lambda: None
        return
    try:
        yield _now_and_then(live.refresh, REDRAW_S)
    finally:
        with _deaf():  # or a second Ctrl-C would leave the terminal without its cursor
            live.stop()


def _now_and_then(act: Changed, every_s: float) -> Changed:
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


# --- from Python ----------------------------------------------------------------------------------


class Follower(Recorder):
    """Shows a run of a script or a notebook, from its first entry until it is closed."""

    def __init__(self, protocol: str, seed: int, stop: Stop) -> None:
        self._standing = Standing(protocol, seed, stop)
        self._board = Board([self._standing])
        self._held = ExitStack()
        self._listener: Listener | None = None

    def recall(self, line: Line) -> None:
        """What was recorded before the run goes on."""
        self._standing.recall(line)

    def record(self, entry: Entry) -> None:
        """Note the entry; show it now and then."""
        if self._listener is None:
            self._listener = Listener(self._standing, self._held.enter_context(self._shown()))
        self._listener.record(entry)

    def close(self) -> None:
        """Leave the last view where it is."""
        self._held.close()

    @contextmanager
    def _shown(self) -> Iterator[Changed]:
        display = notebook()
        if display is not None:
            yield from _displayed(self._board, display)
            return
        with shown(self._board, manner_of(quiet=False), stays=True) as changed:
            yield changed


def notebook() -> Any:
    """IPython's display, in a notebook; looked for only where IPython runs already."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:  # a terminal, or none at all
        return None
    return import_module("IPython.display")


def _displayed(board: Board, display: Any) -> Iterator[Changed]:
    """One output of a cell, changed in its place."""
    handle = display.display(display.HTML(as_html(board)), display_id=True)

    def draw() -> None:
        handle.update(display.HTML(as_html(board)))

    try:
        yield _now_and_then(draw, NOTEBOOK_S)
    finally:
        draw()


def as_html(board: Board) -> str:
    """The board as a terminal shows it; whatever is in it is escaped."""
    console = Console(
        file=StringIO(),
        record=True,
        width=NOTEBOOK_WIDTH,
        force_jupyter=False,
        legacy_windows=False,
    )
    console.print(board)
    style = "font-family:monospace;white-space:pre;overflow-x:auto;line-height:normal;margin:0"
    return console.export_html(
        code_format=f'<pre style="{style}">{{code}}</pre>', inline_styles=True
    )
