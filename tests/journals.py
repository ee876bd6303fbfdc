"""A server that can die at any moment, and clients that outlive it; on a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs import NUM_EXAMPLES, START, measure, of_kind, outcome, policies

from pisces.clients.manager import ClientManager
from pisces.coordinator import Coordinator
from pisces.evaluate import Evaluator, Inline, Schedule
from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.fake import FakeExecutor
from pisces.execute.tape import Tape
from pisces.journaling import journaled
from pisces.keeping import Kept, open_folder
from pisces.record.checkpoint import Checkpoints
from pisces.record.journal import Journal, Journaling
from pisces.record.lines import Line
from pisces.stop import Stop
from pisces.types import Arrived, Evaluated, Event, Failed, Joined, Left, Plan, Task, Weights

NUM_CLIENTS, CONCURRENCY, SEED = 6, 3, 1


class Dead(BaseException):
    """The process was killed."""


@dataclass
class Fate:
    """Kills the process at its n-th moment; what it still tries then comes to nothing."""

    num_left: int | None = None
    num_seen: int = 0

    def moment(self) -> None:
        self.num_seen += 1
        if self.num_left is not None and self.num_seen > self.num_left:
            raise Dead

    @contextmanager
    def around(self) -> Iterator[None]:
        self.moment()
        yield
        self.moment()


@dataclass
class Clientele:
    """What the clients know, whatever becomes of the server."""

    sent: dict[int, Task] = field(default_factory=dict)  # tasks that reached a client
    held: dict[int, Task] = field(default_factory=dict)  # done, and not known to be safe
    acknowledged: set[int] = field(default_factory=set)
    pulled: set[int] = field(default_factory=set)
    taken_over: list[tuple[float, list[int]]] = field(default_factory=list)


class Server(FakeExecutor):
    """Clients 0 to 5 need 1 to 6 s; the fourth fails now and then, the sixth comes and goes."""

    def __init__(self, clients: Clientele, fate: Fate) -> None:
        joins = [Joined(0.0, client, NUM_EXAMPLES) for client in range(NUM_CLIENTS)]
        can = Capabilities(real_time=True, cancels=True, pulls=True, takes_over=True)
        super().__init__(joins, self.answer, can, hand_in=self.hand_in)
        self._clients, self._fate = clients, fate
        self._handed_out: list[int] = []
        self.interrupted_in: int | None = None

    def answer(self, task: Task, now: float) -> Iterable[Event]:
        at = now + task.client + 1
        if task.client == 5 and task.id % 2:
            yield Left(at, 5, "gone", task.id)
            yield Joined(at + 2, 5, NUM_EXAMPLES)
        elif task.client == 3 and task.id % 3 == 0:
            yield Failed(at, 3, "crashed", task.id)
        else:
            yield self.result(task, at)

    def hand_in(self, task: Task, now: float) -> Iterable[Event]:
        """What it has; what it would have said later comes, too, and is to be ignored."""
        yield self.result(task, now)

    def result(self, task: Task, at: float) -> Arrived:
        done = outcome(task)
        return Arrived(at, task.id, task.client, done.weights, done.report)

    def submit(self, task: Task) -> None:
        with self._fate.around():
            known = self._clients.sent.setdefault(task.id, task)
            # Whatever happened to the server, one number means one task.
            assert (known.client, known.version) == (task.client, task.version)
            assert known.weights.flat.equal(task.weights.flat)
            super().submit(task)

    def pull(self, task_id: int) -> None:
        self._clients.pulled.add(task_id)
        with self._fate.around():
            super().pull(task_id)

    def cancel(self, task_id: int) -> None:
        with self._fate.around():
            super().cancel(task_id)

    def wait(self, until: float) -> list[Event]:
        with self._fate.around():
            if self.interrupted_in is not None:
                self.interrupted_in -= 1
                if self.interrupted_in < 0:
                    raise KeyboardInterrupt
            events = super().wait(until)
            for event in events:
                if isinstance(event, Arrived):
                    self._clients.held[event.task_id] = self._clients.sent[event.task_id]
                    self._handed_out.append(event.task_id)
        return events

    def acknowledge(self) -> None:
        with self._fate.around():
            super().acknowledge()
            self._clients.acknowledged |= set(self._handed_out)
            for task_id in self._handed_out:
                self._clients.held.pop(task_id, None)
            self._handed_out.clear()

    def take_over(self, left: Handover) -> None:
        with self._fate.around():
            self._heap.clear()
            self._now = left.now
            running = {task.id: task for task, _ in left.running}
            # What a client was told is safe must not be asked for again.
            assert not running.keys() & self._clients.acknowledged
            self._clients.taken_over.append((left.now, list(running)))
            absent = {*range(NUM_CLIENTS)} - {*left.present}
            self._plan(Joined(left.now + 1, client, NUM_EXAMPLES) for client in sorted(absent))
            for task_id in list(self._clients.held):
                if task_id in running:
                    self._plan([self.result(running.pop(task_id), left.now)])
                else:  # it was written down; only the word of it got lost
                    self._clients.acknowledged.add(task_id)
                    del self._clients.held[task_id]
            for task in running.values():
                self.submit(task)


class DoomedJournal(Journal):
    """Dies before, in the middle of or after what it does."""

    fate = Fate()

    def append(self, facts: Any, contents: Any = ()) -> None:
        with self.fate.around():
            super().append(facts, contents)

    def sync(self) -> None:
        with self.fate.around():
            super().sync()

    def settle(self) -> None:
        with self.fate.around():
            super().settle()


class Slow(Inline):
    """Results are there at every other look."""

    num_looks = 0

    @property
    def busy(self) -> bool:
        return bool(self._done)

    def finished(self) -> list[Evaluated]:
        self.num_looks += 1
        return super().finished() if self.num_looks % 2 == 0 else []

    def drain(self) -> list[Evaluated]:
        return super().finished()


@dataclass(eq=False)
class Federation:
    """A run in a folder, served by one process after another."""

    folder: Path
    protocol: str = "fedbuff"
    stop: Stop = field(default_factory=lambda: Stop(versions=5))
    checkpoints: Checkpoints | None = field(default_factory=lambda: Checkpoints(3.0))
    journaling: Journaling = field(default_factory=Journaling)
    clients: Clientele = field(default_factory=Clientele)
    made: dict[str, Any] = field(default_factory=lambda: {"seed": SEED})
    tick_s: float = 0.0
    seed: int = SEED
    is_journaled: bool = True
    interrupted_in: int | None = None  # this wait

    def serve(self, num_moments: int | None = None) -> Weights | None:
        """Begin the run or go on with it, to its end or to the end of the process."""
        fate = Fate(num_moments)
        journal = DoomedJournal(self.folder, self.made, self.journaling)
        journal.fate, self.journal = fate, journal
        run = open_folder(self.folder, "", resume=(self.folder / "events.jsonl").exists())
        assert run is not None
        tape, server = Tape(journal), Server(self.clients, fate)
        coordinator = self._coordinator(run, server, tape)
        server.interrupted_in = self.interrupted_in
        tape_kept = tape if self.is_journaled else None
        clock = coordinator._executor  # also while it is told again
        kept = Kept(run, coordinator, self.made, lambda: clock.now, tape_kept)
        try:
            list(kept.take_up("", START.flat.device))
            weights = coordinator.run(kept.rest(self.checkpoints))
            coordinator.close()
            run.finish({}, {}, 0.0)
            return weights
        except Dead:
            return None
        finally:
            self.num_moments = fate.num_seen
            journal.close()
            run.close()

    def _coordinator(self, run: Any, server: Server, tape: Tape) -> Coordinator:
        eager = {"staleness_bound": 1} if self.protocol == "port" else {}  # or nobody is pulled
        chosen = policies(self.protocol, CONCURRENCY, **eager)
        executor: Executor = server
        evaluator: Evaluator = Slow(measure)
        if self.is_journaled:
            executor, evaluator = journaled(server, evaluator, tape, START)
        return Coordinator(
            policies=chosen,
            executor=executor,
            manager=ClientManager(START.layout, judge=chosen.judge),
            evaluator=evaluator,
            recorder=run,
            weights=START,
            plans=lambda _version: Plan(),
            stop=self.stop,
            schedule=Schedule(every_versions=1),
            seed=self.seed,
            tick_s=self.tick_s,
            deadline_s=30.0,
        )

    @property
    def log(self) -> bytes:
        return (self.folder / "events.jsonl").read_bytes()

    @property
    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.log.splitlines()]

    @property
    def segments(self) -> list[Path]:
        return sorted((self.folder / "journal").glob("*.journal"))


def fates(lines: Sequence[Line]) -> dict[int, list[str]]:
    """What became of each task's update: aggregated, or dropped for a reason; in all."""
    found: dict[int, list[str]] = {}
    for line in lines:
        for task in line["tasks"] if line["kind"] == "aggregated" else [line.get("task")]:
            if line["kind"] in ("aggregated", "dropped") and task is not None:
                found.setdefault(task, []).append(line["kind"])
    return found


def in_time(lines: list[Line]) -> list[Line]:
    """With every result of an evaluation where the version was looked at, not where it came in."""
    evaluated = of_kind(lines, "evaluated")
    assert [line["version"] for line in evaluated] == sorted({x["version"] for x in evaluated})
    ordered: list[Line] = []
    for line in lines:
        if line["kind"] != "evaluated":
            while evaluated and evaluated[0]["at"] < line["at"]:
                ordered.append(evaluated.pop(0))
            ordered.append(line)
    return [*ordered[:-1], *evaluated, *ordered[-1:]]
