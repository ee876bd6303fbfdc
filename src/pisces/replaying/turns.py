"""A log cut into turns of the loop that wrote it: what happened, then what was decided.

The order of the lines is the loop's own (see `coordinator.py`), so a turn ends where time goes on,
or where something happens again after somebody was started. In one turn at most one version is
made: afterwards nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from pisces.errors import RunError
from pisces.record.lines import Line
from pisces.record.summary import ending_of
from pisces.stop import REASONS
from pisces.types import AT_THE_END, DOUBTED, FULL, NOT_FINITE

Log: TypeAlias = Callable[[], Iterable[Line]]  # it is read several times, and never held

_EVENTS = ("joined", "arrived", "failed", "left", "ignored")
_TOLD = ("dropped", "outlier", "distrusted")  # of what arrived


@dataclass(slots=True, eq=False)
class Turn:
    """One turn, as recorded."""

    at: float
    events: list[Line] = field(default_factory=list)
    doubted: set[int] = field(default_factory=set)  # tasks the judge kept from the model
    too_late: list[int] = field(default_factory=list)  # tasks the pace did not want any more
    distrusted: list[int] = field(default_factory=list)
    not_finite: set[int] = field(default_factory=set)  # tasks of a version that could not be
    aggregated: Line | None = None
    called_off: list[Line] = field(default_factory=list)
    starts: list[Line] = field(default_factory=list)  # before its version was made, if one was
    starts_after: list[Line] = field(default_factory=list)
    is_last: bool = False  # the run was over before anybody was called off or started

    @property
    def has_decided(self) -> bool:
        """Did it get beyond taking in what happened?"""
        return bool(self.aggregated or self.not_finite or self.called_off or self.starts)


@dataclass(frozen=True, slots=True)
class Ends:
    """How a log ends, and what only its whole says."""

    at: float
    reason: str | None  # none: it was killed, or goes on
    unheard: frozenset[int]  # tasks that were called off, or ran until the run was stopped
    most_buffered: int | None  # how many updates fitted in memory, if they ever came to that

    @classmethod
    def of(cls, log: Log) -> Ends:
        """Read it once."""
        at, reason, unheard, full = 0.0, None, set[int](), list[int]()
        for line in log():
            at = max(at, line["at"])
            match line:
                case {"kind": "stopped"}:
                    reason = line["reason"]
                case {"kind": "failed", "task": task} if ending_of(line["reason"]) != "failed":
                    unheard.add(task)
                case {"kind": "aggregated", "reason": why} if why == FULL:
                    full.append(len(line["tasks"]))
        return cls(at, reason, frozenset(unheard), min(full, default=None))

    def has(self, line: Line) -> bool:
        """Was this written when all was over?"""
        if line["kind"] == "stopped":
            return True
        return (
            line["at"] == self.at and line.get("reason") == AT_THE_END and self.reason is not None
        )


def turns_of(log: Log, ends: Ends) -> Iterator[Turn]:
    """The turns in order, up to where the run was over."""
    turn: Turn | None = None
    for line in log():
        kind = line["kind"]
        if ends.has(line):
            break
        if kind not in (*_EVENTS, *_TOLD, "aggregated", "started"):
            continue  # evaluations change no decision, nor do kinds of a later version
        if turn is None or _begins_anew(line, turn):
            if turn is not None:
                yield turn
                _check_time(line, turn)
            turn = Turn(line["at"])
        _put(line, turn)
    if turn is not None:
        was_limit = ends.reason in (*REASONS, "interrupted")
        turn.is_last = was_limit and turn.at == ends.at and not (turn.called_off or turn.starts)
        turn.is_last &= not turn.starts_after
        yield turn


def _begins_anew(line: Line, turn: Turn) -> bool:
    if line["at"] != turn.at:
        return True
    if line["kind"] == "aggregated":
        return turn.aggregated is not None
    return line["kind"] in _EVENTS and not _is_called_off(line) and turn.has_decided


def _is_called_off(line: Line) -> bool:
    return line["kind"] == "failed" and "task" in line and ending_of(line["reason"]) == "called off"


def _put(line: Line, turn: Turn) -> None:
    match line["kind"]:
        case "aggregated":
            turn.aggregated = line
        case "started":
            (turn.starts if turn.aggregated is None else turn.starts_after).append(line)
        case "distrusted":
            turn.distrusted.append(line["client"])
        case "dropped" if line.get("reason") == DOUBTED:
            turn.doubted.add(line["task"])
        case "dropped" if line.get("reason") == NOT_FINITE:
            turn.not_finite.add(line["task"])
        case "dropped":
            turn.too_late.append(line["task"])
        case "outlier":
            pass
        case _ if _is_called_off(line):
            turn.called_off.append(line)
        case _:
            turn.events.append(line)


def _check_time(line: Line, turn: Turn) -> None:
    if line["at"] < turn.at:
        raise RunError(
            f"time runs backwards in the log, from {turn.at:g} s to {line['at']:g} s, which no "
            "run writes: restore events.jsonl"
        )
