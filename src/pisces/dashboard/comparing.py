"""What the page is told of several runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pisces.dashboard.answer import GONE, Answer, NoSuchRun, drawn, revision_of, run_named
from pisces.dashboard.asking import Asked, BadQuestion
from pisces.dashboard.index import Index, Watched
from pisces.dashboard.places import hidden
from pisces.errors import PiscesError
from pisces.report import figures
from pisces.report.figures import Figure
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun

MAX_COMPARED = 40  # runs


def comparison(index: Index, asked: Asked) -> Answer:
    """Several runs side by side: curves, times, speed-ups and costs."""
    names = asked.texts("run", MAX_COMPARED)
    if not names:
        raise BadQuestion("run: name at least one")
    found, left_out = _found(index, names)
    ledgers = [index.ledger(watched) for watched in found]
    target, metric = asked.number("target"), asked.text("metric") or None

    def make() -> dict[str, Any]:
        makers = (figures.compare_curves, figures.compare_times, figures.compare_speedups)
        return {
            "runs": [
                {
                    "id": watched.place.id,
                    "name": ReadRun.of(ledger).name,
                    "share_read": ledger.share_read,
                }
                for watched, ledger in zip(found, ledgers, strict=True)
            ],
            "left_out": [{"id": name, "why": why} for name, why in left_out.items()],
            # Words name runs as the list does: paths below the folder watched.
            "figures": [_drawn_or_why(index, make, ledgers, target, metric) for make in makers],
            "costs": [
                {**row, "run": watched.place.id}
                for watched, row in zip(found, figures.costs(ledgers), strict=True)
            ],
        }

    told = "" if not left_out else f".{len(names)}.{sorted(left_out.items())}"
    return Answer(f"{revision_of(index, *ledgers)}{told}", make)


def _found(index: Index, names: Sequence[str]) -> tuple[list[Watched], dict[str, str]]:
    """Those that can be shown, and of the others why not; the first why where all are such."""
    found: list[Watched] = []
    left_out: dict[str, str] = {}
    for name in names:
        try:
            found.append(run_named(index, name))
        except (NoSuchRun, PiscesError) as error:
            if len(left_out) == len(names) - 1:
                raise
            left_out[name] = GONE if isinstance(error, NoSuchRun) else str(error)
    return found, left_out


def _drawn_or_why(
    index: Index,
    make: Callable[..., Figure],
    ledgers: list[Ledger],
    target: float | None,
    metric: str | None,
) -> dict[str, Any]:
    """A figure, or in its place why there is none: the others can be seen all the same."""
    try:
        made = drawn(make(ledgers, target, metric))
        return {**made, "words": hidden(made["words"], index.root)}
    except PiscesError as error:
        name = make.__name__
        return {
            "name": name,
            "title": "",
            "words": hidden(str(error), index.root),
            "data": [],
            "layout": {},
        }
