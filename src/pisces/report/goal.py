"""What runs are looked at for: one rule for tables, pictures and pages, and for the live page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.record.summary import metric_among
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import metric_of, target_of
from pisces.stop import Stop

NO_TARGET = "these runs have no target in common: say one with --target 0.9"


@dataclass(frozen=True, slots=True)
class Goal:
    """A metric, and the value of it to be reached; None is none, or none that runs agree on.

    `reference` is the protocol whose speed-ups are told; None leaves that to `compare`.
    """

    metric: str
    target: float | None = None
    reference: str | None = None

    @classmethod
    def of(
        cls,
        runs: Iterable[Run],
        metric: str | None = None,
        target: float | None = None,
        reference: str | None = None,
    ) -> Goal:
        """As asked for, or else what all of these runs that say are about.

        That of each is as its summary or config says; see `pisces.record.summary.metric_among`.
        """
        metric, target = _agreed([_told(run) for run in runs], metric, target)
        return cls(metric, target, reference)

    @classmethod
    def watched(
        cls, ledgers: Iterable[Ledger], metric: str | None = None, target: float | None = None
    ) -> Goal:
        """The same of runs that may still go on."""
        return cls(*_agreed([_seen(ledger) for ledger in ledgers], metric, target))

    @property
    def needed(self) -> float:
        """The target, where there must be one."""
        if self.target is None:
            raise RunError(NO_TARGET)
        return self.target


Own: TypeAlias = tuple[str | None, float | None]  # what one run says: its metric, its target


def _told(run: Run) -> Own:
    summary = run.summary
    named, target = (summary.get(key, run.setting("stop", key)) for key in ("metric", "target"))
    return _own(named, metric_among(named, summary["final"]), target)


def _seen(ledger: Ledger) -> Own:
    named = ledger.setting("stop", "metric")
    return _own(named, metric_of(ledger) or metric_among(named, ()), target_of(ledger))


def _own(named: object, metric: str | None, target: float | None) -> Own:
    """A target is one of the metric that the run names, if it names any."""
    return metric, target if named in (None, metric) else None


def _agreed(
    own: Sequence[Own], metric: str | None, target: float | None
) -> tuple[str, float | None]:
    if metric is None:
        metrics = list(dict.fromkeys(name for name, _ in own if name is not None))
        if len(metrics) > 1:
            names = ", ".join(metrics)
            raise RunError(
                f"these runs are about different metrics ({names}): choose one as the metric"
            )
        metric = metrics[0] if metrics else Stop().metric
    if target is None:
        targets = {value for name, value in own if name == metric and value is not None}
        target = targets.pop() if len(targets) == 1 else None
    return metric, target
