"""What a run came to, counted line by line, live or from a file."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pisces.record.lines import TAKEN, Line, line
from pisces.stop import best, gain
from pisces.types import AT_THE_END, CALLED_OFF, Entry, State


@dataclass(frozen=True, slots=True, eq=False)
class Involvement:
    """How often each client that ever joined was asked, in columns sorted by client."""

    clients: NDArray[np.int64]
    num_examples: NDArray[np.int64]
    num_started: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run came to, or has so far; None is what is not known.

    `reason` is why it stopped: None for a run that was killed, or is not over. `num_updates` is how
    many arrived; of those, `num_aggregated` went into a version and `num_dropped` were not wanted.
    `num_called_off` tasks were not waited for; of those, `num_under_way` were under way when the
    run stopped. `final` and `best` are of each metric, None where it was not a number.
    """

    reason: str | None
    at: float
    versions: int
    num_clients: int  # that ever joined
    num_clients_started: int  # of these, that were ever given a task
    num_started: int
    num_updates: int
    num_aggregated: int
    num_dropped: int
    num_failed: int
    num_called_off: int
    num_under_way: int
    num_left: int
    max_staleness: int | None
    mean_staleness: float | None
    num_outliers: int
    distrusted: Sequence[int]
    final: Mapping[str, float | None]
    best: Mapping[str, float | None]

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Counts:
        """Those of a summary, which says more besides."""
        return cls(**{name: summary[name] for name in COUNTED})

    @property
    def is_cut_short(self) -> bool:
        """Was it interrupted, or killed, or is it not over yet?"""
        return self.reason in (None, "interrupted")

    @property
    def num_given_up(self) -> int:
        """Tasks the protocol did not wait for; those the run's end cut off are another matter."""
        return max(0, self.num_called_off - self.num_under_way)


COUNTED = tuple(field.name for field in fields(Counts))
_SAVED = ("at", "reason", "num_called_off", "num_under_way", "version")
BEST_KNOWN = ("accuracy", "perplexity", "loss")  # metrics, where a run names none
# What a failure was, as its reason says: not every task was wanted to its end.
Ending: TypeAlias = Literal["failed", "called off", "cut off"]


