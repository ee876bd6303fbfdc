"""What pictures of a case are drawn from, and the sheets they are drawn on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pisces.report.arrays import Floats
from pisces.report.band import Curve
from pisces.report.estimate import Estimate, estimate
from pisces.report.printed.paper import ALONE
from pisces.report.printed.sheets import add_legend, sheet_of, tidy
from pisces.report.styles import Style, styles_of
from pisces.study.claims import by_seed
from pisces.study.plan import Case, Study
from pisces.study.records import Column, Record
from pisces.study.runs import TRIAL


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture and what it shows."""

    path: Path
    caption: str


@dataclass(frozen=True, slots=True)
class Material:
    """What there is to draw of one case."""

    study: Study
    case: Case
    records: Sequence[Record]
    is_trial: bool = False

    @property
    def variants(self) -> list[str]:
        """Those that were run, in the study's order."""
        run = {record.variant for record in self.records}
        return [v.name for v in self.study.variants_of(self.case) if v.name in run]

    @property
    def xs(self) -> list[float | None]:
        """The points that were run; one that is no point where nothing is varied."""
        run = {record.x for record in self.records}
        return [x for x in self.study.xs_of(self.case) if x in run]

    @property
    def has_sweep(self) -> bool:
        """Whether points show a course: one does not, nor does one variant of several.

        Where the study has one variant only, two points say no more than the table does.
        """
        num_planned = len(self.study.variants_of(self.case))
        least = 3 if num_planned == 1 else 2
        return len(self.xs) >= least and len(self.variants) >= min(2, num_planned)

    def style(self, variant: str) -> Style:
        """The same for a variant in every picture of the study, for a protocol in all studies."""
        return styles_of(self.study.variant_names)[variant]

    def at(self, variant: str, x: float | None) -> list[Record]:
        """One variant's runs at a point, seed by seed."""
        return [r for r in self.records if (r.variant, r.x) == (variant, x)]

    def estimate(self, variant: str, x: float | None, measure: str) -> Estimate | None:
        """A measure of one variant at a point."""
        return estimate(list(by_seed(self.records, self.case.name, variant, x, measure).values()))

    def title(self, x: float | None) -> str:
        """What a point is called."""
        return "" if x is None else f"{self.study.axis}: {x:g}"

    def over_seeds(self, spread: str, more: str = "") -> str:
        """What stands above a picture of medians; of one seed there are none."""
        has_many = len({record.seed for record in self.records}) > 1
        return self.note((spread if has_many else "one seed") + more)

    def note(self, text: str) -> str:
        """What stands above a picture."""
        return f"{TRIAL}: {text}" if self.is_trial else text


def step_curve(times: Column, values: Column) -> Curve:
    """The instants and values that are numbers."""
    pairs = [(t, v) for t, v in zip(times, values, strict=True) if t is not None and v is not None]
    at, what = np.array(pairs, np.float64).reshape(-1, 2).T
    return at, what


def floats(column: Column) -> Floats:
    """The column as an array, NaN where there is no value."""
    return np.array([math.nan if value is None else value for value in column], np.float64)


# --- paper ----------------------------------------------------------------------------------------


def panel_per_point(material: Material, xlabel: str, ylabel: str) -> tuple[Figure, list[Axes]]:
    """A panel for each point, named after it."""
    xs = material.xs
    figure, panels = sheet(len(xs), xlabel, ylabel.replace("_", " "))
    for axes, x in zip(panels, xs, strict=True):
        axes.set_title(material.title(x), fontsize="medium")
    return figure, panels


def sheet(
    num: int, xlabel: str, ylabel: str, *, sharey: bool = True, bar_rows: int = 0
) -> tuple[Figure, list[Axes]]:
    """Several small panels, or one large one."""
    if num > 1:
        figure, panels = sheet_of(num, "", ylabel, sharey=sharey)
        for axes in panels:  # a label for all of them would lie where the legend goes
            axes.set_xlabel(xlabel, fontsize="small")
    else:
        figure = Figure(figsize=(ALONE[0], 1.2 + 0.3 * bar_rows if bar_rows else ALONE[1]))
        figure.set_layout_engine("constrained")
        panels = [tidy(figure.subplots())]
        panels[0].set(xlabel=xlabel, ylabel=ylabel)
        panels[0].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    return figure, panels


def with_legend(figure: Figure, panels: Sequence[Axes], note: str) -> Figure:
    """With one legend for all panels, and a word on what they show."""
    add_legend(figure, panels[0])
    figure.suptitle(note, fontsize="small")
    return figure
