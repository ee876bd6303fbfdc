"""The coordinator's loop over a log: the world does as recorded, when to aggregate is asked anew.

The order within an instant is that of `coordinator.py`: observe, aggregate if ready (or if no more
updates fit in memory), release, start, and aggregate what can no longer fill. Between instants the
pacer is asked when it wanted to be, or at ticks. Nothing is trained and all weights are empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import torch

from pisces.clients.checks import Limits
from pisces.clients.manager import ClientManager
from pisces.clients.view import View
from pisces.errors import RunError
from pisces.policy import Judge, Pacer, Trait, Verdict
from pisces.record.lines import Line
from pisces.replaying.events import event_of, task_of
from pisces.replaying.turns import Ends, Turn
from pisces.replaying.values import Act, Aggregation, Unknown
from pisces.stop import Stop
from pisces.types import FULL, Arrived, Dropped, Failed, Ignored, Layout, Update, Weights
from pisces.windows import Windows

MOST_REFUSALS = 100  # whose terms are kept
MOST_TICKS = 100_000  # in a row, one by one; beyond, the pacer is asked when it wants to be
EMPTY = Layout(())


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a run's settings decides when the pacer is asked, and what comes of it."""

    tick_s: float = 0.0
    stop: Stop = field(default_factory=Stop)  # versions and updates: what else ended it is recorded
    can_release: bool = True
    real_time: bool = False


