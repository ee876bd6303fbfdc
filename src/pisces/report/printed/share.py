"""What people share of runs: single pictures in print quality, and the numbers behind them.

from pisces.report.printed.share import picture, table

runs = [pisces.load("runs/demo/pisces-seed1")]
picture(runs, "timeline", "timeline.pdf", width=3.3)
table(runs, "timeline", "timeline.csv")
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pisces.errors import ConfigError, RunError
from pisces.record.reader import Run
from pisces.record.writer import place_file
from pisces.report.goal import Goal
from pisces.report.printed.gallery import PICTURES, Columns, Material, chosen, drawn
from pisces.report.printed.paper import Paper, drawable, save

WIDTHS = {"column": 3.3, "page": 7.0}  # inches of what most papers have
NARROWEST, WIDEST = 2.0, 40.0
KINDS = ("png", "svg", "pdf", "csv")
# What people call files of pictures and numbers: who gives such a name does not mean a folder.
FILES = (*KINDS, "jpg", "jpeg", "gif", "webp", "eps", "ps", "tif", "tiff", "html", "tsv", "xlsx")
# A cell that begins so is a formula to a spreadsheet, and names come from whoever made the run.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def picture(
    runs: Sequence[Run],
    name: str,
    path: str | Path,
    goal: Goal | None = None,
    *,
    width: float = WIDTHS["page"],
) -> None:
    """Draw the figure of that name to a PNG, SVG or PDF file, so many inches wide.

    Without a goal it is what the runs are about.
    """
    path, material = drawable(path), Material(runs, goal or Goal.of(runs))
    chosen([name], material)
    writer = _writer("", name, material, path, width_of(width))
    if writer is None:
        raise _nothing_of(name)
    writer()


def table(
    runs: Sequence[Run],
    name: str,
    path: str | Path,
    goal: Goal | None = None,
) -> None:
    """Write the numbers behind the figure of that name to a CSV file."""
    material = Material(runs, goal or Goal.of(runs))
    chosen([name], material)
    write_csv(Path(path), PICTURES[name].columns(material))


def share(
    material: Material, kind: str, place: Path, names: Sequence[str], width: float
) -> tuple[list[Path], list[str]]:
    """Write figures, or the numbers behind them, to a folder or, of one, to a file.

    Says which files were written, and what was left out and why. Where one that was named cannot be
    made, nothing is written.
    """
    pictures = chosen(names, material)
    paths = _places(kind, place, list(pictures), is_chosen=bool(names))
    writers: dict[Path, Callable[[], None]] = {}
    left_out = {} if names else _left_out(material)
    for name, path in paths.items():
        writer = _writer(kind, name, material, path, width)
        if writer is not None:
            writers[path] = writer
        elif names:
            raise _nothing_of(name)
        else:
            left_out.setdefault(pictures[name].empty, []).append(name)
    for write in writers.values():
        write()
    return [*writers], [f"{', '.join(which)}: {why}" for why, which in left_out.items()]


def _nothing_of(name: str) -> RunError:
    return RunError(f"figure {name!r}: {PICTURES[name].empty}; choose another")


def _left_out(material: Material) -> dict[str, list[str]]:
    """Which figures are not drawn of these runs, by why."""
    found: dict[str, list[str]] = {}
    for name, picture in PICTURES.items():
        if why := picture.missing(material):
            found.setdefault(why, []).append(name)
    return found


def width_of(text: str | float) -> float:
    """Inches: `column`, `page` or a number of them."""
    try:
        width = WIDTHS.get(str(text)) or float(text)
    except ValueError:
        width = 0.0
    if not NARROWEST <= width <= WIDEST:
        raise ConfigError(
            f"a figure is as wide as a column (3.3 inches), a page (7) or {NARROWEST:g} to "
            f"{WIDEST:g} inches, not {text!r}: say --width column, page or a number"
        )
    return width


def write_csv(path: Path, columns: Columns) -> None:
    """Columns as a CSV file; an empty cell is what is not known."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(v) for v in row] for row in zip(*columns.values(), strict=True))
    place_file(path, text.getvalue().encode(errors="replace"))


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value != value:
        return None
    if not isinstance(value, str):
        return value
    # A carriage return would begin another row: csv does not quote it.
    return ("'" if value.startswith(FORMULAS) else "") + value.replace("\r", " ")


def _writer(
    kind: str, name: str, material: Material, path: Path, width: float
) -> Callable[[], None] | None:
    """What writes the figure, or its numbers, to the file; None where there is nothing."""
    if kind == "csv":
        columns = PICTURES[name].columns(material)
        return partial(write_csv, path, columns) if any(map(len, columns.values())) else None
    paper = Paper(width)
    figure = drawn(name, material, paper)
    return None if figure is None else partial(save, figure, path, paper)


def _places(kind: str, place: Path, names: Sequence[str], *, is_chosen: bool) -> dict[str, Path]:
    """A path for each: in a folder, or the file itself where there is one figure."""
    if str(place) == "-":
        raise ConfigError(f"--{kind} writes files, and not to stdout: name a folder or a file")
    suffix = place.suffix.lower().removeprefix(".")
    if suffix in FILES and suffix != kind:
        raise ConfigError(f"--{kind} writes .{kind} files, not {place.name!r}: change its suffix")
    if suffix != kind:
        if place.exists() and not place.is_dir():
            raise RunError(f"{place} is a file: give --{kind} a folder, or a name in .{kind}")
        return {name: place / f"{name}.{kind}" for name in names}
    if place.is_dir():
        raise RunError(
            f"{place} is a folder: give --{kind} a folder without that suffix, or a file"
        )
    if not is_chosen or len(names) != 1:
        raise ConfigError(
            f"{place} can hold one figure: say which with --figure ({', '.join(names)}), or give "
            f"--{kind} a folder"
        )
    return {names[0]: place}
