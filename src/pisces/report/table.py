"""Tables for the terminal, readable at 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pisces.quantities import UNKNOWN, digits, duration
from pisces.record.reader import Run
from pisces.report.compare import Row
from pisces.report.estimate import MIN_BOOTSTRAP, Estimate, ends_in_words, median_in_words
from pisces.report.goal import Goal
from pisces.report.ledger.summary import notes_of

LONGEST_NAME = 9  # of a protocol in a heading, for the table to fit into 80 columns
LONGEST_PIECE = 18  # of a protocol's name that is broken
Room: TypeAlias = Literal["roomy", "tight", "broken"]  # broken: tight, and so are names
ROOMS: tuple[Room, ...] = get_args(Room)


def comparison_table(rows: Sequence[Row], goal: Goal, *, width: int = 80) -> Table:
    """Protocols side by side; the first row is the reference of the speed-ups."""
    first = rows[0].protocol
    reference = first if len(first) <= LONGEST_NAME else "row 1"
    roomy = ("versions", "updates", "max\nstaleness")
    tight = ("ver-\nsions", "up-\ndates", "max\nstale")

    def laid_out(room: Room) -> Table:
        table = empty_table(room, _caption(rows))
        # Only a protocol's name may be folded: a number in two pieces is no number.
        table.add_column("protocol", overflow="fold")
        for heading in (
            f"time to\n{goal.needed:g}",
            f"speed-up\nof {reference}",
            *(roomy if room == "roomy" else tight),
            f"final\n{goal.metric}",
            "wall\ntime",
        ):
            table.add_column(heading, justify="right", no_wrap=True)
        for number, row in enumerate(rows):
            table.add_row(_name(row, room), *_cells(row, is_reference=number == 0))
        return table

    return fitting(laid_out, width)


def fitting(laid_out: Callable[[Room], Table], width: int) -> Table:
    """The roomiest layout that fits into so many columns; the last one folds what does not."""
    tables = [laid_out(room) for room in ROOMS]
    console = Console(width=1000)  # what they would take if they could
    return next((t for t in tables[:-1] if console.measure(t).maximum <= width), tables[-1])


def empty_table(room: Room, caption: str | None = None) -> Table:
    """A table without rows: the roomy one has wider gaps."""
    is_roomy = room == "roomy"
    padding = (0, 1, 0, 0) if is_roomy else 0
    return Table(
        box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=is_roomy, caption=caption
    )


def whole(name: str, room: Room, longest: int = LONGEST_PIECE) -> str:
    """The name in one piece or, where that is too long, broken after a hyphen."""
    if room != "broken":
        return name
    return "\n".join(textwrap.wrap(name, longest, break_long_words=False))


def run_table(run: Run, goal: Goal) -> Table:
    """One run: what it came to, one fact per line."""
    table = Table(box=box.SIMPLE, show_header=False, title=escape(run.name), title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    for label, value in _facts(run, goal):
        table.add_row(label, value)
    return table


def speedup_text(row: Row) -> str:
    """The median speed-up with its mark, and below it what it is spread over."""
    found = row.known_speedup
    if found is None:
        return UNKNOWN
    median = median_in_words(found, "{:.2f}x".format).replace(" to ", " to\n")
    return median + _spread(found, len(row.seeds))


def _spread(found: Estimate, num_seeds: int) -> str:
    """The interval where there is one, else the range; then how many were paired, if not all."""
    pairs = "" if found.num == num_seeds else f"\n{found.num} of {num_seeds}"
    if found.num < 2:
        return pairs
    return "\n" + "-".join(ends_in_words(found, "{:.2f}".format)) + pairs


def time_text(row: Row) -> str:
    """The median time to target, and how many reached it unless all did."""
    if not row.seeds:
        return UNKNOWN
    if row.reached == len(row.seeds):
        return duration(row.time_to_target_s)
    reached = f"reached\n{row.reached} of {len(row.seeds)}"
    return (
        reached if row.time_to_target_s is None else f"{duration(row.time_to_target_s)}\n{reached}"
    )


def _name(row: Row, room: Room) -> str:
    """The protocol, and how many of its runs the row leaves out."""
    name = whole(row.protocol, room)
    return f"{name}\n{row.num_cut_short} cut short" if row.num_cut_short else name


def _cells(row: Row, *, is_reference: bool) -> tuple[str, ...]:
    return (
        time_text(row),
        "" if is_reference else speedup_text(row),
        _count(row.versions),
        _count(row.updates),
        _count(row.max_staleness),
        digits(row.final),
        duration(row.wall_s),
    )


def _caption(rows: Sequence[Row]) -> str | None:
    """How to read the second line of a speed-up."""
    pairs = [row.speedup.num for row in rows if row.speedup is not None and row.speedup.num > 1]
    if not pairs:
        return None
    range_text, interval_text = "smallest to largest", "95 % interval of the median"
    if min(pairs) >= MIN_BOOTSTRAP:
        spread = interval_text
    elif max(pairs) < MIN_BOOTSTRAP:
        spread = range_text
    else:
        spread = f"{interval_text}, or {range_text} of fewer than {MIN_BOOTSTRAP}"
    return f"medians over seeds; below a speed-up: {spread}"


def _facts(run: Run, goal: Goal) -> list[tuple[str, str]]:
    s, trained_by = run.counts, run.told_at_its_end("trained_by")
    facts = [
        ("ended", f"{s.reason or 'not finished'}, at {duration(s.at)}"),
        ("versions", _count(s.versions)),
        ("clients that took part", f"{s.num_clients_started:,} of {s.num_clients:,}"),
        ("tasks started", _count(s.num_started)),
        ("updates arrived", _count(s.num_updates)),
        ("  aggregated", _count(s.num_aggregated)),
        ("  dropped", _count(s.num_dropped)),
        ("tasks called off", _count(s.num_given_up)),
        ("tasks failed, clients left", f"{s.num_failed:,}, {s.num_left:,}"),
        ("staleness, mean and max", _staleness(s.mean_staleness, s.max_staleness)),
        ("outliers, clients distrusted", f"{s.num_outliers:,}, {len(s.distrusted):,}"),
    ]
    under_way = s.num_under_way
    if s.reason is None:
        facts.insert(4, ("tasks under way", _count(under_way + notes_of(run).num_running)))
    else:  # then they were called off
        facts.insert(4, ("tasks under way at the end", _count(under_way)))
    facts += [
        (f"{name}, final and best", f"{digits(s.final[name])}, {digits(s.best.get(name))}")
        for name in s.final
    ]
    if goal.target is not None:
        time = run.time_to_target(goal.target, goal.metric)
        label = f"time to {goal.metric} {goal.target:g}"
        facts.append((label, "not reached" if time is None else duration(time)))
    if trained_by is not None:  # it is told at a run's end
        facts.append(("trained by", trained_by))
    return [*facts, ("wall time", duration(run.wall_s))]


def _staleness(mean: float | None, largest: int | None) -> str:
    return UNKNOWN if mean is None or largest is None else f"{mean:.1f}, {largest}"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"
