"""What studies there are, and how much of them is done: `pisces reproduce` without a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TypeAlias

from rich import box
from rich.table import Table

from pisces.cli.checks import Wanted
from pisces.errors import DataError, MissingDataError
from pisces.quantities import duration
from pisces.study.work import Work

HasData: TypeAlias = Callable[[str, str | None], bool]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many runs, how many of them done, how long the rest takes, how many lack their data."""

    runs: int
    done: int
    left_s: float
    no_data: int

    @classmethod
    def of(cls, wanted: Sequence[Wanted], has_data: HasData) -> Counts:
        """Those of some runs."""
        left = [(work, run) for work, run in wanted if run.key not in work.records]
        ready = [
            (w, run) for w, run in left if has_data(run.config.data.dataset, run.config.data.folder)
        ]
        left_s = sum(work.run_s(run.case) for work, run in ready)
        return cls(len(wanted), len(wanted) - len(left), left_s, len(left) - len(ready))

    def cells(self) -> list[str]:
        """As they stand in the table: nothing where there is nothing to do, or to say."""
        has_left = self.runs > self.done + self.no_data
        time = duration(self.left_s) if has_left else ""
        return [str(self.runs), str(self.done), time, str(self.no_data or "")]


def listing(works: Sequence[Work]) -> Table:
    """A row for each study, and one for all of them."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("study", no_wrap=True)
    table.add_column("in the paper")
    for heading in ("runs", "done", "left, about", "no data"):
        table.add_column(heading, justify="right", no_wrap=True)
    has_data = _finder()
    for work in works:
        table.add_row(work.name, work.study.paper or "", *_of(work, has_data).cells())
    table.add_section()
    together = Counts.of(_each_once(works), has_data)
    table.add_row("together", "each run once", *together.cells())
    table.caption = (
        "times: one run at a time, guessed for a GPU until runs have been measured; "
        "no data: runs whose dataset is not there (pisces data list), which no time counts"
    )
    return table


def as_values(works: Sequence[Work]) -> dict[str, Any]:
    """The same for programs."""
    has_data = _finder()
    studies = [
        {"study": work.name, "paper": work.study.paper, **asdict(_of(work, has_data))}
        for work in works
    ]
    return {"studies": studies, "together": asdict(Counts.of(_each_once(works), has_data))}


def _of(work: Work, has_data: HasData) -> Counts:
    return Counts.of([(work, run) for run in work.asked], has_data)


def _each_once(works: Iterable[Work]) -> list[Wanted]:
    """All runs that are asked for; what several studies ask for is left if one of them lacks it."""
    every = [(work, run) for work in works for run in work.asked]
    every.sort(key=lambda wanted: wanted[1].key not in wanted[0].records)  # the last one counts
    return list({run.digest: (work, run) for work, run in every}.values())


def _finder() -> HasData:
    """Tells whether a dataset is there, looking for each once."""
    from pisces.data import finding  # torch is slow to import

    @cache
    def has_data(dataset: str, folder: str | None) -> bool:
        try:
            finding.found(dataset, finding.folders(folder))
        except MissingDataError:
            return False
        except (KeyError, DataError):  # built in; or damaged, which is told when it is run
            pass
        return True

    return has_data
