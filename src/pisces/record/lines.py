"""The record's format: what one entry looks like as a JSON object, and where entries go.

Kinds and keys may be added; those that exist keep their meaning. Whoever reads lines ignores kinds
and keys it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol, assert_never

from pisces.errors import ConfigError
from pisces.types import (
    Aggregated,
    Distrusted,
    Dropped,
    Entry,
    Evaluated,
    Failed,
    Ignored,
    Joined,
    Left,
    Outlier,
    Picked,
    Started,
    Stopped,
    Update,
)

Line = dict[str, Any]
MOST_STEPS = 1_000_000_000  # of one task, as in the clients' table
TAKEN = ("kind", "at", "version")  # keys of a line, beside which metrics stand

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def line(entry: Entry) -> Line:
    """The entry as a JSON object: its kind, the instant in seconds, then what is particular to it.

    `version` is the one trained from (started, arrived), the one just made (aggregated) or the one
    looked at (evaluated). `weights` are the coefficients applied to `tasks`, in their order. A
    number that is not finite becomes null.
    """
    match entry:
        case Joined(at):
            return _line("joined", at, client=entry.client, num_examples=entry.num_examples)
        case Picked(at):
            return _picked(entry)
        case Started(at):
            return _line(
                "started",
                at,
                task=entry.task_id,
                client=entry.client,
                version=entry.version,
                **_if_known(num_steps=entry.num_steps),
            )
        case Update():
            return _line(
                "arrived",
                entry.arrived_at,
                task=entry.task_id,
                client=entry.client,
                version=entry.version,
                num_examples=entry.report.num_examples,
                loss=entry.report.loss,
                loss_rms=entry.report.loss_rms,
                loss_left=entry.report.loss_left,
                latency_s=entry.latency_s,
                **_if_known(num_steps=_told(entry.report.num_steps)),
            )
        case Failed(at, client, reason, task):
            return _line("failed", at, **_if_known(task=task), client=client, reason=reason)
        case Left(at, client, reason, task):
            return _line("left", at, **_if_known(task=task), client=client, reason=reason)
        case Dropped(at):
            return _line("dropped", at, task=entry.task_id, reason=entry.reason)
        case Ignored(at):
            return _line(
                "ignored", at, task=entry.task_id, client=entry.client, reason=entry.reason
            )
        case Aggregated(at):
            return _line(
                "aggregated",
                at,
                version=entry.version,
                tasks=entry.task_ids,
                staleness=entry.staleness,
                weights=entry.coefficients,
                **_if_known(reason=entry.reason, pace=entry.pace),
            )
        case Evaluated(at, version):
            return _line("evaluated", at, version=version, **_named_apart(entry.metrics))
        case Outlier(at):
            return _line(
                "outlier", at, client=entry.client, task=entry.task_id, credits=entry.credits
            )
        case Distrusted(at):
            return _line("distrusted", at, client=entry.client)
        case Stopped(at):
            return _line("stopped", at, reason=entry.reason)
        case _:
            assert_never(entry)


def _picked(entry: Picked) -> Line:
    told = {"version": entry.version, "slots": entry.slots, "num_free": entry.num_free}
    scored = {"terms": entry.terms, "scores": entry.scores} if entry.terms else {}
    others = {"others": entry.others, "other_scores": entry.other_scores} if entry.others else {}
    return _line("picked", entry.at, **told, clients=entry.clients, **scored, **others)


def _line(kind: str, at: float, /, **fields: Any) -> Line:
    whole: Line = plain({"kind": kind, "at": at, **fields})
    return whole


def _if_known(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _told(num_steps: object) -> int | None:
    """What a client says of its steps, if it can be: nobody has checked it."""
    return num_steps if type(num_steps) is int and 0 < num_steps <= MOST_STEPS else None


def _named_apart(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Metrics stand beside the line's own keys, so they may not share a name with one."""
    for name in TAKEN:
        if name in metrics:
            raise ConfigError(
                f"a metric may not be called {name!r}, a key of the record: rename it"
            )
    return metrics


def plain(value: Any) -> Any:
    """The value in JSON's own types, with null where a number is not finite."""
    kind = type(value)
    if kind is int or kind is str:  # most of what there is
        return value
    match value:
        case float():
            return float(value) if math.isfinite(value) else None
        case None | str() | int():
            return value
        case Mapping():
            return {str(key): plain(part) for key, part in value.items()}
        case list() | tuple():
            return [plain(part) for part in value]
        case _:  # a numpy or torch scalar
            return plain(value.item())


def encode(line: Line) -> bytes:
    """The line as it stands in `events.jsonl`, newline and all."""
    return _JSON.encode(line).encode() + b"\n"


class Recorder(Protocol):
    """Takes down what happens, in the order it happens."""

    def record(self, entry: Entry) -> None:
        """Take down one entry."""
        ...

    def close(self) -> None:
        """Give back whatever is held."""


class Memory:
    """Keeps the lines in a list."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def record(self, entry: Entry) -> None:
        """Append the entry's line."""
        self.lines.append(line(entry))

    def close(self) -> None:
        """Nothing is held; the lines stay."""


class Tee:
    """Hands every entry to several recorders, in their order."""

    def __init__(self, *recorders: Recorder) -> None:
        self._recorders = recorders

    def record(self, entry: Entry) -> None:
        """Hand the entry on."""
        for recorder in self._recorders:
            recorder.record(entry)

    def close(self) -> None:
        """Close all of them, even if one cannot."""
        with ExitStack() as stack:
            for recorder in self._recorders:
                stack.callback(recorder.close)
