"""The terminal that progress is shown on: one for all who write there, or views are torn."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment

from pisces.quantities import plain_text

UNKNOWN_WIDTH = 80  # letters


class Screen(Console):
    """A terminal that obeys us, and not what a log, a config or a server has put into a text."""

    @property
    def size(self) -> ConsoleDimensions:
        """On a width of nothing nothing can be shown: who says so does not know it."""
        width, height = super().size
        return ConsoleDimensions(width or UNKNOWN_WIDTH, height)

    @size.setter
    def size(self, new: tuple[int, int]) -> None:
        self._width, self._height = new

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What is printed, with a `?` for each character that is none to look at."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=plain_text(segment.text, but="\n\t"))

    def say(self, text: str, *, style: str | None = None) -> None:
        """A line for whoever sits there, as it is and in one piece."""
        self.print(text, style=style, soft_wrap=True, highlight=False, markup=False, emoji=False)


stderr = Screen(stderr=True)
OUTPUTS = (1, 2)  # as the system knows stdout and stderr


def forget_if_closed() -> None:
    """What goes to a terminal that was closed goes nowhere from now on: it would be an error."""
    for output in OUTPUTS:
        with suppress(OSError):  # there may be no such output
            is_device = stat.S_ISCHR(os.fstat(output).st_mode)
            if is_device and not os.isatty(output):  # a terminal says so only while it is there
                lead_nowhere(output)


def lead_nowhere(output: int) -> None:
    """Whatever is written there from now on, or still waits to be."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)
