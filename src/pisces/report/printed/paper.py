"""Paper to draw on, and how what was drawn gets into a file.

On a screen a sheet is as large as it likes. In print it is as wide as a column or a page of a
paper, its letters are those of a caption, and its files are what publishers take: fonts embedded
as TrueType, dots where a million shapes would be of no use. The same runs give the same bytes.
"""

from __future__ import annotations

import math
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from pisces.errors import ConfigError
from pisces.quantities import plain_text
from pisces.record.writer import place_file

PANEL = (3.2, 2.7)  # width and height in inches of one of several panels
ALONE = (7.0, 4.0)  # of one that is alone on its sheet
LEGEND_WIDTH, LEGEND_ROW = 6.0, 0.25  # inches: at least so wide, and so high a row
LEGEND_LETTERS, MOST_COLUMNS = 80, 3  # what fits beside each other
BAR_ROW = 0.3  # inches
PNG_DPI, PRINT_DPI = 150, 300
SUFFIXES = (".png", ".svg", ".pdf")
NARROW = 5.0  # inches; below it a sheet is a column of a page, and higher for its width
# Ids in an SVG are otherwise drawn anew each time; type 42 embeds TrueType, as publishers want it.
# Text in an SVG is drawn as shapes: it looks the same wherever it is opened.
REPEATABLE: dict[Any, Any] = {
    "svg.hashsalt": "pisces",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
PRINTED: dict[Any, Any] = {
    "font.size": 8.0,
    "lines.linewidth": 1.2,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
}
_DRAWING = threading.RLock()


@dataclass(frozen=True, slots=True)
class Paper:
    """What is drawn on: a screen, or so many inches in print, where nothing may be wider."""

    width: float | None = None

    @property
    def alone(self) -> tuple[float, float]:
        """Width and height of what is alone on its sheet."""
        if self.width is None:
            return ALONE
        return self.width, self.width * (0.62 if self.width < NARROW else 0.4)

    @property
    def dpi(self) -> int:
        """Of pictures in dots."""
        return PNG_DPI if self.width is None else PRINT_DPI

    def grid(self, num: int) -> tuple[int, int]:
        """Rows and columns of so many panels: a row of up to three, or else about a square."""
        square = math.ceil(math.sqrt(num))
        if self.width is None:
            columns = num if num <= 3 else square
        else:
            most = max(1, int(self.width / 1.6))  # narrower ones cannot be read
            columns = num if num <= most else min(square, most)
        return math.ceil(num / columns), columns

    def sheet(self, rows: int, columns: int) -> tuple[float, float]:
        """Width and height of a sheet of panels."""
        if self.width is None:
            return max(columns * PANEL[0], 4.0), rows * PANEL[1] + 0.4
        return self.width, rows * min(1.7, 0.85 * self.width / columns + 0.3) + 0.3

    def rows(self, num: int) -> tuple[float, float]:
        """Width and height of what has so many rows."""
        if self.width is None:
            return ALONE[0], PANEL[1] / 2 + BAR_ROW * num
        return self.width, 0.75 + 0.2 * num

    def folded(self, text: str) -> str:
        """A title in lines that fit."""
        return text if self.width is None else "\n".join(textwrap.wrap(text, self.letters))

    def with_legend(self, width: float, height: float, rows: int) -> tuple[float, float]:
        """Width and height of a sheet that gets a legend of so many rows."""
        if self.width is None:
            return max(width, LEGEND_WIDTH), height + LEGEND_ROW * rows
        return width, height + 0.16 * rows

    @property
    def letters(self) -> int:
        """How many letters of a legend fit beside each other."""
        return LEGEND_LETTERS if self.width is None else int(12 * self.width)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Around drawing and saving: what matplotlib knows only globally is set for that time.

        One thread draws after the other.
        """
        with _DRAWING, rc_context({**REPEATABLE, **({} if self.width is None else PRINTED)}):
            yield


SCREEN = Paper()


def literal(text: str) -> str:
    """The text as it stands: between two dollar signs matplotlib would read formulas."""
    return plain_text(text, but="\n").replace("$", r"\$")


def drawable(path: str | Path) -> Path:
    """The path, if a picture can be saved there."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"a plot is saved as {' or '.join(SUFFIXES)}, not {path.name!r}: change its suffix"
        )
    return path


def save(figure: Figure, path: Path, paper: Paper = SCREEN) -> None:
    """Write the picture, and its folder if need be, so that it is there whole or not at all."""
    place_file(path, in_bytes(figure, path.suffix.lower().removeprefix("."), paper))


def in_bytes(figure: Figure, kind: str, paper: Paper = SCREEN) -> bytes:
    """The picture as a file of this kind holds it; no dates, so that it is the same each time."""
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    content = BytesIO()
    with paper.drawing():
        figure.savefig(content, format=kind, dpi=paper.dpi, metadata=undated.get(kind))
    return content.getvalue()