class Loop:
    """One pace over one log, turn by turn."""

    def __init__(self, pacer: Pacer, rules: Rules, ends: Ends) -> None:
        self.pacer = pacer
        self.aggregations: list[Aggregation] = []
        self.refusals: dict[float, Mapping[str, float]] = {}  # not ready when a version was made
        self.unknown = Unknown()
        self.num_dropped = 0
        self.over: tuple[float, str] | None = None  # when and why the run would have ended
        self.slots: list[int] = []  # how many it would have started in this turn
        self._rules, self._ends = rules, ends
        self._judge = _AsRecorded()
        self._weights = Weights(torch.zeros(0), EMPTY)
        self._manager = ClientManager(EMPTY, judge=self._judge, limits=_limits(ends))
        self._now = 0.0
        self._windows = Windows(rules.tick_s)
        self._acts: list[Act] = []
        self._pulled: dict[int, float] = {}  # task -> when it was asked for what there is
        self._gone: set[int] = set()  # tasks called off here, and not in the run

    @property
    def lacks_steps(self) -> bool:
        """Does the pace go by steps, and nobody told any?"""
        return Trait.STEPS in self.pacer.needs and not self._manager.table.facts.num_steps.any()

    def take_in(self, turn: Turn, *, as_recorded: bool) -> list[Act]:
        """One turn, and what the pacer wanted before; returns what was decided.

        `as_recorded`: so far all was decided as in the run.
        """
        self._acts, self.slots = [], []
        self._wake_before(turn.at)
        if self.over is None:
            self._now = turn.at
            if turn.at >= self._windows.next_at:
                answers = self._observe_all_but_answers(turn)
                self._decide(turn, as_recorded=as_recorded)
                self._observe(turn, answers)
            else:  # in real time a tick may come late
                self._observe(turn, turn.events)
                self._give_up(turn.called_off)
                self._start([*turn.starts, *turn.starts_after])
        return self._acts

    def finish(self) -> list[Act]:
        """What the pacer wanted between the last turn and the end."""
        self._acts = []
        at = self._ends.at
        self._wake_before(at)
        if self.over is None and self._now < at and self._next_decision_at(at) == at:
            self._now = at
            self._decide(Turn(at, is_last=True))
        return self._acts

    # --- the steps of the loop --------------------------------------------------------------------

    def _wake_before(self, at: float) -> None:
        while self.over is None and (wake_at := self._next_decision_at(at)) < at:
            self._now = wake_at
            self._decide(Turn(wake_at))

    def _observe_all_but_answers(self, turn: Turn) -> list[Line]:
        """What happened before the pacer was asked; returns what came of its asking.

        Whom it asks for what there is at a tick answers at that very instant, and is heard then,
        but there is no decision until the next tick.
        """
        answers: list[Line] = []
        if self._rules.tick_s and self.pacer.needs_pull and not turn.has_decided:
            answers = list(takewhile(_is_arrival, reversed(turn.events)))[::-1]
        self._observe(turn, turn.events[: len(turn.events) - len(answers)])
        while answers and not self._asks_for(answers):
            self._observe(turn, [answers.pop(0)])
        return answers

    def _asks_for(self, answers: Sequence[Line]) -> bool:
        """Would the pacer, if it was asked now, ask all of these clients for what there is?"""
        releases = self.pacer.release(self._view()) if self._rules.can_release else ()
        pulled = {release.task_id for release in releases if release.pull}
        return pulled.issuperset(line["task"] for line in answers)

    def _observe(self, turn: Turn, lines: Sequence[Line]) -> None:
        self._judge.doubted = turn.doubted
        events = [event for line in lines if (event := event_of(line, self._weights))]
        for event in events:
            if isinstance(event, Arrived):
                self._note_arrival(event)
        for entry in self._manager.observe_all(events, self._wanted):
            match entry:
                case Dropped():
                    self.num_dropped += 1
                    if entry.task_id not in turn.doubted:
                        self._acts.append(Act("dropped", entry.at, (entry.task_id,)))
                case Ignored() if entry.task_id in self._gone:
                    self.unknown.num_wasted += 1
        for client in turn.distrusted:
            self._distrust(client)
        if self._manager.is_full:
            self._aggregate(turn, FULL)

    def _decide(self, turn: Turn, *, as_recorded: bool = False) -> None:
        self._windows.begin(self._now)
        if self._manager.buffer:
            if self.pacer.ready(self._view()):
                self._aggregate(turn)
            elif turn.aggregated is not None and len(self.refusals) < MOST_REFUSALS:
                self.refusals[turn.at] = dict(self.pacer.terms(self._view()))
        if self._is_over() or turn.is_last:
            return
        self._release(turn)
        self._start(turn.starts)
        if self._manager.buffer and self._at_dead_end(turn, as_recorded=as_recorded):
            self._aggregate(turn)
            if self._is_over():
                return
        if turn.starts_after:
            self._start(turn.starts_after)

    def _aggregate(self, turn: Turn, reason: str | None = None) -> None:
        view = self._view()
        tasks = tuple(update.task_id for update in view.buffer)
        if turn.not_finite == set(tasks):
            self.num_dropped += len(self._manager.empty_buffer())
            return
        terms = dict(self.pacer.terms(view))
        waits_s = tuple(view.now - update.arrived_at for update in view.buffer)
        done = self._manager.advance(view.now, (1.0,) * len(tasks), reason)
        told = done.at, done.version, done.task_ids, done.staleness
        self.aggregations.append(Aggregation(*told, waits_s, reason, terms))
        self._acts.append(Act("aggregated", done.at, done.task_ids))

    def _release(self, turn: Turn) -> None:
        """What this pace gives up, then what the run did: how that went on nobody knows."""
        releases = self.pacer.release(self._view()) if self._rules.can_release else ()
        for release in releases:
            if release.pull:
                self._pulled.setdefault(release.task_id, self._now)
            else:
                self._gone.add(release.task_id)
                self._end(release.task_id, release.reason)
                self._acts.append(Act("called off", self._now, (release.task_id,)))
        self._give_up(turn.called_off)

    def _give_up(self, called_off: Sequence[Line]) -> None:
        for line in called_off:
            self._gone.discard(line["task"])
            if line["task"] in self._manager.running:
                self.unknown.num_given_up += 1
                self._end(line["task"], line["reason"])

    def _start(self, starts: Sequence[Line]) -> None:
        view = self._view()
        slots = max(0, self.pacer.slots(view))
        self.slots.append(min(slots, len(view.free)))
        self.unknown.num_unwanted += max(0, len(starts) - slots)
        for line in starts:
            self._start_one(line)

    def _start_one(self, line: Line) -> None:
        manager, client = self._manager, line["client"]
        task = task_of(line, manager.version, self._weights)
        known = manager.table.facts
        if client >= known.num_clients or known.running[client] or task.id in manager.running:
            raise RunError(
                f"task {task.id} is started on client {client}, which "
                f"{'runs already' if client < known.num_clients else 'never joined'}: no run "
                "writes that; restore events.jsonl"
            )
        self.unknown.num_impossible += int(known.buffered[client])
        self.unknown.num_other_versions += line.get("version", task.version) != task.version
        manager.start(task, self._now)

    # --- what they need ---------------------------------------------------------------------------

    def _view(self) -> View:
        return self._manager.view(self._now)

    def _wanted(self, update: Update) -> bool:
        return self.pacer.accepts(self._view(), update)

    def _end(self, task_id: int, reason: str) -> None:
        task, _ = self._manager.running[task_id]
        self._manager.observe(Failed(self._now, task.client, reason, task_id), self._wanted)

    def _note_arrival(self, event: Arrived) -> None:
        pulled_at = self._pulled.pop(event.task_id, event.at)
        self.unknown.num_unanswered += pulled_at < event.at

    def _distrust(self, client: int) -> None:
        """What cost it its credits is not in the log, but that it has none left is."""
        table = self._manager.table
        if client < table.num_clients and table.facts.trusted[client]:
            while not table.debit(client):
                pass

    def _is_over(self) -> bool:
        manager = self._manager
        if self.over is None:
            stop = self._rules.stop
            reason = stop.reason(self._now, manager.version, manager.num_updates, ())
            self.over = None if reason is None else (self._now, reason)
        return self.over is not None

    def _at_dead_end(self, turn: Turn, *, as_recorded: bool) -> bool:
        """As the coordinator finds it; who was started is as recorded, so is who fell silent."""
        view = self._view()
        if not len(view.running):
            somebody_came = bool(turn.starts_after or self._gone)  # or would have in their place
            nobody_picked = not somebody_came and self.pacer.slots(view) > 0
            return not len(view.free) or nobody_picked
        nobody_to_come = self._ends.unheard.issuperset(view.running.task_ids.tolist())
        made_then = as_recorded and turn.aggregated is not None
        return made_then and nobody_to_come and self._next_call() == math.inf

    # --- time -------------------------------------------------------------------------------------

    def _next_call(self) -> float:
        view = self._view()
        check_at = self.pacer.next_check(view) if self._manager.buffer else math.inf
        free_at = self.pacer.next_release(view) if self._rules.can_release else math.inf
        return min((at for at in (check_at, free_at) if at > self._now), default=math.inf)

    def _next_decision_at(self, limit: float) -> float:
        """Ticks at which there is nothing to ask are passed over."""
        tick_s = self._rules.tick_s
        if not tick_s:
            return self._next_call()
        if not self._manager.buffer or (limit - self._now) / tick_s > MOST_TICKS:
            self._windows.skip(min(limit, self._next_call()))
        return self._windows.next_at


def _is_arrival(line: Line) -> bool:
    return bool(line["kind"] == "arrived")


def _limits(ends: Ends) -> Limits:
    """What was let in is; an empty update counts for one byte."""
    room = Limits().max_buffered_bytes if ends.most_buffered is None else ends.most_buffered
    return Limits(max_loss=math.inf, max_examples=1 << 63, max_buffered_bytes=max(1, room))


class _AsRecorded(Judge):
    """Doubts whom the run doubted."""

    def __init__(self) -> None:
        self.doubted: Iterable[int] = ()

    def judge(self, update: Update) -> Verdict:
        return Verdict(keep=update.task_id not in self.doubted)
