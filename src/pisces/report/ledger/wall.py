"""What the clock on the wall says of a run: is it written, how fast it goes, how long it takes.

Looking must not disturb: a lock that is tried is a lock that is taken for a moment, and a run that
begins just then would find its folder in use. So locks are read where the system lists them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from pisces.record.writer import CHECKPOINTS, CONFIG
from pisces.report.ledger.book import Ledger, Seen
from pisces.report.ledger.summary import ReadRun

LOCKS = Path("/proc/locks")
QUIET_S = 15.0  # a log that did not grow for so long is silent, unless its writer is known
PATIENCE_S = 60.0  # before its first line a run reads data and its workers begin
LEAST_SEEN_S = 2.0  # watched for less, a run's speed is guessed from the times of its files


@dataclass(frozen=True, slots=True)
class Left:
    """How much of a run is done, by the limit that is nearest, and how long the rest takes."""

    share_done: float | None = None
    limit: str | None = None
    left_s: float | None = None


def silent_s(ledger: Ledger) -> float | None:
    """For how many seconds the log did not grow."""
    written_at = ledger.follower.last.written_at
    return None if written_at is None else max(0.0, time() - written_at)


def is_written(ledger: Ledger) -> bool:
    """Does a process hold the log, or did it grow just now?"""
    quiet_s = silent_s(ledger)
    return is_locked(ledger.follower.last.inode) or (quiet_s is not None and quiet_s < QUIET_S)


def is_locked(inode: int, listed: Path = LOCKS) -> bool:
    """Does a process hold a lock on this file, as far as the system tells?"""
    try:
        lines = listed.read_text().splitlines()
    except OSError:
        return False
    # `1: FLOCK  ADVISORY  WRITE 709 08:01:131 0 EOF`; devices are called otherwise in containers
    words = [line.split() for line in lines if "FLOCK" in line and "WRITE" in line]
    return any(w[5].rpartition(":")[2] == str(inode) for w in words if len(w) > 5 and inode)


def left(ledger: Ledger, *, is_over: bool) -> Left:
    """What is left until the first limit of `stop`; one that is over has nothing left."""
    notes = ledger.notes
    at = {"time": notes.at, "versions": notes.version, "updates": notes.counts["arrived"]}
    keys = {"time": "time_s", "versions": "versions", "updates": "updates"}
    limits = {name: _limit(ledger.setting("stop", key)) for name, key in keys.items()}
    shares = {name: min(1.0, at[name] / limit) for name, limit in limits.items() if limit}
    if is_over:
        return Left(1.0, None, 0.0)
    if not shares:
        return Left()
    speeds = speeds_of(ledger)
    rests = {
        name: max(0.0, (limits[name] or 0.0) - at[name]) / speeds[name]
        for name in shares
        if speeds.get(name, 0.0) > 0
    }
    nearest = min(rests, key=rests.__getitem__) if rests else max(shares, key=shares.__getitem__)
    return Left(shares[nearest], nearest, rests.get(nearest))


def _limit(value: Any) -> float | None:
    is_limit = type(value) in (int, float) and 0 < value < math.inf
    return float(value) if is_limit else None


def speeds_of(ledger: Ledger) -> Mapping[str, float]:
    """What is gained per second on the wall: by what we saw, or else by the times of the files."""
    last = _now(ledger)
    first = ledger.seen[0] if ledger.seen else last
    span_s = last.on_the_wall_at - first.on_the_wall_at
    if span_s < LEAST_SEEN_S or first.at == last.at:
        first, span_s = Seen(0.0, 0.0, 0, 0), _written_for_s(ledger)
    if span_s <= 0:
        return {}
    return {
        "time": 1.0 if ReadRun.of(ledger).in_real_time else (last.at - first.at) / span_s,
        "versions": (last.version - first.version) / span_s,
        "updates": (last.num_updates - first.num_updates) / span_s,
    }


def _now(ledger: Ledger) -> Seen:
    notes = ledger.notes
    return Seen(ledger.clock(), notes.at, notes.version, notes.counts["arrived"])


def _written_for_s(ledger: Ledger) -> float:
    """From when the config was written, which comes first, to the last line; 0: not known.

    A resume writes the config anew, and then much of the log is older: nothing is known of its pace
    until it was seen. What is left of before are checkpoints.
    """
    try:
        began_at = (ledger.path / CONFIG).stat().st_mtime
        kept = [path.stat().st_mtime for path in (ledger.path / CHECKPOINTS).glob("*.json")]
    except OSError:  # one may go just now
        return 0.0
    written_at = ledger.follower.last.written_at
    if written_at is None or min(kept, default=began_at) < began_at:
        return 0.0
    return max(0.0, written_at - began_at)
