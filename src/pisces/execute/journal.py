"""An executor around one in real time that keeps a journal, from which a killed run goes on.

Nothing leaves the house before all that it follows from is on the disk: tasks are sent, and clients
told that their updates are safe, when the loop has said all it has to say this turn (`send`). So
there is one flush to the disk per turn, however many tasks and updates (docs/decisions/016).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from pisces.clients.checks import Limits, wrong_client, wrong_size
from pisces.errors import RunError
from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.facts import bytes_of, event_of, facts_of, read, tensor_of
from pisces.execute.tape import Tape
from pisces.record.segment import Record
from pisces.saving import load_task, save_task
from pisces.types import Arrived, Event, Failed, Joined, Left, State, Task, Weights


class Journaled(Executor):
    """Writes down what another executor is told and tells, and plays it again after a kill.

    `like` are weights of the run: what is read back has their layout and lies where they do. Time
    stands still between two waits, so that the loop sees the same when it is played again. `limits`
    are the client manager's.
    """

    def __init__(
        self, executor: Executor, tape: Tape, like: Weights, limits: Limits | None = None
    ) -> None:
        self._inner, self._tape, self._like = executor, tape, like
        self._limits = limits or Limits()
        self._now = 0.0
        self._running: dict[int, tuple[Task, float]] = {}
        self._pulled: dict[int, None] = {}
        self._present: set[int] = set()
        self._is_taken_up = False  # this process goes on with what another began
        self._outbox: list[Callable[[], None]] = []  # written down, not passed on yet
        self._owes = False  # an acknowledgement
        self._listens = False
        self._checksum: tuple[torch.Tensor | None, int] = (None, 0)  # of the weights sent last

    @property
    def now(self) -> float:
        """When the last wait was over."""
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        """Those of the executor inside; only the one inside is ever handed anything over."""
        return replace(self._inner.capabilities, takes_over=False)

    @property
    def quiet(self) -> bool:
        """As the executor inside says, or said here; written down, since the loop acts upon it.

        While something is kept back, or nobody took over yet, something is still to come.
        """
        if self._tape.plays:
            return self._tape.answered("quiet") is not None
        if self._outbox or self._is_taken_up or not self._inner.quiet:
            self._tape.answered("quiet")
            return False
        self._tape.tell("quiet", {})
        return True

    @property
    def interruptible(self) -> bool:
        """While nothing was heard that is not written down; what was not sent, is on the disk."""
        return self._listens and self._inner.interruptible

    def submit(self, task: Task) -> None:
        """Write the task down; it goes out with `send`."""
        facts = {**save_task(task, State()), "weights": self._checksum_of(task.weights.flat)}
        self._say("submit", facts, partial(self._inner.submit, task))
        self._running[task.id] = (task, self._now)

    def cancel(self, task_id: int) -> None:
        """Write it down; it goes out with `send`."""
        self._say("cancel", {"task": task_id}, partial(self._inner.cancel, task_id))
        self._end(task_id)

    def pull(self, task_id: int) -> None:
        """Write it down; it goes out with `send`."""
        self._say("pull", {"task": task_id}, partial(self._inner.pull, task_id))
        if task_id in self._running:
            self._pulled[task_id] = None

    def send(self) -> None:
        """See to it that all that was heard and said is on the disk, and let it go out."""
        if not self._tape.plays:
            self._pass_on()
            self._inner.send()

    def wait(self, until: float) -> list[Event]:
        """What happens next, or what happened next when it is played again."""
        record = self._tape.told("turn")
        events = self._heard(until) if record is None else self._played(record)
        for event in events:
            self._note(event)
        return events

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """Not yet: when it is on the disk, with `send`, the executor inside is told."""

    def dismiss(self) -> None:
        """Acknowledge what is safe, and hand it on."""
        self._settle()
        self._inner.dismiss()

    def close(self) -> None:
        """Acknowledge what is safe, and close the executor inside."""
        with suppress(RunError):  # it was told already
            self._settle()
        self._tape.close()
        self._inner.close()

    # --- passing on -------------------------------------------------------------------------------

    def _say(self, kind: str, facts: Mapping[str, Any], send: Callable[[], None]) -> None:
        if not self._tape.say(kind, facts):
            return
        self._take_over()
        self._outbox.append(send)
        if self._tape.is_over:  # nobody waits any more
            self._pass_on()

    def _pass_on(self) -> None:
        """See to it that all is written down, then act upon it."""
        self._take_over()
        self._acknowledge()
        if self._outbox:
            self._tape.sync()
        while self._outbox:
            self._outbox.pop(0)()

    def _acknowledge(self) -> None:
        if self._owes:
            self._tape.sync()
            self._inner.acknowledge()
            self._owes = False

    def _settle(self) -> None:
        """The last words: a run that is over has clients, too, that another process began with."""
        if self._tape.is_over:
            self._take_over()
        self._acknowledge()

    def _take_over(self) -> None:
        """When nothing is played any more, hand on what the process before left."""
        if not self._is_taken_up or not self._tape.is_at_end:
            return
        self._is_taken_up = False
        self._tape.settle()
        present = tuple(sorted(self._present))
        self._inner.take_over(Handover(self._now, tuple(self._running.values()), present))
        for task_id in self._pulled:
            self._inner.pull(task_id)

    # --- hearing ----------------------------------------------------------------------------------

    def _heard(self, until: float) -> list[Event]:
        self._pass_on()  # in case nobody said `send`
        self._listens = True
        try:
            events = self._inner.wait(until)
        finally:
            self._listens = False
        now = max(self._now, self._inner.now)
        flats = [tensor_of(e.weights.flat) if isinstance(e, Arrived) else None for e in events]
        facts = [facts_of(e, flat) for e, flat in zip(events, flats, strict=True)]
        contents = [bytes_of(flat) for flat in flats if flat is not None]
        self._tape.tell("turn", {"now": now, "events": facts}, contents)
        self._now = now
        self._owes = self._owes or bool(events)
        layout = self._like.layout
        return [event_of(f, flat, layout) for f, flat in zip(facts, flats, strict=True)]

    def _played(self, record: Record) -> list[Event]:
        self._is_taken_up = True
        self._now = max(self._now, record.facts["now"])
        events, content = [], memoryview(record.content)
        for facts in record.facts["events"]:
            flat = None
            if "weights" in facts:
                flat, content = read(facts["weights"], content)
                flat = flat.to(self._like.flat.device)
            events.append(event_of(facts, flat, self._like.layout))
        return events

    def _note(self, event: Event) -> None:
        """Who is there and what runs, as the client manager sees it."""
        match event:
            case Joined():
                if self._is_taken_in(event):
                    self._present.add(event.client)
            case Left():
                self._present.discard(event.client)
                for task, _ in list(self._running.values()):
                    if task.client == event.client:
                        self._end(task.id)
            case Arrived(task_id=task_id) | Failed(task_id=task_id):
                if task_id in self._running:
                    assert task_id is not None
                    if self._running[task_id][0].client == event.client:
                        self._end(task_id)

    def _is_taken_in(self, event: Joined) -> bool:
        """Whoever is refused was never there."""
        if type(event.client) is not int or wrong_client(event.client, self._limits):
            return False
        return wrong_size(event.num_examples, self._limits) is None

    def _end(self, task_id: int) -> None:
        self._running.pop(task_id, None)
        self._pulled.pop(task_id, None)

    def _checksum_of(self, flat: torch.Tensor) -> int:
        if self._checksum[0] is not flat:
            self._checksum = (flat, zlib.crc32(bytes_of(flat)))
        return self._checksum[1]

    # --- saving -----------------------------------------------------------------------------------

    def state(self) -> State:
        """How far the journal is, and what is to be handed over there."""
        state = State({"now": self._now, "tape": self._tape.state, "pulled": list(self._pulled)})
        state.values["running"] = [[save_task(t, state), at] for t, at in self._running.values()]
        state.arrays["present"] = np.array(sorted(self._present), np.int64)
        return state

    def restore(self, state: State) -> None:
        """Go on from there, first by playing what the journal holds."""
        values, layout = state.values, self._like.layout
        running = [(load_task(task, state, layout), at) for task, at in values["running"]]
        self._now = values["now"]
        self._running = {task.id: (task, at) for task, at in running}
        self._pulled = dict.fromkeys(values["pulled"])
        self._present = set(state.arrays["present"].tolist())
        self._outbox.clear()
        self._owes, self._is_taken_up = False, True
        self._tape.go_to(values["tape"])
