"""What a terminal shows of runs under way: all of them in one line, then each in a row.

A narrow terminal shows fewer columns, never a number in two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pisces.cli.standing import Batch, Standing, Whole
from pisces.report.table import duration

BAR = 16
LEAST_BAR = 6
MOST_BAR = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; where there is no room, the one of the highest rank goes first."""

    heading: str
    cells: Sequence[str]
    rank: int = 0

    @property
    def width(self) -> int:
        """Its widest cell, and a gap."""
        return max(map(len, (self.heading, *self.cells))) + 1


@dataclass(frozen=True, slots=True)
class Row:
    """A name, and how much of what there is to do."""

    name: str
    share: float


@dataclass(slots=True)
class Board:
    """A row per protocol with the run it is at, and one per further run under way."""

    runs: Sequence[Standing]
    whole: Whole = field(init=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys(run.protocol for run in self.runs)
        of = {name: [run for run in self.runs if run.protocol == name] for name in names}
        self.whole = Whole([Batch(name, runs) for name, runs in of.items()])

    def notes(self) -> Iterator[str]:
        """What else is to be said, line by line."""
        yield from ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield headline(self.whole, options.max_width)
        yield self._table(options.max_width)
        for note in self.notes():
            yield Text(plain_text(note), overflow="ellipsis", no_wrap=True)

    def _table(self, width: int) -> Table:
        rows: list[Row] = []
        shown: list[Standing | None] = []
        for batch in self.whole.batches:
            first, *others = batch.under_way or _last(batch)
            share = batch.done_s / batch.work_s
            rows += [Row(batch.name, share), *(Row("", run.share) for run in others)]
            shown += [first if first.has_begun else None, *others]
        return fitted("protocol", rows, _columns(self.runs, shown, self._done(rows)), width)

    def _done(self, rows: Sequence[Row]) -> Sequence[str]:
        """Of each protocol how many runs are over, where it has several."""
        if all(len(batch.runs) == 1 for batch in self.whole.batches):
            return ()
        told = {b.name: f"{b.num_done} of {len(b.runs)}" for b in self.whole.batches}
        return [told.get(row.name, "") for row in rows]


def _last(batch: Batch) -> list[Standing]:
    """While none is under way: the last that was."""
    begun = [run for run in batch.runs if run.has_begun]
    return begun[-1:] or list(batch.runs[:1])


def _columns(
    runs: Sequence[Standing], shown: Sequence[Standing | None], done: Sequence[str]
) -> list[Column]:
    metric, target = runs[0].stop.metric, runs[0].stop.target

    def cells(tell: Callable[[Standing], str]) -> list[str]:
        return ["" if run is None else tell(run) for run in shown]

    columns = [
        Column("seed", cells(lambda run: str(run.seed)), 4),
        Column("time", cells(lambda run: f"{run.at:,.0f} s")),
        Column("version", cells(lambda run: str(run.version)), 5),
        Column("updates", cells(lambda run: str(run.num_updates)), 6),
        Column("running", cells(lambda run: str(run.num_running)), 7),
        Column(plain_text(metric), cells(lambda run: number(run.value))),
        Column("best", cells(lambda run: number(run.best)), 1),
    ]
    if target is not None:
        reached = cells(lambda r: "" if r.reached_at is None else f"{r.reached_at:,.0f} s")
        columns.append(Column(f"to {target:g}", reached, 2))
    if len(runs) > 1:
        columns.append(Column("left", cells(_left), 8))
    return [Column("done", done, 3), *columns] if done else columns


def _left(run: Standing) -> str:
    return "" if run.reason is not None or run.left_s is None else duration(run.left_s)


@dataclass(slots=True)
class Overview:
    """Hundreds of runs: a row for each batch that is under way."""

    whole: Whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield headline(self.whole, options.max_width)
        batches = [batch for batch in self.whole.batches if batch.under_way]
        if not batches:
            return
        slowest = [batch.under_way[0] for batch in batches]
        columns = [
            Column("done", [f"{b.num_done} of {len(b.runs)}" for b in batches]),
            Column("running", [str(len(b.under_way)) for b in batches], 3),
            Column("slowest", [plain_text(f"{r.protocol}, seed {r.seed}") for r in slowest], 4),
            Column("at", [f"{run.at:,.0f} s" for run in slowest], 2),
            Column("its best", [number(run.best) for run in slowest], 1),
        ]
        rows = [Row(batch.name, batch.done_s / batch.work_s) for batch in batches]
        yield fitted("study/case", rows, columns, options.max_width)


def headline(whole: Whole, width: int) -> RenderableType:
    """All runs in one line: how many are over, and how long it took and still takes."""
    runs = whole.runs
    label = f"{whole.num_done} of {len(runs)} runs" if len(runs) > 1 else f"{whole.share:.0%}"
    text = times(whole)
    room = width - len(label) - len(text) - 2
    line = Table.grid(padding=(0, 1, 0, 0))
    bar = ProgressBar(1.0, whole.share, width=min(MOST_BAR, room))
    line.add_row(Text(label), *([bar] if room >= LEAST_BAR else []), Text(text))
    return line


def times(of: Whole | Standing) -> str:
    """How long it took so far and still takes, as far as anybody can tell."""
    so_far = f"{duration(of.elapsed_s)} so far"
    left_s = of.left_s
    if left_s is None:
        return so_far
    return f"{so_far}, {'at most ' if of.may_end_early else ''}about {duration(left_s)} left"


def fitted(heading: str, rows: Sequence[Row], columns: Sequence[Column], width: int) -> Table:
    """A table of rows with as many of the columns as fit."""
    names = [plain_text(row.name) for row in rows]
    longest = min(max(map(len, (heading, *names))), max(len(heading), width // 4))
    kept = list(columns)
    while kept and sum(c.width for c in kept) + longest + 1 + LEAST_BAR > width:
        last = max(column.rank for column in kept)
        kept = [column for column in kept if column.rank < last] if last else []
    bar = min(BAR, width - longest - 1 - sum(column.width for column in kept))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(heading, overflow="fold", width=longest)
    for column in kept:
        table.add_column(column.heading, justify="right", no_wrap=True)
    if bar >= LEAST_BAR:
        table.add_column("", no_wrap=True, width=bar)
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        cells = [Text(column.cells[number]) for column in kept]
        bars = [ProgressBar(1.0, row.share, width=bar)] if bar >= LEAST_BAR else []
        table.add_row(Text(name), *cells, *bars)
    return table


def number(value: float | None) -> str:
    """A metric in few letters."""
    return "" if value is None else f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def plain_text(text: str) -> str:
    """What a config or a log calls something, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)
