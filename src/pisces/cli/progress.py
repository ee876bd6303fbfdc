"""Live progress of one run or many, from the lines they record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich import box
from rich.console import RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from pisces.cli.console import stderr
from pisces.record.lines import Line, Recorder, line
from pisces.report.table import duration
from pisces.tables import StopAt
from pisces.types import Entry

REFRESH_S = 0.1


@dataclass(slots=True)
class Standing:
    """Where a run stands, line by line."""

    protocol: str
    seed: int
    stop: StopAt
    at: float = 0.0
    version: int = 0
    num_running: int = 0
    num_updates: int = 0
    value: float | None = None
    reason: str | None = None

    def add(self, line: Line) -> None:
        """Note what a line changes."""
        self.at = max(self.at, line["at"])  # an evaluation may be told late
        match line["kind"]:
            case "started":
                self.num_running += 1
            case "arrived":
                self.num_running -= 1
                self.num_updates += 1
            case "failed" | "left":
                self.num_running -= "task" in line
            case "aggregated":
                self.version = line["version"]
            case "evaluated":
                self.value = line.get(self.stop.metric)
            case "stopped":
                self.reason = line["reason"]

    @property
    def has_begun(self) -> bool:
        """Has anything been recorded?"""
        return self.at > 0 or self.num_running > 0

    @property
    def share(self) -> float:
        """How far it is on the way to the nearest limit."""
        if self.reason is not None:
            return 1.0
        limits = (
            (self.at, self.stop.time_s),
            (self.version, self.stop.versions),
            (self.num_updates, self.stop.updates),
        )
        return min(1.0, max(done / limit for done, limit in limits if limit))


class Listener(Recorder):
    """Keeps a standing up to date while a run goes on in this process."""

    def __init__(self, standing: Standing, redraw: Callable[[], None]) -> None:
        self._standing = standing
        self._redraw = redraw
        self._drawn_at = 0.0

    def record(self, entry: Entry) -> None:
        """Note the entry; redraw now and then."""
        self._standing.add(line(entry))
        if time.monotonic() - self._drawn_at >= REFRESH_S or self._standing.reason:
            self._drawn_at = time.monotonic()
            self._redraw()

    def close(self) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class Board:
    """A table of protocols, each with the run it is at."""

    metric: str
    runs: Sequence[Standing] = field(default_factory=list)

    def __rich__(self) -> RenderableType:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("protocol", overflow="fold")
        for heading in ("seed", "time", "version", "updates", "running", self.metric):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("progress", no_wrap=True)
        for protocol in dict.fromkeys(run.protocol for run in self.runs):
            table.add_row(*self._row([run for run in self.runs if run.protocol == protocol]))
        return table

    def _row(self, runs: Sequence[Standing]) -> tuple[RenderableType, ...]:
        bar = ProgressBar(len(runs), sum(run.share for run in runs), width=16)
        begun = [run for run in runs if run.has_begun]
        if not begun:
            return (runs[0].protocol, *[""] * 6, bar)
        current = next((run for run in begun if run.reason is None), begun[-1])
        return (
            current.protocol,
            str(current.seed),
            f"{current.at:.0f} s",
            str(current.version),
            str(current.num_updates),
            str(current.num_running),
            "" if current.value is None else f"{current.value:.3f}",
            bar,
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs that belong together, with about how many seconds each of them takes."""

    name: str
    runs: Sequence[Standing]
    run_s: float

    @property
    def num_done(self) -> int:
        """How many are over."""
        return sum(run.reason is not None for run in self.runs)

    @property
    def under_way(self) -> list[Standing]:
        """Those that have begun and are not over, the furthest behind first."""
        begun = [run for run in self.runs if run.reason is None and run.has_begun]
        return sorted(begun, key=lambda run: run.share)

    @property
    def work_s(self) -> float:
        """What there is to do altogether."""
        return self.run_s * len(self.runs)

    @property
    def done_s(self) -> float:
        """What of it is done."""
        return self.run_s * sum(run.share for run in self.runs)


@dataclass(slots=True)
class Overview:
    """Hundreds of runs: a row for each batch that is under way, and how long it all still takes."""

    batches: Sequence[Batch]
    now: Callable[[], float] = time.monotonic
    began_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_at = self.now()

    def left_s(self) -> float | None:
        """The time left if it goes on as it went so far; None before there is anything to go by."""
        work, done = (sum(getattr(b, n) for b in self.batches) for n in ("work_s", "done_s"))
        return (self.now() - self.began_at) * (work - done) / done if done else None

    def __rich__(self) -> RenderableType:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("study/case", overflow="fold")
        for heading in ("done", "running", "slowest"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("progress", no_wrap=True)
        for batch in self.batches:
            if batch.under_way:
                table.add_row(*_batch_row(batch))
        table.caption = self._caption()
        return table

    def _caption(self) -> str:
        num_done = sum(batch.num_done for batch in self.batches)
        num_runs = sum(len(batch.runs) for batch in self.batches)
        left = self.left_s()
        told = "" if left is None else f"; about {duration(left)} left"
        return f"{num_done} of {num_runs} runs{told}"


def _batch_row(batch: Batch) -> tuple[RenderableType, ...]:
    slowest = batch.under_way[0]
    return (
        batch.name,
        f"{batch.num_done} of {len(batch.runs)}",
        str(len(batch.under_way)),
        f"{slowest.protocol}, seed {slowest.seed}",
        ProgressBar(batch.work_s, batch.done_s, width=16),
    )


@contextmanager
def shown(
    board: Board | Overview, quiet: bool, *, by_itself: bool = False
) -> Iterator[Callable[[], None]]:
    """Show the board on stderr while it changes; gives the function that draws it anew.

    `by_itself` it is drawn anew every now and then as well.
    """
    if quiet:
        yield lambda: None
        return
    with Live(board, console=stderr, auto_refresh=by_itself, transient=True) as live:
        yield live.refresh
