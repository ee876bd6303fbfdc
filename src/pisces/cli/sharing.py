"""What `pisces report` writes for others: a page, pictures in print quality, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pisces.cli.console import warn
from pisces.errors import ConfigError
from pisces.record.reader import Run
from pisces.report.goal import Goal

PAGE_WIDTH = "page"


def _of_kind(what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="PLACE", help=what)
    return option


Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="All on one page, to mail or attach; opens offline."),
]
Png = Annotated[Path | None, _of_kind("Figures as PNG, 300 dots per inch.")]
Svg = Annotated[Path | None, _of_kind("Figures as SVG.")]
Pdf = Annotated[Path | None, _of_kind("Figures as PDF, fonts embedded.")]
Csv = Annotated[
    Path | None,
    typer.Option("--csv", metavar="PLACE", help="The numbers behind each figure."),
]
Figures = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this figure; may be said again. Default: all."),
]
Width = Annotated[
    str | None, typer.Option(help="Of figures: column (3.3 inches), page (7) or inches.")
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which files were asked for; `places` are folders or files, by kind."""

    html: Path | None
    places: Mapping[str, Path]
    names: Sequence[str]
    width: str | None

    @classmethod
    def of(
        cls,
        html: Path | None,
        places: Mapping[str, Path | None],
        names: Sequence[str] | None,
        width: str | None,
    ) -> Wanted:
        """As the options say; those that go with nothing are refused."""
        given = {kind: place for kind, place in places.items() if place is not None}
        kinds = [f"--{kind}" for kind in places]
        if names and not given:
            raise ConfigError(f"--figure goes with {', '.join(kinds)}: give one of them")
        if width is not None and not given.keys() - {"csv"}:
            raise ConfigError(f"--width goes with {', '.join(kinds[:-1])}: give one of them")
        return cls(html, given, names or (), width)

    @property
    def is_page(self) -> bool:
        """Was a page asked for, and nothing else?"""
        return self.html is not None and not self.places

    def __bool__(self) -> bool:
        return self.html is not None or bool(self.places)


def write(wanted: Wanted, runs: Sequence[Run], goal: Goal) -> list[str]:
    """Write what was asked for; says on stderr what was left out, and why."""
    from pisces.report.printed.gallery import Material
    from pisces.report.printed.share import share, width_of

    width = width_of(wanted.width or PAGE_WIDTH)
    material = Material(runs, goal)
    written: list[Path] = []
    if wanted.html is not None:
        from pisces.report.page import write_page

        write_page(wanted.html, runs, goal)
        written.append(wanted.html)
    missing: dict[str, None] = {}
    for kind, place in wanted.places.items():
        files, left_out = share(material, kind, place, wanted.names, width)
        written += files
        missing |= dict.fromkeys(left_out)
    for words in missing:
        warn(f"left out: {words}")
    return [str(path) for path in written]
