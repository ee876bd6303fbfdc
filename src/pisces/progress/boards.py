"""What a terminal shows of runs under way: all of them in one line, then each in a row.

A narrow terminal shows fewer columns, never a number in two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pisces.progress.standing import Batch, Standing, Whole
from pisces.quantities import duration, percent, plain_text

BAR = 16
LEAST_BAR = 6
MOST_BAR = 40
TIME, NUMBER = len("1,000 s"), len("0.000")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; where there is no room, the one of the highest rank goes first."""

    heading: str
    cells: Sequence[str]
    rank: int = 0
    least: int = 0  # columns are not to move about while numbers grow

    @property
    def width(self) -> int:
        """Its widest cell."""
        return max(self.least, *map(cell_len, (self.heading, *self.cells)))


@dataclass(frozen=True, slots=True)
class Row:
    """A name, and how much of what there is to do."""

    name: str
    share: float | None = None  # none: it is told elsewhere


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
            share = batch.done_s / batch.work_s if len(self.runs) > 1 else None
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
        Column("seed", cells(lambda run: str(run.seed)), 5),
        Column("time", cells(lambda run: f"{run.at:,.0f} s"), 1, TIME),
        Column("version", cells(lambda run: str(run.version)), 6),
        Column("updates", cells(lambda run: str(run.num_updates)), 7),
        Column("running", cells(lambda run: str(run.num_at_work)), 8),
        Column(plain_text(metric), cells(lambda run: measured(run.value, target))),
        Column("best", cells(lambda run: measured(run.best, target)), 2, NUMBER),
    ]
    if target is not None:
        reached = cells(lambda r: "" if r.reached_at is None else f"{r.reached_at:,.0f} s")
        columns.append(Column(f"to {target:g}", reached, 3, TIME))
    if len(runs) > 1:
        columns.append(Column("left", cells(_left), 9, NUMBER))
    return [Column("done", done, 4), *columns] if done else columns


def _left(run: Standing) -> str:
    return "" if run.reason is not None or run.left_s is None else _rounded(run.left_s)


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
            Column("at", [f"{run.at:,.0f} s" for run in slowest], 2, TIME),
            Column("its best", [measured(run.best, run.stop.target) for run in slowest], 1),
        ]
        rows = [Row(batch.name, batch.done_s / batch.work_s) for batch in batches]
        yield fitted("study/case", rows, columns, options.max_width)


def headline(whole: Whole, width: int) -> RenderableType:
    """All runs in one line: how many are over, and how long it took and still takes."""
    runs = whole.runs
    label = f"{whole.num_done} of {len(runs)} runs" if len(runs) > 1 else percent(whole.share)
    is_over = whole.num_done == len(runs)
    text = f"took {duration(round(whole.elapsed_s, 1))}" if is_over else times(whole)
    if is_over and len(runs) == 1:
        text = plain_text(f"{ending(runs[0])}, {text}")
    room = width - len(label) - len(text) - 2
    line = Table.grid(padding=(0, 1, 0, 0))
    bar = ProgressBar(1.0, whole.share, width=min(MOST_BAR, room))
    line.add_row(Text(label), *([bar] if room >= LEAST_BAR else []), Text(text))
    return line


def ending(run: Standing) -> str:
    """How a run ended."""
    return "interrupted" if run.reason == "interrupted" else f"finished ({run.reason})"


def times(of: Whole | Standing) -> str:
    """How long it took so far and still takes, as far as anybody can tell."""
    so_far = f"{duration(round(of.elapsed_s, 1))} so far"
    left_s = of.left_s
    if left_s is None:
        return so_far
    return f"{so_far}, {'at most ' if of.may_end_early else ''}about {_rounded(left_s)} left"


def _rounded(seconds: float) -> str:
    """A guess is no more exact than a second."""
    return duration(max(1.0, round(seconds)))


def fitted(heading: str, rows: Sequence[Row], columns: Sequence[Column], width: int) -> Table:
    """A table of rows with as many of the columns as fit."""
    names = [plain_text(row.name) for row in rows]
    longest = min(max(map(cell_len, (heading, *names))), max(len(heading), width // 4))
    bar = LEAST_BAR if any(row.share is not None for row in rows) else 0
    kept = list(columns)
    gap = 2 if _taken(kept, 2) + longest + 2 + bar <= width else 1
    while kept and _taken(kept, gap) + longest + gap + bar > width:
        least = max(column.rank for column in kept)
        kept = [column for column in kept if column.rank < least]
    bar = bar and min(BAR, width - longest - gap - _taken(kept, gap))
    # Columns stand one apart, or two by their padding.
    padding = (0, gap - 1, 0, 0)
    table = Table(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False)
    table.add_column(heading, overflow="fold", width=longest)
    for column in kept:
        table.add_column(
            Text(column.heading), justify="right", no_wrap=True, min_width=column.width
        )
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        cells = [Text(column.cells[number]) for column in kept]
        bars = [] if row.share is None else [ProgressBar(1.0, row.share, width=bar)]
        table.add_row(Text(name), *cells, *bars)
    return table


def _taken(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width + gap for column in columns)


def measured(value: float | None, target: float | None) -> str:
    """A metric in few letters, or in as many as it needs to be told from its target."""
    if value is None or abs(value) >= 1000:
        return "" if value is None else f"{value:.3g}"
    texts = (f"{value:.{digits}f}" for digits in range(3, 9))
    return next((text for text in texts if value == target or float(text) != target), f"{value}")
