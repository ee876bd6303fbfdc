"""A run of a script or a notebook, shown while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from io import StringIO
from typing import Any

from rich.console import Console

from pisces.progress.boards import Board
from pisces.progress.showing import Changed, Listener, manner_of, now_and_then, shown
from pisces.progress.standing import Standing
from pisces.record.lines import Line, Recorder
from pisces.stop import Stop
from pisces.types import Entry

NOTEBOOK_S = 0.5
NOTEBOOK_WIDTH = 100


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
        yield now_and_then(draw, NOTEBOOK_S)
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
