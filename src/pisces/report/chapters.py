"""What the page tells, chapter by chapter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pisces.quantities import begun, how_many, listed
from pisces.record.reader import Run
from pisces.report import figures
from pisces.report.again import make_again, settings_of, software
from pisces.report.compare import Row, drawn_of
from pisces.report.costs import costs
from pisces.report.figures import Figure
from pisces.report.goal import Goal
from pisces.report.ledger import overview
from pisces.report.ledger.overview import bound_of
from pisces.report.ledger.summary import ReadRun
from pisces.report.markup import Html, joined, tag
from pisces.report.page_tables import comparison_table, cost_table
from pisces.report.sentences import about_comparison, about_run
from pisces.report.settings import differences_of_world
from pisces.report.worlds import what_was_learnt

MOST_PORTRAITS = 4  # runs that are drawn one by one
FEWER_ROWS = (20, 10, 5)  # clients of a timeline, where the usual number has too many tasks
MOST_LINES = 8  # runs whose curves are drawn one by one


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure under the name by which the page's script finds it."""

    key: str
    data: Sequence[Any]
    layout: Any


@dataclass(slots=True)
class Chapter:
    """A part of the page with its figures."""

    key: str
    title: str
    content: list[Html] = field(default_factory=list)
    figures: list[Shown] = field(default_factory=list)

    def say(self, *parts: object) -> None:
        """Add some HTML."""
        self.content.append(joined(parts))

    def show(self, figure: Figure) -> None:
        """Add a figure with its words; one that has nothing to show is only told of."""
        figure = figures.bounded(figure)
        heading = tag("h3", begun(figure.title))
        if not figure.data:
            self.say(heading, tag("p", figure.words, class_="note"))
            return
        key = f"{self.key}-{len(self.figures)}"
        self.figures.append(Shown(key, figure.data, figure.layout))
        place = tag("div", class_="plot", data_figure=key, role="img", aria_label=figure.title)
        self.say(heading, tag("figure", place, tag("figcaption", figure.words)))


def title_of(runs: Sequence[ReadRun]) -> str:
    """What the page is called."""
    if len(runs) == 1:
        return runs[0].name
    names = list(dict.fromkeys(run.protocol for run in runs))
    if len(names) == 1:
        return f"{names[0]}: {how_many(len(runs), 'run')}"
    return f"{listed(names)}: {how_many(len(runs), 'run')}"


def chapters(runs: Sequence[ReadRun], rows: Sequence[Row] | None, goal: Goal) -> Iterator[Chapter]:
    """Of one run its portrait; of several the comparison, then a portrait of some.

    `rows` are how they compare, the first the one whose speed-ups are told; None without a target.
    """
    if len(runs) == 1:
        yield _short(runs[0], goal)
        yield _portrait(runs[0], goal, "pictures", "Pictures")
        yield _costs(runs)
    else:
        yield from _several(runs, rows, goal)
    yield _written("settings", "Settings", settings_of(runs))
    yield _written("again", "Make it again", [*software(runs), *make_again(runs)])


def _several(runs: Sequence[ReadRun], rows: Sequence[Row] | None, asked: Goal) -> Iterator[Chapter]:
    yield _short_of_all(runs, rows, asked)
    drawn, goal = drawn_of(runs, asked)
    chapter = Chapter("comparison", "Side by side")
    if rows is not None:
        chapter.say(comparison_table(rows, asked))
    curves = figures.compare_curves if len(drawn) <= MOST_LINES else figures.median_curves
    chapter.show(curves(drawn, goal))
    if rows is not None and goal.target is not None:
        chapter.show(figures.compare_times(drawn, goal))
        of_first = replace(goal, reference=rows[0].protocol)
        chapter.show(figures.compare_speedups(drawn, of_first))
    yield chapter
    yield _costs(runs)
    for number, run in enumerate(_first_of_each(drawn), start=1):
        yield _portrait(run, goal, f"run-{number}", f"A closer look: {run.name}")


