"""What the page is told of several runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pisces.dashboard.answer import (
    GONE,
    Answer,
    NoSuchRun,
    digest,
    drawn,
    revision_of,
    run_named,
)
from pisces.dashboard.asking import Asked, BadQuestion
from pisces.dashboard.index import Index, Watched
from pisces.dashboard.places import hidden
from pisces.errors import PiscesError, RunError
from pisces.report import figures
from pisces.report.costs import QUANTITIES, costs
from pisces.report.figures import Figure
from pisces.report.figures.figure import nothing
from pisces.report.goal import Goal
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun
from pisces.report.settings import apart, differences_of_world, told_apart

MAX_COMPARED = 40  # runs
FIGURES = (figures.compare_curves, figures.compare_times, figures.compare_speedups)
SAMPLED = "its log has the lines of some clients only, and counts of them would be wrong"


def comparison(index: Index, asked: Asked) -> Answer:
    """Several runs side by side: curves, times, speed-ups and costs."""
    names = asked.texts("run", MAX_COMPARED)
    if not names:
        raise BadQuestion("run: name at least one")
    found, left_out = _found(index, names)
    ledgers = [index.ledger(watched) for watched in found]
    runs = told_apart([ReadRun.of(ledger) for ledger in ledgers])
    target, metric = asked.number("target"), asked.text("metric") or None

    def make() -> dict[str, Any]:
        goal, no_goal = _goal(ledgers, metric, target)
        return {
            "runs": [
                {
                    "id": watched.place.id,
                    "name": run.name,
                    "share_read": run.ledger.share_read,
                }
                for watched, run in zip(found, runs, strict=True)
            ],
            "metrics": list(dict.fromkeys(name for one in ledgers for name in one.metrics)),
            "left_out": [{"id": name, "why": why} for name, why in left_out.items()],
            "notes": [why for why in (_other_worlds(found, ledgers), no_goal) if why],
            "figures": [_drawn_or_why(index, f, runs, goal) for f in FIGURES] if goal else [],
            "costs": [
                {"run": watched.place.id, **asdict(cost)}
                for watched, cost in zip(found, costs(ledgers), strict=True)
            ],
            "quantities": [
                {"key": key, "label": label, "unit": unit}
                for key, (label, unit) in QUANTITIES.items()
            ],
        }

    return Answer(f"{revision_of(index, *ledgers)}.{digest(names, left_out)}", make)


def _found(index: Index, names: Sequence[str]) -> tuple[list[Watched], dict[str, str]]:
    """Those that can be shown, and of the others why not; the first why where all are such."""
    found: list[Watched] = []
    errors: dict[str, NoSuchRun | PiscesError] = {}
    for name in names:
        try:
            watched = run_named(index, name)
            if index.ledger(watched).is_sampled:
                raise RunError(SAMPLED)
            found.append(watched)
        except (NoSuchRun, PiscesError) as error:
            errors[name] = error
    if not found:
        raise next(iter(errors.values()))
    return found, {name: str(error) or GONE for name, error in errors.items()}


def _other_worlds(found: Sequence[Watched], ledgers: Sequence[Ledger]) -> str | None:
    """What runs differ in that keeps their times from telling who is faster."""
    runs = [ReadRun.of(ledger) for ledger in ledgers]
    known = [run for run in runs if run.config]  # of others nothing can be told
    differing = differences_of_world(known) if known else None
    if differing is None:
        return None
    other, keys = differing
    ids = {run.path: watched.place.id for run, watched in zip(runs, found, strict=True)}
    told = apart(ids[known[0].path], ids[other.path], keys)
    return f"{told}; their times do not say which protocol is faster"


def _goal(
    ledgers: Sequence[Ledger], metric: str | None, target: float | None
) -> tuple[Goal | None, str | None]:
    """What they are held against, or why there is no such thing."""
    try:
        return Goal.watched(ledgers, metric, target), None
    except PiscesError as error:
        return None, str(error)


def _drawn_or_why(
    index: Index, figure: Callable[..., Figure], runs: Sequence[ReadRun], goal: Goal
) -> dict[str, Any]:
    """A figure, or in its place why there is none: the others can be seen all the same.

    Words name runs as the list does: paths below the folder watched.
    """
    try:
        made = drawn(figure(runs, goal))
    except PiscesError as error:
        made = drawn(nothing("", str(error)))
    return {**made, "words": hidden(made["words"], index.root)}
