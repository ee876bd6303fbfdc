"""Logs to be replayed: of whole runs in virtual time, and written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import World, policies

from pisces.policy import Pacer, Policies
from pisces.record.lines import Line, encode
from pisces.replaying.loop import Rules
from pisces.replaying.turns import Ends
from pisces.replaying.values import Aggregation
from pisces.replaying.walk import Compared, Recorded, walk
from pisces.stop import Stop


def rules_of(world: World) -> Rules:
    """What of a world decides when a pacer is asked."""
    stop = Stop(versions=world.stop.versions, updates=world.stop.updates)
    return Rules(tick_s=world.tick_s, stop=stop)


def walked(
    lines: Sequence[Line], own: Pacer, *others: Pacer, rules: Rules | None = None
) -> tuple[Recorded, Compared, list[Compared]]:
    """These paces through the log."""
    ends = Ends.of(lambda: lines)
    return walk(lambda: lines, ends, own, rules or Rules(), others)


def assert_as_recorded(
    lines: Sequence[Line], protocol: str | Policies, world: World, **settings: Any
) -> None:
    """Fail unless a run's own pace decides once more what it decided."""
    own = policies(protocol, world.concurrency, **settings).pacer
    recorded, mine, _ = walked(lines, own, rules=rules_of(world))
    assert mine.differs_at is None, (mine.differs_at, mine.what)
    assert plain(mine.loop.aggregations) == plain(recorded.aggregations)
    assert mine.loop.num_dropped == recorded.num_dropped
    unknown = mine.loop.unknown
    assert unknown.num_impossible == unknown.num_unwanted == unknown.num_other_versions == 0
    assert unknown.num_given_up == unknown.num_wasted == 0


def plain(aggregations: Sequence[Aggregation]) -> list[tuple[object, ...]]:
    """What of them must be the same."""
    return [(a.at, a.version, a.tasks, a.staleness, a.waits_s, a.reason) for a in aggregations]


def write_run(folder: Path, lines: Sequence[Line], config: str) -> Path:
    """A run folder with this log."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(config)
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, lines)))
    return folder


class Script:
    """A log by hand, line by line."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._started: dict[int, Line] = {}

    def join(self, at: float, *clients: int) -> Script:
        self.lines += [
            {"kind": "joined", "at": at, "client": client, "num_examples": 10} for client in clients
        ]
        return self

    def start(self, at: float, task: int, client: int, version: int) -> Script:
        line = {"kind": "started", "at": at, "task": task, "client": client, "version": version}
        self._started[task] = line
        self.lines.append(line)
        return self

    def arrive(self, at: float, task: int) -> Script:
        started = self._started[task]
        told = {"num_examples": 10, "loss": 1.0, "loss_rms": 1.1, "loss_left": None}
        facts = {"client": started["client"], "version": started["version"], **told}
        latency_s = at - started["at"]
        self.lines.append(
            {"kind": "arrived", "at": at, "task": task, **facts, "latency_s": latency_s}
        )
        return self

    def aggregate(
        self, at: float, version: int, tasks: Sequence[int], staleness: Sequence[int], **more: Any
    ) -> Script:
        made = {"tasks": list(tasks), "staleness": list(staleness), "weights": [1.0] * len(tasks)}
        self.lines.append({"kind": "aggregated", "at": at, "version": version, **made, **more})
        return self

    def say(self, kind: str, at: float, **facts: Any) -> Script:
        self.lines.append({"kind": kind, "at": at, **facts})
        return self

    def stop(self, at: float, reason: str = "time") -> Script:
        return self.say("stopped", at, reason=reason)
