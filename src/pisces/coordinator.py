"""THE loop: wait, observe, aggregate if ready, stop if done, select if there are slots.

It is the control loop of the paper's section 3, driven by events (`tick_s` 0) or by the paper's
time window. It sees only contracts, so the same loop runs in virtual time, on a cluster and over a
network.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from pisces.clients.manager import ClientManager
from pisces.clients.view import View
from pisces.dead_ends import DeadEnds
from pisces.decisions import Decisions
from pisces.errors import ConfigError, PolicyError
from pisces.evaluate import Evaluator, Schedule
from pisces.execute.base import Executor
from pisces.policy import Assignment, Policies
from pisces.record.lines import Recorder
from pisces.saving import load_generator, save_generator
from pisces.seeds import derive, generator
from pisces.stop import REASONS, Stop
from pisces.types import (
    AT_THE_END,
    CALLED_OFF,
    FULL,
    NOT_FINITE,
    Dropped,
    Event,
    Failed,
    Plan,
    State,
    Stateful,
    Stopped,
    Task,
    Update,
    Weights,
)
from pisces.windows import Windows

log = logging.getLogger("pisces")

Undone: TypeAlias = Literal["select", "select again"]  # the second: after a dead end

EVALUATION_POLL_S = 0.2  # how long a real-time loop sleeps at most while a result is being computed


class Coordinator:
    """Trains one model over many clients by one protocol."""

    def __init__(
        self,
        *,
        policies: Policies,
        executor: Executor,
        manager: ClientManager,
        evaluator: Evaluator,
        recorder: Recorder,
        weights: Weights,
        plans: Callable[[int], Plan],
        stop: Stop,
        schedule: Schedule,
        seed: int,
        tick_s: float = 0.0,
        deadline_s: float | None = None,
        decisions: bool = False,
    ) -> None:
        if policies.pacer.needs_pull and not executor.capabilities.pulls:
            raise ConfigError(
                "the pace counts on asking running clients for what there is, and this executor "
                "cannot: choose another protocol"
            )
        self.weights = weights
        self.published = weights
        self.reason: str | None = None
        self._selector = policies.selector
        self._pacer = policies.pacer
        self._aggregator = policies.aggregator
        self._executor = executor
        self._manager = manager
        self._evaluator = evaluator
        self._recorder = recorder
        self._plans = plans
        self._stop = stop
        self._schedule = schedule
        self._seed = seed
        self._deadline_s = deadline_s
        self._windows = Windows(tick_s)
        self._num_tasks = 0
        self._dead_ends = DeadEnds()
        self._decisions = Decisions(policies.selector, policies.pacer, wanted=decisions)
        self._decide_at = 0.0  # the next decision, unless something happens before
        self._waiting = False
        self._interrupted = False
        self._undone: Undone | None = None
        self._evaluated = (0.0, -1)  # when and which version last
        self._select_rng = generator(seed, "select")
        self._aggregate_rng = generator(seed, "aggregate")

    @property
    def is_real_time(self) -> bool:
        """Does time pass by itself, so that nothing may block the loop?"""
        return self._executor.capabilities.real_time

    def run(self, rest: Callable[[], None] = lambda: None) -> Weights:
        """Go on until there is a reason to stop; returns the last version as it is published.

        `rest` is called after every turn, the last one included: there `state()` is whole.
        """
        while self.reason is None:
            try:
                self.step()
            except KeyboardInterrupt:
                self.reason = "interrupted"
            rest()
        self._finish(self.reason)
        return self.published

    def step(self) -> None:
        """One turn of the loop; what a stop left undone of the last one comes first."""
        if self._undone is None:
            self._take_in()
        if self.reason is None and self._undone is not None:
            self._hand_out()

    def _take_in(self) -> None:
        events = self._wait()
        self._observe(events)
        if not self._is_to_decide(events):
            self._only_evaluate()
            return
        self._windows.begin(self._executor.now)
        if self._manager.buffer and self._pacer.ready(self._view()):
            self._aggregate()
        self._evaluate_if_due()
        self._undone = "select"
        self.reason = self._reason_to_stop()

    def _hand_out(self) -> None:
        if self._undone == "select":
            self._release()
        self._undone = None
        self._select()
        self._executor.send()
        if self._at_dead_end():
            self._mend_dead_end()

    def _only_evaluate(self) -> None:
        """A turn in which nobody is asked anything: how often one evaluates changes no decision."""
        self._evaluate_if_due()
        self._executor.send()  # that what was heard is safe
        if self._windows.tick_s:
            self.reason = self._reason_of_time()
            return
        self.reason = self._reason_to_stop()
        if self.reason is None and self._at_dead_end():
            self._mend_dead_end()

    def interrupt(self) -> None:
        """Ask for the end; may be called by a signal handler at any moment.

        Where the executor can be broken off (which is when training happens) it ends at once,
        otherwise when this turn is over: an update is never left between arriving and being written
        down.
        """
        self._interrupted = True
        if self._waiting and self._executor.interruptible:
            raise KeyboardInterrupt

    def close(self) -> None:
        """Give back what the executor holds."""
        self._executor.close()

    # --- the steps of the loop --------------------------------------------------------------------

    def _wait(self) -> list[Event]:
        self._waiting = True
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            self._decide_at = self._next_decision_at()
            return self._executor.wait(min(self._wake_at(), self._stop.time_s or math.inf))
        finally:
            self._waiting = False

    def _observe(self, events: Sequence[Event]) -> None:
        if events:
            self._dead_ends.heard()
        for entry in self._manager.observe_all(events, self._wanted):
            self._decisions.heard(entry)
            self._recorder.record(entry)
        if events:
            self._executor.acknowledge()
        if self._manager.is_full:
            self._aggregate(FULL)
        self._take_evaluations()

    def _aggregate(self, reason: str | None = None) -> None:
        """Make the buffer a new version.

        Also, for a `reason`, when no more updates fit in memory. To drop some instead would waste
        work, and a pace that waits for more than fit would wait for ever; this loses nothing, and
        is what the pace would come to with a smaller buffer (only a strict bound on staleness no
        longer holds). Those of one instant are in memory before they can be counted, so they come
        in together.
        """
        view = self._view()
        pace = self._decisions.pace(view)
        undo = self._aggregator.remember()
        combination = self._aggregator.combine(self.weights, view.buffer, view, self._aggregate_rng)
        published = combination.published or combination.weights
        if not all(map(self._manager.is_sound, (combination.weights, published))):
            undo()
            self._drop_buffer(NOT_FINITE)
            return
        self.weights, self.published = combination.weights, published
        done = self._manager.advance(view.now, combination.coefficients, reason, pace)
        self._recorder.record(done)
        log.info(
            "t=%.1f version %d from %d update%s, staleness up to %d",
            done.at,
            done.version,
            len(done.task_ids),
            "" if len(done.task_ids) == 1 else "s",
            max(done.staleness),
        )

    def _reason_to_stop(self) -> str | None:
        manager = self._manager
        return self._stop.reason(
            self._executor.now, manager.version, manager.num_updates, manager.history
        )

    def _release(self) -> None:
        can = self._executor.capabilities
        if not (can.cancels or can.pulls):
            return
        for release in self._pacer.release(self._view()):
            if release.pull and can.pulls:
                self._executor.pull(release.task_id)
            elif can.cancels and not release.pull:
                self._dead_ends.called_off()
                self._call_off(release.task_id, f"{CALLED_OFF}: {release.reason}")

    def _select(self) -> None:
        view = self._view()
        slots = self._pacer.slots(view)
        if slots > 0 and len(view.free):
            picks = self._selector.pick(view, slots, self._select_rng)
            assignments = _checked(picks, view, slots)
            self._dead_ends.asked(view, anybody_picked=bool(assignments))
            for entry in self._decisions.picked(view, slots, assignments):
                self._recorder.record(entry)
            for assignment in assignments:
                self._start(assignment, view.clients.num_picks.item(assignment.client))

    def _mend_dead_end(self) -> None:
        """Aggregate a buffer that can no longer fill; stop when nothing can ever happen again."""
        if not self._manager.buffer:
            self.reason = self._reason_to_give_up()
            return
        self._aggregate()
        self._evaluate_if_due()
        self._undone = "select again"
        self.reason = self._reason_to_stop()

    # --- what they need ---------------------------------------------------------------------------

    def _view(self) -> View:
        return self._manager.view(self._executor.now, self._plans)

    def _wanted(self, update: Update) -> bool:
        return self._pacer.accepts(self._view(), update)

    def _start(self, assignment: Assignment, turn: int) -> None:
        client, version = assignment.client, self._manager.version
        task = Task(
            id=self._num_tasks,
            client=client,
            version=version,
            weights=self.weights,
            plan=assignment.plan or self._plans(version),
            # A client's k-th training shuffles alike under every protocol of a comparison.
            seed=derive(self._seed, "train", client, turn),
            deadline_s=self._deadline_s,
        )
        self._num_tasks += 1
        self._executor.submit(task)
        self._recorder.record(self._manager.start(task, self._executor.now))

    def _call_off(self, task_id: int, reason: str, *, tell: bool = True) -> None:
        if tell and self._executor.capabilities.cancels:
            self._executor.cancel(task_id)
        task, _ = self._manager.running[task_id]
        failed = Failed(self._executor.now, task.client, reason, task_id)
        for entry in self._manager.observe(failed, self._wanted):
            self._recorder.record(entry)

    def _drop_buffer(self, reason: str) -> None:
        for update in self._manager.empty_buffer():
            self._recorder.record(Dropped(self._executor.now, update.task_id, reason))

    def _at_dead_end(self) -> bool:
        """Nobody runs and nobody is started, or nothing will happen however long one waits."""
        view = self._view()
        if not len(view.running) and (not len(view.free) or self._pacer.slots(view) > 0):
            return True  # whoever was free and wanted was started just now
        if self._dead_ends.in_vain(view):
            return True
        return self._executor.quiet and self._next_call() == math.inf

    def _reason_to_give_up(self) -> str | None:
        num_clients = self._executor.capabilities.num_clients
        return self._dead_ends.reason(
            self._view(), quiet=self._executor.quiet, num_clients=num_clients
        )

    def _next_check(self) -> float:
        """When the pacer wants to be asked again; never an instant that has passed."""
        at = self._pacer.next_check(self._view()) if self._manager.buffer else math.inf
        return at if at > self._executor.now else math.inf

    def _next_release(self) -> float:
        """When the pacer wants to call somebody off; never where that cannot be done."""
        can = self._executor.capabilities
        at = self._pacer.next_release(self._view()) if can.cancels or can.pulls else math.inf
        return at if at > self._executor.now else math.inf

    def _next_call(self) -> float:
        """When the pacer is to be asked, whatever for, if nothing happens before."""
        return min(self._next_check(), self._next_release())

    def _next_decision_at(self) -> float:
        if self._windows.num == 0:
            return 0.0
        return self._windows.next_at if self._windows.tick_s else self._next_call()

    def _is_to_decide(self, events: Sequence[Event]) -> bool:
        """Did something happen, or is it time? Evaluations and stops come without any decision.

        So a run with a later stop does the same up to here, and can be taken up from here.
        """
        return self._executor.now >= self._decide_at or bool(events and not self._windows.tick_s)

    def _wake_at(self) -> float:
        if self._evaluator.busy:
            return min(self._decide_at, self._executor.now + EVALUATION_POLL_S)
        return min(self._schedule.next_at(self._evaluated[0]), self._decide_at)

    def _reason_of_time(self) -> str | None:
        stop_at = self._stop.time_s
        return "time" if stop_at is not None and self._executor.now >= stop_at else None

    # --- evaluation -------------------------------------------------------------------------------

    def _evaluate_if_due(self) -> None:
        """One at a time: where that takes longer than a version, the next is the newest then."""
        due = self._schedule.due(self._executor.now, self._manager.version, *self._evaluated)
        if due and not self._evaluator.busy:
            self._evaluate()
        self._take_evaluations()

    def _evaluate(self) -> None:
        now, version = self._executor.now, self._manager.version
        self._evaluated = (now, version)
        self._evaluator.start(now, version, self.published)

    def _take_evaluations(self, *, all_of_them: bool = False) -> None:
        finished = self._evaluator.drain() if all_of_them else self._evaluator.finished()
        for evaluated in finished:
            self._manager.history.append(evaluated)
            self._recorder.record(evaluated)

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, reason: str | None) -> None:
        """Every task ends, every update has its fate, the last version is evaluated.

        Clients of a run that was interrupted do not hear of it: it may go on, and so do they.
        """
        is_for_good = reason != "interrupted"
        for task_id in list(self._manager.running):
            self._call_off(task_id, AT_THE_END, tell=is_for_good)
        self._drop_buffer(AT_THE_END)
        if is_for_good:
            self._executor.dismiss()
        if self._evaluated[1] != self._manager.version:
            self._evaluate()
        self._take_evaluations(all_of_them=True)
        now = self._executor.now
        self._recorder.record(Stopped(now, str(reason)))
        log.info("t=%.1f stopped: %s", now, reason)

    # --- saving -----------------------------------------------------------------------------------

    def state(self) -> State:
        """Everything needed to go on in a new process as if nothing had happened."""
        state = State(arrays={"weights": self.weights.flat, "published": self.published.flat})
        for name, part in self._parts.items():
            state.add(name, part.state())
        state.values |= {
            "num_ticks": self._windows.num,
            "num_tasks": self._num_tasks,
            "evaluated": list(self._evaluated),
            "undone": self._undone,
            "reason": self.reason,
            "select_rng": save_generator(self._select_rng),
            "aggregate_rng": save_generator(self._aggregate_rng),
        }
        return state

    def restore(self, state: State) -> None:
        """Take up what `state` handed over."""
        self.weights = Weights(state.arrays["weights"], self.weights.layout)
        self.published = Weights(state.arrays["published"], self.weights.layout)
        for name, part in self._parts.items():
            if name in state.values or name != "decisions":  # which older checkpoints lack
                part.restore(state.part(name))
        self._windows.num = state.values["num_ticks"]
        self._num_tasks = state.values["num_tasks"]
        at, version = state.values["evaluated"]
        self._evaluated = (at, version)
        self._undone = state.values["undone"]
        self.reason = state.values["reason"]
        load_generator(self._select_rng, state.values["select_rng"])
        load_generator(self._aggregate_rng, state.values["aggregate_rng"])

    def go_on(self) -> None:
        """After `restore`: what ended the run may be no reason any more, if its stop is another."""
        if self.reason in REASONS:
            within_window = self._windows.tick_s and self._undone is None
            self.reason = self._reason_of_time() if within_window else self._reason_to_stop()
        elif self.reason in (None, "interrupted"):
            self.reason = self._reason_of_time() if self._windows.tick_s else self._reason_to_stop()

    @property
    def _parts(self) -> dict[str, Stateful]:
        return {
            "executor": self._executor,
            "evaluator": self._evaluator,
            "manager": self._manager,
            "selector": self._selector,
            "pacer": self._pacer,
            "aggregator": self._aggregator,
            "dead_ends": self._dead_ends,
            "decisions": self._decisions,
        }


def _checked(picks: Iterable[Assignment], view: View, slots: int) -> list[Assignment]:
    """Refuse what a selector may not do, before anything is started."""
    assignments = [] if picks is None else list(picks)
    if picks is None or not all(isinstance(a, Assignment) for a in assignments):
        raise PolicyError(f"a selector's pick returns Assignments, not {picks!r}")
    picked = [assignment.client for assignment in assignments]
    if len(set(picked)) < len(picked) or len(picked) > slots:
        raise PolicyError(f"a selector picks up to {slots} different clients, not {picked}")
    strangers = [c for c in picked if type(c) is not int or c not in view.free]
    if strangers:
        raise PolicyError(f"a selector picks clients in view.selectable, not {strangers}")
    return assignments