class Tally:
    """Counts lines as they come; itself a recorder, so that it can listen to a live run."""

    def __init__(self) -> None:
        self._at = 0.0
        self._counts: Counter[str] = Counter()
        self._reason: str | None = None
        self._num_called_off = 0
        self._num_under_way = 0  # of these, when the run stopped
        self._version = 0
        self._staleness: Counter[int] = Counter()
        self._distrusted: list[int] = []
        self._evaluated: list[tuple[float, Mapping[str, float | None]]] = []
        self._num_examples = array("q")  # by client; -1: it never joined
        self._num_started = array("q")  # by client

    def record(self, entry: Entry) -> None:
        """Count a live entry."""
        self.add(line(entry))

    def close(self) -> None:
        """Nothing is held; the counts stay."""

    def state(self) -> State:
        """All counts, for a log from which they cannot be counted again."""
        state = State({name: getattr(self, f"_{name}") for name in _SAVED})
        state.values |= {
            "counts": dict(self._counts),
            "staleness": [list(pair) for pair in sorted(self._staleness.items())],
            "distrusted": list(self._distrusted),
            "evaluated": [[at, dict(metrics)] for at, metrics in self._evaluated],
        }
        columns = {"num_examples": self._num_examples, "num_started": self._num_started}
        state.arrays |= {name: np.array(column, np.int64) for name, column in columns.items()}
        return state

    def restore(self, state: State) -> None:
        """Take them up."""
        for name in _SAVED:
            setattr(self, f"_{name}", state.values[name])
        self._counts = Counter(state.values["counts"])
        self._staleness = Counter(dict(state.values["staleness"]))
        self._distrusted = list(state.values["distrusted"])
        self._evaluated = [(at, metrics) for at, metrics in state.values["evaluated"]]
        self._num_examples = array("q", state.arrays["num_examples"].tobytes())
        self._num_started = array("q", state.arrays["num_started"].tobytes())

    def add(self, line: Line) -> None:
        """Count one line; kinds nobody knows only move the clock."""
        self._at = max(self._at, line["at"])
        self._counts[line["kind"]] += 1
        match line["kind"]:
            case "joined":
                self._make_room(line["client"])
                self._num_examples[line["client"]] = line["num_examples"]
            case "started":
                self._make_room(line["client"])
                self._num_started[line["client"]] += 1
            case "aggregated":
                self._version = line["version"]
                self._staleness.update(line["staleness"])
            case "evaluated":
                self._evaluated.append((line["at"], metrics_of(line)))
            case "distrusted":
                self._distrusted.append(line["client"])
            case "failed":
                ending = ending_of(line["reason"])
                self._num_called_off += ending != "failed"
                self._num_under_way += ending == "cut off"
            case "stopped":
                self._reason = line["reason"]

    def summary(self) -> dict[str, Any]:
        """All counts by name, as they are saved."""
        return asdict(self.counts())

    def counts(self) -> Counts:
        """All counts."""
        counts = self._counts
        num_aggregated = self._staleness.total()
        total = sum(staleness * num for staleness, num in self._staleness.items())
        return Counts(
            reason=self._reason,
            at=self._at,
            versions=self._version,
            num_clients=len(self._num_examples) - self._num_examples.count(-1),
            num_clients_started=len(self._num_started) - self._num_started.count(0),
            num_started=counts["started"],
            num_updates=counts["arrived"],
            num_aggregated=num_aggregated,
            num_dropped=counts["dropped"],
            num_failed=counts["failed"] - self._num_called_off,
            num_called_off=self._num_called_off,
            num_under_way=self._num_under_way,
            num_left=counts["left"],
            max_staleness=max(self._staleness, default=None),
            mean_staleness=total / num_aggregated if num_aggregated else None,
            num_outliers=counts["outlier"],
            distrusted=sorted(self._distrusted),
            final=self._final(),
            best=self._best(),
        )

    def time_to_target(self, target: float, metric: str = "accuracy") -> float | None:
        """When an evaluation first met the target; None if none did."""
        return time_to_target(curve(self._evaluated, metric), target, metric)

    def involvement(self) -> Involvement:
        """Who took part how often, beside how much data it has."""
        num_examples, num_started = np.array(self._num_examples), np.array(self._num_started)
        clients = np.flatnonzero(num_examples >= 0)
        return Involvement(clients, num_examples[clients], num_started[clients])

    def _make_room(self, client: int) -> None:
        """A row for the client; there are at least as many again, so that few calls copy."""
        missing = client + 1 - len(self._num_started)
        if missing > 0:
            missing = max(missing, len(self._num_started))
            self._num_examples.extend([-1] * missing)
            self._num_started.extend([0] * missing)

    def _final(self) -> dict[str, float | None]:
        """The last value of each metric; None if it was not a number."""
        return {name: value for _, metrics in self._evaluated for name, value in metrics.items()}

    def _best(self) -> dict[str, float | None]:
        return {name: self._best_of(name) for name in self._final()}

    def _best_of(self, metric: str) -> float | None:
        values = [v for _, v in curve(self._evaluated, metric) if not math.isnan(v)]
        return best(values, metric)


def ending_of(reason: str) -> Ending:
    """What it was by its reason; `cut off`: it was under way when the run stopped."""
    if reason.startswith(AT_THE_END):
        return "cut off"
    return "called off" if reason.startswith(CALLED_OFF) else "failed"


def metrics_of(line: Line) -> dict[str, float | None]:
    """The metrics among the keys of an `evaluated` line."""
    return {key: value for key, value in line.items() if key not in TAKEN}


def curve(
    evaluated: Iterable[tuple[float, Mapping[str, float | None]]], metric: str
) -> list[tuple[float, float]]:
    """The (instant, value) pairs of one metric, NaN where its value was not a number."""
    return [
        (at, math.nan if (value := metrics[metric]) is None else value)
        for at, metrics in evaluated
        if metric in metrics
    ]


def metric_among(named: object, known: Iterable[str]) -> str | None:
    """What a run is about: the metric it names, or the best known of those it was evaluated by.

    The one it names counts as long as nothing was evaluated, too.
    """
    names = list(known)
    if isinstance(named, str) and (named in names or not names):
        return named
    return next((name for name in (*BEST_KNOWN, *names) if name in names), None)


def own_goal(
    named: object, known: Iterable[str], target: float | None
) -> tuple[str | None, float | None]:
    """The metric a run is about, and its target, which is one of the metric that it names."""
    metric = metric_among(named, known)
    return metric, target if named in (None, metric) else None


def time_to_target(
    curve: Iterable[tuple[float, float]], target: float, metric: str
) -> float | None:
    """The first instant with value >= target, or <= target where lower is better."""
    sign, least = gain(1.0, metric), gain(target, metric)  # once: curves may be long
    return next((at for at, value in curve if sign * value >= least), None)
