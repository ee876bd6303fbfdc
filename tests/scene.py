"""A run whose every mishap somebody else decides on, step by step, and the laws it is under."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hand import HONEST, Hand, Script
from runs import START, Assembled, Books, World, assemble, through_json

from pisces.execute.faults import Fault
from pisces.execute.faulty import FaultyExecutor
from pisces.record.sound import is_line
from pisces.types import State


@dataclass
class Tally:
    """What was played."""

    num_scenes: int = 0
    num_turns: int = 0
    slowest: int = 0  # most turns that a version took, while only the honest worked
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of lines in the logs


class Scene:
    """A run in the middle, and what must be true of it at any moment."""

    def __init__(
        self,
        protocol: str,
        settings: Mapping[str, Any],
        world: World,
        luck: int | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.protocol, self.settings, self.world = protocol, settings, world
        self.tally = tally or Tally()
        self.script = Script(luck)
        self.lines: list[dict[str, Any]] = []
        self._assemble()
        self._follow_from_the_start()

    def _assemble(self) -> None:
        self.hand = Hand(len(self.world.latencies), self.script.luck)
        self.executor = FaultyExecutor(self.hand, self.script, layout=START.layout)
        self.run: Assembled = assemble(
            self.protocol, self.world, executor=self.executor, **self.settings
        )
        self.coordinator = self.run.coordinator
        self.manager = self.coordinator._manager

    def _follow_from_the_start(self) -> None:
        self.books = Books(self.world.concurrency)
        self.num_ended = 0
        self.counts: dict[str, Counter[int]] = {k: Counter() for k in ("started", "arrived")}
        self.arrived: set[int] = set()
        self.versions: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self.num_followed = 0

    @property
    def is_over(self) -> bool:
        return self.coordinator.reason is not None

    # --- what may happen to it --------------------------------------------------------------------

    def end(self, verb: str, number: int, after_s: float, fault: Fault | None = None) -> None:
        """One of the running tasks ends."""
        task = list(self.hand.open.values())[number % len(self.hand.open)]
        if fault is not None:
            self.script.chosen[task.id] = fault
        self.hand.plan(verb, task.client, task.id, after_s)

    def turn(self) -> None:
        """One turn of the loop."""
        self.coordinator.step()
        self.tally.num_turns += 1

    def progress(self) -> None:
        """While an honest client is there and trusted, and tasks expire, versions are made."""
        before, most = self.manager.version, self.most_turns
        num = 0
        self.hand.let_the_honest_work()
        while self.manager.version == before and self._the_honest_counts():
            assert not self.is_over, f"it gave up: {self.coordinator.reason}"
            num += 1
            assert num <= most, f"no version in {most} turns"
            self.turn()
            self.check()
        self.tally.slowest = max(self.tally.slowest, num)

    def _the_honest_counts(self) -> bool:
        """A judge may doubt it, too; and without deadlines the silent stop a run."""
        return self.world.deadline_s is not None and HONEST not in self.books.distrusted_clients

    @property
    def most_turns(self) -> int:
        """Before the next version, from now on, whatever happened until now.

        All but the honest answer no more. A turn for each thing that is due already; four for each
        client: its task expires, it comes back, it is started, that task expires, too. By then the
        honest is the only one there. All that takes a minute at most, in which the loop also wakes
        to evaluate (every 3 s), for ticks (every 5 s), and when its pacer asks for it: 40.
        """
        num_due = len(self.hand.heap) + len(self.executor._heap)
        return num_due + 4 * len(self.world.latencies) + 40

    def save(self) -> tuple[State, int]:
        """All there is, as a file would keep it."""
        self.follow()
        return through_json(self.coordinator.state()), len(self.lines)

    def take_up(self, saved: tuple[State, int]) -> None:
        """Fresh objects go on from there; what was written later never was."""
        state, num_lines = saved
        self._assemble()
        self.coordinator.restore(through_json(state))
        del self.lines[num_lines:]
        self._follow_from_the_start()

    def finish(self) -> None:
        """Wind it up, for good."""
        self.coordinator.reason = self.coordinator.reason or "time"
        self.coordinator.run()
        self.check()
        self.books.close()
        self.tally.num_scenes += 1
        self.tally.kinds.update(line["kind"] for line in self.lines)
        self.tally.faults.update(self.script.met)

    # --- what must be true ------------------------------------------------------------------------

    def follow(self) -> None:
        """Take what was written since into the books, which are lawful or complain."""
        self.lines += self.run.memory.lines
        self.run.memory.lines.clear()
        for line in self.lines[self.num_followed :]:
            assert is_line(line), f"the reader would call it damaged: {line}"
            assert line["at"] >= self.books.now, f"time ran backwards: {line}"
            self.books.now = line["at"]
            open_before = len(self.books.running) + len(self.books.buffer)
            getattr(self.books, line["kind"])(line)
            open_after = len(self.books.running) + len(self.books.buffer)
            self.num_ended += max(0, open_before - open_after)
            if line["kind"] in self.counts:
                self.counts[line["kind"]][line["client"]] += 1
            if line["kind"] == "arrived":
                self.arrived.add(line["task"])
        self.num_followed = len(self.lines)

    def check(self) -> None:
        """Every law, now."""
        self.follow()
        self._check_tasks()
        self._check_table()
        self._check_weights()

    def _check_tasks(self) -> None:
        books, manager = self.books, self.manager
        running = {task_id: task for task_id, (task, _) in manager.running.items()}
        clients = [task.client for task in running.values()]
        assert len(set(clients)) == len(clients) <= self.world.concurrency
        assert set(books.running) == set(running), "the log tells who runs"
        assert set(self.executor._open) == set(running), "a seat is taken by a task that will end"
        buffered = [update.task_id for update in manager.buffer]
        assert sorted(books.buffer) == sorted(buffered), "the log tells what waits"
        num_open = len(running) + len(buffered)
        assert books.num_started == num_open + self.num_ended, "started = running + waiting + ended"
        assert books.version == manager.version
        well = {i for i, client in self.hand.handed_over if self.script.of(i, client) is None}
        assert self.arrived >= well, "no result that comes through is lost"
        deadline_s = self.world.deadline_s or math.inf
        for _, started_at in manager.running.values():
            assert started_at + deadline_s >= self.executor.now, "nobody runs beyond its deadline"

    def _check_table(self) -> None:
        books, table, facts = self.books, self.manager.table, self.manager.table.facts
        for client in range(table.num_clients):
            row = {
                "present": client in books.present,
                "trusted": client not in books.distrusted_clients,
                "running": client in [t["client"] for t in books.running.values()],
                "buffered": client in [t["client"] for t in books.buffer.values()],
                "num_picks": self.counts["started"][client],
                "num_reports": self.counts["arrived"][client],
            }
            assert row == {name: getattr(facts, name).item(client) for name in row}
            may = row["present"] and row["trusted"] and not (row["running"] or row["buffered"])
            assert (client in table.free) == may, "the table tells who is free"
        assert self.manager.num_updates == sum(self.counts["arrived"].values())

    def _check_weights(self) -> None:
        for weights in (self.coordinator.weights, self.coordinator.published):
            assert bool(weights.flat.isfinite().all()), "the model is finite"
        version = self.manager.version
        if not self.versions or self.versions[-1][0] != version:
            self.versions.append((version, weakref.ref(self.coordinator.weights.flat)))
        self.manager.view(self.executor.now)  # the last view may still hold what it showed
        needed = {version, 0, *(task.version for task in self.hand.open.values())}
        needed |= {task.version for task, _ in self.manager.running.values()}
        needed |= {update.version for update in self.manager.buffer}
        alive = {v for v, ref in self.versions if ref() is not None}
        assert alive <= needed, f"versions {alive - needed} are kept for nobody"
        self.versions = [(v, ref) for v, ref in self.versions if ref() is not None]
