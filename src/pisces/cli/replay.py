"""`pisces replay`: what another pace would have decided, from a run's log alone."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pisces.cli.console import Json, print_json, stdout
from pisces.quantities import UNKNOWN, counted, duration
from pisces.record.reader import Run

if TYPE_CHECKING:
    from pisces.replaying import Aggregation, Numbers, Replayed
    from pisces.replaying.values import Terms

NUM_DIFFERENCES = 5  # shown; --json has all
NAME_WIDTH = 15  # beside several columns; each row's name takes two lines at most


def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="pace.KEY=VALUE",
            help="Ask the pace otherwise; several values are several replays.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: a .png, .svg or .pdf file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show when another pace would have made versions.

    The clients do as in the run's log; only when to aggregate is decided anew.
    The run's own pace is replayed as well: it must decide what was decided.
    What a log cannot tell is said.

    [bold]Examples[/]

      pisces replay runs/first --set pace.bound=10

      pisces replay runs/first --set pace.bound=2,5,10 --out paces.png

      pisces replay runs/first --set pace.policy=fedbuff --set pace.buffer_size=4
    """
    from pisces.replaying import paces, replay_all

    if out is not None:
        from pisces.report.printed.paper import drawable

        drawable(out)  # before anything is read
    asked = paces.variants(changes or [])
    replays = replay_all(Run.open(folder), asked)
    if out is not None:
        from pisces.replaying.picture import draw

        draw(replays, out)
    if as_json:
        found = [replayed.as_json() for replayed in replays]
        print_json(found[0] if len(found) == 1 else found)
        return
    _show(replays)
    if out is not None:
        stdout.say(f"picture: {out}")


def _show(replays: Sequence[Replayed]) -> None:
    from pisces.replaying import words

    first = replays[0]
    _say(words.verdict(first.check), style="" if first.check.is_same else "yellow")
    _list(f"perhaps {reason}" for reason in first.check.why)
    shown = [replayed for replayed in replays if replayed.changes]
    stdout.print(_table(first, shown))
    if any(map(_is_exceeded, (first.recorded, *(replayed.replayed for replayed in shown)))):
        _say(words.EXCEEDED)
    shared = _shared(shown)
    for replayed in shown:
        if len(shown) > 1:
            _head(" ".join(replayed.changes))
        _say(words.exactness(replayed.differs_at, replayed.differs_version, replayed.differs_in))
        if len(shown) == 1:
            _show_differences(replayed)
        _list(caveat for caveat in replayed.caveats if caveat not in shared)
    if shared:
        _head("all of them")
        _list(shared)


def _shared(replays: Sequence[Replayed]) -> list[str]:
    """Caveats that all of several replays have, word by word: they are said once."""
    if len(replays) < 2:
        return []
    first, *others = replays
    return [each for each in first.caveats if all(each in other.caveats for other in others)]


def _is_exceeded(figures: Numbers) -> bool:
    stalest, bound = figures.staleness_max, figures.bound
    return stalest is not None and bound is not None and stalest > bound


def _head(text: str) -> None:
    stdout.print(f"[bold]{escape(text)}[/]", highlight=False)


def _list(points: Iterable[str]) -> None:
    for point in points:
        _say(point, bullet="  - ")


def _say(text: str, *, bullet: str = "", style: str = "") -> None:
    lines = textwrap.wrap(
        text, stdout.width, initial_indent=bullet, subsequent_indent=" " * len(bullet)
    )
    for line in lines:
        stdout.print(line, style=style, highlight=False, markup=False)


# --- the table ------------------------------------------------------------------------------------


def _number(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}".rstrip("0").rstrip(".")


BOUND = "and its bound"
ROWS: tuple[tuple[str, Callable[[Numbers], str]], ...] = (
    ("aggregations", lambda f: f"{f.num_aggregations:,}"),
    ("interval, median", lambda f: duration(f.interval_median_s)),
    ("interval, 95th percentile", lambda f: duration(f.interval_p95_s)),
    ("updates per aggregation", lambda f: _number(f.updates_mean)),
    ("staleness, mean", lambda f: _number(f.staleness_mean)),
    ("staleness, 95th percentile", lambda f: _number(f.staleness_p95)),
    ("staleness, most", lambda f: _number(f.staleness_max)),
    (BOUND, lambda f: _number(f.bound)),
    ("updates dropped before its end", lambda f: f"{f.num_dropped:,}"),
    ("wait in the buffer, mean", lambda f: duration(f.wait_mean_s)),
)


def _table(first: Replayed, replays: Sequence[Replayed]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=escape(first.name), title_justify="left")
    table.add_column("", no_wrap=True)  # else names are the first to be broken
    table.add_column("recorded", justify="right", no_wrap=True)
    for replayed in replays:
        table.add_column(escape("\n".join(replayed.changes)), justify="right", overflow="fold")
    all_of_them = [first.recorded, *(replayed.replayed for replayed in replays)]
    for label, shown in ROWS:
        if label == BOUND and all(figures.bound is None for figures in all_of_them):
            continue
        name = textwrap.fill(label, NAME_WIDTH) if len(replays) > 1 else label
        table.add_row(name, *map(shown, all_of_them))
    return table


# --- differences ----------------------------------------------------------------------------------


def _show_differences(replayed: Replayed) -> None:
    differences = replayed.differences
    if not differences:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("at", "recorded", "replayed"):
        table.add_column(heading, overflow="fold")
    for difference in differences[:NUM_DIFFERENCES]:
        recorded = difference.recorded
        table.add_row(
            f"{difference.at:.6g} s",
            _made(recorded, {} if recorded is None else recorded.terms),
            _made(difference.replayed, difference.terms),
        )
    stdout.print(table)
    if len(differences) > NUM_DIFFERENCES:
        more = len(differences) - NUM_DIFFERENCES
        _say(f"and {more:,} more such instants (--json has all)")


def _made(aggregation: Aggregation | None, terms: Terms) -> str:
    """What was made, and what the pace went by."""
    told = {key: value for key, value in terms.items() if value is not None and isfinite(value)}
    went_by = ", ".join(f"{key} {value:.4g}" for key, value in told.items())
    made = "none"
    if aggregation is not None:
        made = f"version {aggregation.version} of {counted(len(aggregation.tasks), 'update')}"
    return escape(f"{made}\n{went_by}" if went_by else made)
