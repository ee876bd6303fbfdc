"""What a run came to, from its ledger: the same as `pisces.record.summary` counts from its file."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.record.summary import Counts, Involvement, time_to_target
from pisces.report.arrays import Floats
from pisces.report.ledger.book import Ledger
from pisces.report.ledger.notes import Notes
from pisces.stop import best


def counted(ledger: Ledger) -> Counts:
    """All counts, as a `Tally` has them."""
    with ledger.lock:
        return _counted(ledger)


def _counted(ledger: Ledger) -> Counts:
    notes, counts = ledger.notes, ledger.notes.counts
    num = notes.staleness.total()
    total = sum(staleness * times for staleness, times in notes.staleness.items())
    clients = notes.clients
    return Counts(
        reason=notes.reason,
        at=notes.at,
        versions=notes.version,
        num_clients=int(np.count_nonzero(clients["joined_line"] >= 0)),
        num_clients_started=int(np.count_nonzero(clients["picks"])),
        num_started=counts["started"],
        num_updates=counts["arrived"],
        num_aggregated=num,
        num_dropped=counts["dropped"],
        num_failed=counts["failed"] - notes.num_called_off,
        num_called_off=notes.num_called_off,
        num_under_way=notes.num_under_way,
        num_left=counts["left"],
        max_staleness=max(notes.staleness, default=None),
        mean_staleness=total / num if num else None,
        num_outliers=counts["outlier"],
        distrusted=sorted(clients["client"][clients["distrusted_line"] >= 0].tolist()),
        final={name: last_of(ledger, name) for name in ledger.metrics},
        best={name: best_of(ledger, name) for name in ledger.metrics},
    )


def involvement(notes: Notes) -> Involvement:
    """Who took part how often, as a `Tally` has it."""
    clients = notes.clients
    joined = np.flatnonzero(clients["joined_line"] >= 0)
    rows = joined[np.argsort(clients["client"][joined])]
    return Involvement(*(clients[name][rows] for name in ("client", "num_examples", "picks")))


def last_of(ledger: Ledger, metric: str) -> float | None:
    """The metric's last value, if it is a number."""
    _, values = ledger.curve(metric)
    return None if not len(values) or math.isnan(values[-1]) else float(values[-1])


def best_of(ledger: Ledger, metric: str) -> float | None:
    """Its best value."""
    _, values = ledger.curve(metric)
    return best(values[~np.isnan(values)].tolist(), metric)


def reached_at(ledger: Ledger, target: float | None, metric: str) -> float | None:
    """When an evaluation first met the target; None if none did, or there is none."""
    if target is None:
        return None
    times, values = ledger.curve(metric)
    return time_to_target(zip(times.tolist(), values.tolist(), strict=True), target, metric)


def is_target_known(ledger: Ledger) -> bool:
    """Is it known whether there is a target? Of a run made by a program its summary tells."""
    return not _is_told_later(ledger) or "target" in ReadRun.of(ledger).saved


def _is_told_later(ledger: Ledger) -> bool:
    """Has the run no config, or one of a program that did not write what it stops at?"""
    try:
        config = ledger.run.config
    except RunError:
        return True
    return not config or ("made_in" in config and "stop" not in config)


@dataclass(frozen=True)
class ReadRun(Run):
    """A run whose log is read already: all but `events` and `tally` is answered from its ledger."""

    ledger: Ledger = field(compare=False, repr=False)
    called: str | None = field(default=None, compare=False)  # in place of its protocol's name

    @classmethod
    def of(cls, ledger: Ledger) -> ReadRun:
        """The run of this ledger."""
        return cls(ledger.path, ledger)

    @classmethod
    def whole(cls, run: Run) -> ReadRun:
        """With all that its log tells, as far as it can be read; one that was read is as it is.

        Where its config or its summary cannot be read, that is refused.
        """
        if isinstance(run, ReadRun):
            return run
        _ = run.config, run.saved
        return cls.of(Ledger.whole(run.path))

    @property
    def protocol(self) -> str:
        """What its protocol is called here."""
        return self.called or super().protocol

    @property
    def config(self) -> dict[str, Any]:
        """As the ledger has read it; empty where it cannot be, for the log says the rest."""
        try:
            return self.ledger.run.config
        except RunError:
            return {}

    @property
    def saved(self) -> dict[str, Any]:
        """Its summary, if that is of this end: one may lie there from before a resume."""
        with self.ledger.lock:
            if self.ledger.notes.reason is None:
                return {}
        with suppress(RunError):
            return super().saved
        return {}

    @property
    def counts(self) -> Counts:
        """Counted from the ledger."""
        return counted(self.ledger)

    def _counted(self) -> Counts:
        return self.counts

    @property
    def metrics(self) -> Collection[str]:
        """By which it was evaluated so far."""
        return self.ledger.metrics

    @property
    def sampled(self) -> float | None:
        """Of what share of the clients the log tells; `None`: of all."""
        return super().sampled if self.ledger.is_sampled else None

    def curve(self, metric: str = "accuracy") -> tuple[Floats, Floats]:
        """Instants and values of a metric; none where it was never evaluated."""
        return self.ledger.curve(metric)

    def time_to_target(self, target: float, metric: str = "accuracy") -> float | None:
        """When an evaluation first met the target; None if none did."""
        return reached_at(self.ledger, target, metric)


def notes_of(run: Run) -> Notes:
    """All that its log tells; refused where that cannot be read to its end, or not be counted."""
    ledger = ReadRun.whole(run).ledger
    if ledger.problem is not None:
        raise RunError(ledger.problem)
    return ledger.notes


def read_once(run: Run) -> Run:
    """The run with its log read, so that nothing it is asked reads it again; refused as above.

    One whose log is sampled stays as it is: it has its metrics and its summary, and no more.
    """
    read = ReadRun.whole(run)
    if read.ledger.is_sampled:
        return read.ledger.run
    notes_of(read)
    return read
