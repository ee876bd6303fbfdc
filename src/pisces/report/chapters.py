"""What the page tells, chapter by chapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pisces.record.reader import Run
from pisces.report import figures
from pisces.report.again import make_again, settings_of, software
from pisces.report.bands import median_curves
from pisces.report.compare import Row, compare, is_cut_short
from pisces.report.figures import Figure
from pisces.report.ledger import Ledger, overview
from pisces.report.markup import Html, joined, tag
from pisces.report.page_tables import comparison_table, cost_table
from pisces.report.sentences import about_comparison, about_run, count, listed
from pisces.report.settings import differences_of_world
from pisces.report.worlds import what_was_learnt

MOST_PORTRAITS = 4  # runs that are drawn one by one
FEWER_ROWS = (20, 10, 5)  # clients of a timeline, where the usual number has too many tasks
MOST_LINES = 8  # runs whose curves are drawn one by one
NO_DECISIONS = (
    "The log does not say why clients were picked: the run was recorded without its decisions, or "
    "by an older version."
)


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

    def show(self, figure: Figure, level: str = "h3") -> None:
        """Add a figure with its words; one that has nothing to show is only told of."""
        figure = figures.bounded(figure)
        heading, words = tag(level, _begun(figure.title)), _begun(figure.words)
        if not figure.data:
            self.say(heading, tag("p", words, class_="note"))
            return
        key = f"{self.key}-{len(self.figures)}"
        self.figures.append(Shown(key, figure.data, figure.layout))
        place = tag("div", class_="plot", data_figure=key, role="img", aria_label=figure.title)
        self.say(heading, tag("figure", place, tag("figcaption", words)))


def _begun(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]


def title_of(runs: Sequence[Run]) -> str:
    """What the page is called."""
    if len(runs) == 1:
        return runs[0].name
    names = list(dict.fromkeys(run.protocol for run in runs))
    if len(names) == 1:
        return f"{names[0]}: {count(len(runs), 'run')}"
    return f"{listed(names)}: {count(len(runs), 'run')}"


def chapters(
    runs: Sequence[Run], target: float | None, metric: str, reference: str | None
) -> Iterator[Chapter]:
    """Of one run its portrait; of several the comparison, then a portrait of some."""
    ledgers = [_read(run) for run in runs]
    if len(runs) == 1:
        yield _short(ledgers[0], target, metric)
        yield _portrait(ledgers[0], target, metric, "pictures", "Pictures")
        yield _costs(ledgers)
    else:
        yield from _several(ledgers, target, metric, reference)
    yield _written("settings", "Settings", settings_of(runs))
    yield _written("again", "Make it again", [*software(runs), *make_again(runs)])


def _several(
    ledgers: Sequence[Ledger], target: float | None, metric: str, reference: str | None
) -> Iterator[Chapter]:
    runs = [ledger.run for ledger in ledgers]
    rows = None
    if target is not None:
        rows = compare(runs, target, metric=metric, reference=reference)
    yield _short_of_all(runs, rows, target, metric)
    chapter = Chapter("comparison", "Side by side")
    if rows is not None and target is not None:
        chapter.say(comparison_table(rows, target, metric))
    counted = [ledger for ledger in ledgers if not is_cut_short(ledger.run)]
    drawn = counted or list(ledgers)
    goal = target if counted else None
    if len(drawn) > MOST_LINES:
        chapter.show(median_curves([ledger.run for ledger in drawn], goal, metric))
    else:
        chapter.show(figures.compare_curves(drawn, target=goal, metric=metric))
    if goal is not None:
        chapter.show(figures.compare_times(drawn, target=goal, metric=metric))
        chosen = rows[0].protocol if rows else reference
        chapter.show(figures.compare_speedups(drawn, target=goal, metric=metric, reference=chosen))
    yield chapter
    yield _costs(ledgers)
    order = [row.protocol for row in rows or ()]
    for number, ledger in enumerate(_first_of_each(drawn, order), start=1):
        title = f"A closer look: {ledger.run.name}"
        yield _portrait(ledger, target, metric, f"run-{number}", title)


def _first_of_each(ledgers: Sequence[Ledger], order: Sequence[str]) -> list[Ledger]:
    """One run of each protocol, of the first few, in the order of the comparison."""
    first: dict[str, Ledger] = {}
    for ledger in ledgers:
        first.setdefault(ledger.run.protocol, ledger)
    names = dict.fromkeys([*order, *first])
    return [first[name] for name in names if name in first][:MOST_PORTRAITS]


# --- in short -------------------------------------------------------------------------------------


def _short(ledger: Ledger, target: float | None, metric: str) -> Chapter:
    seen = overview(ledger)
    sentences = list(
        about_run(
            ledger.run,
            target=target,
            metric=metric,
            bound=seen.staleness_bound,
            clock=seen.clock,
        )
    )
    chapter = Chapter("summary", "In short")
    if ledger.problem:
        chapter.say(
            tag("p", f"The log could not be read to its end: {ledger.problem}", class_="warning")
        )
    chapter.say(_bullets(sentences))
    if not ledger.has_decisions:
        chapter.say(tag("p", NO_DECISIONS, class_="note"))
    return chapter


def _short_of_all(
    runs: Sequence[Run], rows: Sequence[Row] | None, target: float | None, metric: str
) -> Chapter:
    chapter = Chapter("summary", "In short")
    found = differences_of_world(runs)
    if found is not None:
        run, keys = found
        chapter.say(
            tag(
                "p",
                f"These runs did not meet the same world, so their times compare only with care: "
                f"{runs[0].name} and {run.name} differ in {listed(keys)}.",
                class_="warning",
            )
        )
    if rows is None or target is None:
        names = listed(list(dict.fromkeys(run.protocol for run in runs)))
        chapter.say(
            _bullets(
                [
                    f"{count(len(runs), 'run')} of {names}{what_was_learnt(runs)}.",
                    "They have no target in common, so times to it are not compared.",
                ]
            )
        )
    else:
        chapter.say(_bullets(list(about_comparison(rows, runs, target=target, metric=metric))))
    return chapter


def _bullets(sentences: Sequence[str]) -> Html:
    items = (tag("li", sentence) for sentence in sentences)
    return tag("div", tag("ul", *items), class_="summary")


# --- pictures and tables --------------------------------------------------------------------------


def _portrait(ledger: Ledger, target: float | None, metric: str, key: str, title: str) -> Chapter:
    chapter = Chapter(key, title)
    goal = None if is_cut_short(ledger.run) and key != "pictures" else target
    chapter.show(figures.curve(ledger, metric=metric, target=goal))
    chapter.show(_timeline(ledger))
    chapter.show(figures.intervals(ledger))
    chapter.show(figures.contributors(ledger))
    chapter.show(figures.staleness(ledger))
    chapter.show(figures.losses(ledger))
    return chapter


def _timeline(ledger: Ledger) -> Figure:
    """As many clients as can be drawn task by task: here nobody can ask for another span."""
    drawn = [figures.timeline(ledger)]
    for num in FEWER_ROWS:
        if any(trace["type"] == "heatmap" for trace in drawn[-1].data):
            drawn.append(figures.timeline(ledger, num=num))
    is_shaded = any(trace["type"] == "heatmap" for trace in drawn[-1].data)
    return drawn[0] if is_shaded else drawn[-1]


def _costs(ledgers: Sequence[Ledger]) -> Chapter:
    return _written("costs", "What it cost", [cost_table(figures.costs(ledgers))])


def _written(key: str, title: str, content: Sequence[Html]) -> Chapter:
    return Chapter(key, title, list(content))


def _read(run: Run) -> Ledger:
    ledger = Ledger(run.path)
    while not ledger.is_whole and ledger.problem is None:
        ledger.read()
    return ledger