def _first_of_each(runs: Sequence[ReadRun]) -> list[ReadRun]:
    """One run of each protocol, of the first few."""
    first: dict[str, ReadRun] = {}
    for run in runs:
        first.setdefault(run.protocol, run)
    return list(first.values())[:MOST_PORTRAITS]


# --- in short -------------------------------------------------------------------------------------


def _short(run: ReadRun, goal: Goal) -> Chapter:
    seen = overview(run.ledger)
    chapter = Chapter("summary", "In short")
    chapter.say(*_damage([run]))
    bound, clock = seen.staleness_bound, seen.clock
    told = about_run(run, goal, bound=bound, clock=clock)
    chapter.say(_bullets(told))
    if run.ledger.why_no_decisions:
        chapter.say(tag("p", run.ledger.why_no_decisions, class_="note"))
    return chapter


def _short_of_all(runs: Sequence[ReadRun], rows: Sequence[Row] | None, goal: Goal) -> Chapter:
    chapter = Chapter("summary", "In short")
    chapter.say(*_damage(runs))
    found = differences_of_world(runs)
    if found is not None:
        run, keys = found
        chapter.say(
            tag(
                "p",
                f"These runs did not meet the same world, so their times compare only with care: "
                f"{' and '.join(_names_apart(runs[0], run))} differ in {listed(keys)}.",
                class_="warning",
            )
        )
    if rows is None:
        names = listed(list(dict.fromkeys(run.protocol for run in runs)))
        chapter.say(
            _bullets(
                [
                    f"{how_many(len(runs), 'run')} of {names}{what_was_learnt(runs)}.",
                    "They have no target in common, so times to it are not compared.",
                    *_cut_short(runs),
                ]
            )
        )
    else:
        chapter.say(_bullets(about_comparison(rows, runs, goal, _bounds_of(runs))))
    return chapter


def _damage(runs: Sequence[ReadRun]) -> Iterator[Html]:
    """Which logs end before their end."""
    for run in runs:
        if why := run.ledger.problem:
            which = "The log" if len(runs) == 1 else f"The log of {run.name}"
            yield tag("p", f"{which} could not be read to its end: {why}", class_="warning")


def _names_apart(one: Run, other: Run) -> tuple[str, str]:
    """What these are called, or where that is the same, their folders."""
    is_apart = one.name != other.name
    return (one.name, other.name) if is_apart else (one.path.name, other.path.name)


def _cut_short(runs: Sequence[ReadRun]) -> Iterator[str]:
    names = [run.path.name for run in runs if run.counts.is_cut_short]
    if 0 < len(names) < len(runs):
        yield f"Not drawn, because cut short or not over: {listed(names)}."


def _bounds_of(runs: Sequence[ReadRun]) -> dict[str, float]:
    """The bound on staleness of each protocol that has one, and the same in all of its runs."""
    bounds: dict[str, set[float | None]] = {}
    for run in runs:
        bounds.setdefault(run.protocol, set()).add(bound_of(run.ledger))
    return {
        protocol: bound
        for protocol, (bound, *others) in bounds.items()
        if bound is not None and not others
    }


def _bullets(sentences: Iterable[str]) -> Html:
    items = (tag("li", sentence) for sentence in sentences)
    return tag("div", tag("ul", *items), class_="summary")


# --- pictures and tables --------------------------------------------------------------------------


def _portrait(run: ReadRun, goal: Goal, key: str, title: str) -> Chapter:
    chapter, ledger = Chapter(key, title), run.ledger
    chapter.show(figures.curve(ledger, goal))
    # Here nobody can ask for another span.
    chapter.show(figures.timeline(ledger, or_fewer=FEWER_ROWS))
    chapter.show(figures.intervals(ledger))
    chapter.show(figures.contributors(ledger))
    chapter.show(figures.staleness(ledger))
    chapter.show(figures.losses(ledger))
    return chapter


def _costs(runs: Sequence[ReadRun]) -> Chapter:
    rows = costs([run.ledger for run in runs])
    return _written("costs", "What it cost", [cost_table(rows)])


def _written(key: str, title: str, content: Sequence[Html]) -> Chapter:
    return Chapter(key, title, list(content))
