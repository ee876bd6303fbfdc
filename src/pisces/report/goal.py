"""What runs are looked at for: one rule for tables, pictures and pages, and for the live page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pisces.errors import RunError
from pisces.record.reader import Run, no_such_metric
from pisces.report.ledger import Ledger
from pisces.report.ledger.summary import ReadRun
from pisces.stop import Stop, meets

NO_TARGET = "these runs have no target in common"
SAY_ONE = f"{NO_TARGET}: say one with --target 0.9"


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

        That of each is its `aim`.
        """
        metric, target = _agreed([run.aim for run in runs], metric, target)
        return cls(metric, target, reference)

    @classmethod
    def watched(
        cls, ledgers: Iterable[Ledger], metric: str | None = None, target: float | None = None
    ) -> Goal:
        """The same of runs that may still go on."""
        return cls.of([ReadRun.of(ledger) for ledger in ledgers], metric, target)

    @property
    def needed(self) -> float:
        """The target, where there must be one."""
        if self.target is None:
            raise RunError(SAY_ONE)
        return self.target

    def refusal(self, runs: Iterable[Run]) -> str | None:
        """Why one of these cannot be held to it, if there is such a one."""
        reasons = (self._unmeasured(run) or self._good_enough(run) for run in runs)
        return next(filter(None, reasons), None)

    def check(self, runs: Iterable[Run]) -> None:
        """Refuse runs that cannot be held to it."""
        if why := self.refusal(runs):
            raise RunError(why)

    def _unmeasured(self, run: Run) -> str | None:
        """It was evaluated, but never by this metric: that is not to say it did badly."""
        known = run.metrics
        is_known = self.metric in known or not known
        return None if is_known else no_such_metric(run.path, self.metric, known)

    def _good_enough(self, run: Run) -> str | None:
        """It stopped when it had reached less."""
        metric, own = run.aim
        has_stopped = run.counts.reason == "target" and metric == self.metric
        if not has_stopped or own is None or self.target is None:
            return None
        if meets(own, self.target, self.metric):
            return None
        return (
            f"{run.path} stopped once it had reached {own:g}, so nobody knows when it would have "
            f"reached {self.target:g}: choose a target up to {own:g}, or make the run again with "
            "another stop.target"
        )


Own: TypeAlias = tuple[str | None, float | None]  # what one run says: its metric, its target


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
