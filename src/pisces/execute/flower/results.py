"""What came of a run, as Flower tells it: metrics by version, from ClientApps and the ServerApp."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any, TypeAlias

import numpy as np

from pisces.errors import ConfigError
from pisces.execute.flower.api import ArrayRecord, MetricRecord, RecordDict, Result
from pisces.execute.flower.arrays import Arrays
from pisces.record.lines import TAKEN, Line
from pisces.types import (
    Aggregated,
    Distrusted,
    Dropped,
    Entry,
    Evaluated,
    Failed,
    Ignored,
    Joined,
    Update,
    Weights,
)

log = logging.getLogger("pisces")

REFUSED = "update refused"  # as the client manager says

Combine: TypeAlias = Callable[[list[RecordDict], str], MetricRecord | None]
Evaluate: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]


class Collected:
    """A recorder that puts together what the updates of a version were told with."""

    def __init__(self, weighted_by: str, combine: Combine | None = None) -> None:
        self._weighted_by, self._combine = weighted_by, combine
        self._told: dict[int, MetricRecord] = {}  # by task
        self.by_version: dict[int, MetricRecord] = {}

    def hear(self, task: int, record: MetricRecord) -> None:
        """The metrics of a result, just before the loop hears of it."""
        self._told[task] = record

    def record(self, entry: Entry) -> None:
        """Follow what becomes of the results."""
        match entry:
            case Aggregated():
                told = self._taken(entry.task_ids)
                said = combined(told, self._weighted_by, self._combine) if told else None
                if said is not None:
                    self.by_version[entry.version] = said
            case Dropped() | Failed() | Ignored() if entry.task_id is not None:
                self._told.pop(entry.task_id, None)

    def close(self) -> None:
        """Nothing is held."""

    def _taken(self, tasks: Iterable[int]) -> list[MetricRecord]:
        """What came in before this process took the run up was told to another."""
        return [self._told.pop(task) for task in tasks if task in self._told]


def combined(
    records: Sequence[MetricRecord], weighted_by: str, combine: Combine | None
) -> MetricRecord | None:
    """Of several, one: as the app says, which may be nothing, or their mean."""
    return (combine or mean)([RecordDict({"metrics": r}) for r in records], weighted_by)


def mean(contents: list[RecordDict], weighted_by: str) -> MetricRecord:
    """The mean of each metric over those that tell it, by number of examples, as Flower has it.

    What has none is left out (lists of other lengths, numbers beyond all floats): one node may tell
    anything, which is no reason to end a run.
    """
    told: dict[str, list[tuple[Any, Any]]] = {}
    for content in contents:
        record = next(iter(content.metric_records.values()))
        for name, value in record.items():
            if name != weighted_by:
                told.setdefault(name, []).append((record[weighted_by], value))
    means = {name: _mean(*zip(*parts, strict=True)) for name, parts in told.items()}
    return MetricRecord({name: value for name, value in means.items() if value is not None})


def _mean(sizes: Sequence[Any], values: Sequence[Any]) -> Any:
    try:
        shares = np.array(sizes, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # infinities are the nodes' own
            return np.tensordot(shares / shares.sum(), np.array(values, np.float64), 1).tolist()
    except (OverflowError, ValueError):
        return None


class Doubts:
    """A recorder that says whose updates are refused, and who is not asked any more."""

    def __init__(self) -> None:
        self._refused: dict[int, str] = {}  # and that was said: why at first
        self._known: set[int] = set()
        self._distrusted: set[int] = set()
        self._has_used = False  # anything, ever

    def record(self, entry: Entry) -> None:
        """Follow whom the server trusts."""
        match entry:
            case Joined():
                self._known.add(entry.client)
            case Update():
                self._has_used = True
            case Failed() if entry.reason.startswith(REFUSED) and entry.client not in self._refused:
                self._refused[entry.client] = entry.reason
                log.warning("client %d: %s", entry.client, entry.reason)
            case Distrusted():
                self._distrusted.add(entry.client)
                log.warning("client %d is not asked any more: it has no credit left", entry.client)
                if self._known <= self._distrusted:
                    self._say_that_nobody_is_left(entry.client)

    def recall(self, line: Line) -> None:
        """What a ServerApp before this one wrote down."""
        match line:
            case {"kind": "joined", "client": int(client)}:
                self._known.add(client)
            case {"kind": "distrusted", "client": int(client)}:
                self._distrusted.add(client)
            case {"kind": "arrived"}:
                self._has_used = True

    def close(self) -> None:
        """Nothing is held."""

    def _say_that_nobody_is_left(self, last: int) -> None:
        """Others may come, and do better; where nothing was ever of use, that is no hope."""
        if not self._has_used:
            raise ConfigError(
                f"every update of every node was refused, the last by: "
                f"{self._refused.get(last, REFUSED)}; mend the ClientApp, or raise limits=Limits("
                "...) if what it tells is right, and begin anew"
            )
        log.error(
            "nobody is left who is trusted: mend the ClientApp, or raise limits=Limits(...) if "
            "what it tells is right, and begin anew"
        )


class Hook:
    """The app's own evaluation of versions; what it says is kept whole for the result."""

    def __init__(self, evaluate: Evaluate, arrays: Arrays, initial: ArrayRecord) -> None:
        self._evaluate, self._arrays = evaluate, arrays
        self.by_version: dict[int, MetricRecord] = {}
        self._first = self._numbers(0, initial)

    @property
    def names(self) -> tuple[str, ...]:
        """What it measures, found out by asking for version 0."""
        return tuple(self._first)

    def __call__(self, version: int, weights: Weights) -> dict[str, float]:
        """The numbers of a version; of the first they are known."""
        return self._numbers(version, self._arrays.record(weights)) if version else self._first

    def record(self, entry: Entry) -> None:
        """Of versions that were evaluated before, only numbers are known."""
        if isinstance(entry, Evaluated) and entry.version not in self.by_version:
            self.recall(entry.version, entry.metrics)

    def close(self) -> None:
        """Nothing is held."""

    def recall(self, version: int, metrics: Mapping[str, float | None]) -> None:
        """What a ServerApp before this one heard of a version."""
        known = {name: value for name, value in metrics.items() if value is not None}
        if known:
            self.by_version[version] = MetricRecord(dict(known))

    def _numbers(self, version: int, record: ArrayRecord) -> dict[str, float]:
        measured = self._evaluate(version, record)
        if measured is None:
            return {}
        if not isinstance(measured, MetricRecord):
            raise ConfigError(
                'evaluate_fn: must return a MetricRecord, such as MetricRecord({"accuracy": 0.9}), '
                f"or None, not {shortened(measured)}"
            )
        for taken in TAKEN:
            if taken in measured:
                raise ConfigError(f"evaluate_fn: a metric may not be called {taken!r}: rename it")
        self.by_version[version] = measured
        numbers = {n: float(v) for n, v in measured.items() if not isinstance(v, list)}
        told = ", ".join(f"{name} {number:.4g}" for name, number in numbers.items())
        log.info("version %d evaluated: %s", version, told)  # as Flower's own strategies do
        return numbers


def result_of(
    arrays: ArrayRecord, collected: Collected, hook: Hook | None, at_last: dict[int, MetricRecord]
) -> Result:
    """All of it, as Flower's own strategies give it."""
    by_server = {} if hook is None else hook.by_version
    return Result(arrays, collected.by_version, at_last, by_server)
