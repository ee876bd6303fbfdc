"""The thread that talks to Flower: hands messages to the grid, asks for replies and for nodes.

Flower brings nothing by itself, so one has to ask: for replies the more often the less time has
passed since something happened, for nodes every few seconds. A reply is handed out once and cannot
be acknowledged; a task cannot be called off, so what comes of one that was is never asked for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pisces.execute.flower.api import ArrayRecord, Error, Grid, Message, MetricRecord, RecordDict
from pisces.execute.flower.arrays import Arrays, RecordError
from pisces.execute.flower.letters import Letters
from pisces.execute.flower.nodes import AT, Nodes
from pisces.execute.flower.replies import Metrics
from pisces.execute.flower.sizes import Sizes
from pisces.execute.inbox import Broken, Landed, Said
from pisces.execute.roster import Roster
from pisces.types import Failed, Task

log = logging.getLogger("pisces")

LOOK_S = 2.0  # between two looks at who is there
QUICKEST_S, SLOWEST_S = 0.05, 1.0  # between two questions for replies
SHARE = 0.1  # of the time since something happened: what a late answer may cost
CLOSE_S = 5.0  # Flower may be trying to reach a SuperLink that is gone for good
LONGEST = 500  # of a reason: a node may tell anything
TOO_LATE, NODE_GONE = (3, 4), 5  # codes of Flower's errors; any other is about the task alone


@dataclass(frozen=True, slots=True, eq=False)
class Told(Landed):
    """A result, and what was told with it."""

    record: MetricRecord


class Courier:
    """Desk and service of a federation of Flower's: all but `start`, `post` and `stop` is done in
    its thread.
    """

    def __init__(
        self,
        grid: Grid,
        arrays: Arrays,
        roster: Roster,
        tell: Callable[[Said], None],
        *,
        letters: Letters,
        metrics: Metrics,
        sizes: Sizes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grid, self._arrays, self._tell = grid, arrays, tell
        self._letters, self._metrics = letters, metrics
        self._clock = clock
        self._nodes = Nodes(roster, sizes, tell, clock)
        self._given: dict[str, Task] = {}  # by the message it went out with
        self._version: tuple[int, ArrayRecord | None] = (-1, None)  # sent last
        self._looked_at = self._asked_at = -float("inf")
        self._stirred_at = clock()  # when something happened last
        self._is_one_by_one = False  # are replies asked for
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="flower", daemon=True)

    # --- from the loop's thread -------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look who is there."""
        self._thread.start()

    def post(self, *actions: Callable[[], None]) -> None:
        """Do this in the courier's thread, soon."""
        for action in actions:
            self._posted.put(action)

    def stop(self) -> None:
        """End the thread, unless Flower keeps it; what it was to say is not said any more."""
        self._is_over = True
        if self._thread.is_alive():
            self.post(lambda: None)  # in case it sleeps
            self._thread.join(CLOSE_S)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._do_posted(0.0)  # who takes over says first who was there
            while not self._is_over:
                self.turn()
                self._do_posted(self._pause_s())
        except BaseException as error:  # Flower's own word that a run was stopped is no Exception
            self._tell(Broken(error))

    def turn(self) -> None:
        """Look and ask, if it is time."""
        now = self._clock()
        if now >= self._looked_at + LOOK_S:
            self._looked_at = now
            busy = {task.client for task in self._given.values()}
            self._nodes.look(self._grid.get_node_ids(), busy)
        if self._given and now >= self._asked_at + self._patience_s():
            self._asked_at = now
            self._ask()

    def _patience_s(self) -> float:
        """Between two questions: a share of the time nothing has happened for."""
        idle_s = self._clock() - self._stirred_at
        return min(max(SHARE * idle_s, QUICKEST_S), SLOWEST_S)

    def _pause_s(self) -> float:
        next_at = self._looked_at + LOOK_S
        if self._given:
            next_at = min(next_at, self._asked_at + self._patience_s())
        return max(next_at - self._clock(), 0.0)

    def _do_posted(self, timeout_s: float) -> None:
        try:
            action = self._posted.get(timeout=timeout_s) if timeout_s else self._posted.get_nowait()
            while not self._is_over:
                action()
                action = self._posted.get_nowait()
        except Empty:
            return

    # --- what the loop says -----------------------------------------------------------------------

    def give(self, task: Task) -> None:
        """Send a task on its way."""
        node = self._nodes.node_of(task.client)
        letter = self._letters.to_train(task, node, self._record(task))
        taken = [message for message in self._grid.push_messages([letter]) if message]
        if taken:
            self._given[taken[0]] = task
            self._stirred_at = self._clock()
        else:
            self._nodes.refused(task.client)

    def _record(self, task: Task) -> ArrayRecord:
        """Of its version, made once for all tasks that are sent one after the other."""
        version, record = self._version
        if record is None or version != task.version:
            record = self._arrays.record(task.weights)
            self._version = (task.version, record)
        return record

    def call_off(self, task: int, reason: str) -> None:
        """Flower has no word for that: what comes of it is not asked for."""
        self._given = {m: given for m, given in self._given.items() if given.id != task}

    def pull(self, task: int) -> None:
        """Flower has no word for that."""

    def settle(self, tasks: Iterable[int]) -> None:
        """Flower has no word for that: what was handed out is gone."""

    def expire(self, task: int, client: int, num_joins: int) -> None:
        """Its client is left alone for a while, unless it answered at the last moment."""
        is_waited_for = any(given.id == task for given in self._given.values())
        self.call_off(task, "its deadline passed")
        self._nodes.expired(client, num_joins, is_waited_for=is_waited_for)

    def take_over(self, given: Iterable[Task], present: Iterable[int]) -> None:
        """Send what another process was waiting for once more: that was another run of Flower's."""
        self._nodes.take_over(present)
        for task in given:
            self.give(task)

    # --- what Flower says -------------------------------------------------------------------------

    def _ask(self) -> None:
        for reply in self._pulled():
            self._stirred_at = self._clock()
            message = reply.metadata.reply_to_message_id
            task = self._given.get(message)
            if task is None or not self._is_by(task, reply):
                log.debug("a reply that nobody waits for: %s", reply.metadata)
                continue
            del self._given[message]
            if reply.has_error():
                self._go_wrong(task, reply.error)
            else:
                self._take_in(task, reply.content)

    def _pulled(self) -> list[Message]:
        """All replies that are there.

        To ask for them all at once is cheap, but one that Flower cannot read takes the others that
        came with it along: once that happened, each is asked for by itself.
        """
        messages = list(self._given)
        if not self._is_one_by_one:
            try:
                return list(self._grid.pull_messages(messages))
            except Exception as error:
                self._is_one_by_one = True
                why = _short(repr(error))
                log.warning("replies are asked for one by one from now on, because of %s", why)
        return self._pulled_one_by_one(messages)

    def _pulled_one_by_one(self, messages: list[str]) -> list[Message]:
        """One that cannot be read costs one task; where none can, it is not the replies' fault."""
        replies, errors = list[Message](), dict[str, Exception]()
        for message in messages:
            try:
                replies += self._grid.pull_messages([message])
            except Exception as error:
                errors[message] = error
        if len(errors) == len(messages):
            self._grid.get_node_ids()  # raises, if Flower is out of reach
            if len(errors) > 1:
                raise next(iter(errors.values()))
        for message, why in errors.items():
            reason = f"its reply cannot be read: {_short(repr(why))}"
            self._fail(self._given.pop(message), reason)
        return replies

    def _is_by(self, task: Task, reply: Message) -> bool:
        """Only errors are told by the SuperLink itself."""
        return reply.has_error() or reply.metadata.src_node_id == self._nodes.node_of(task.client)

    def _take_in(self, task: Task, content: RecordDict) -> None:
        try:
            report, record = self._metrics.report(content)
            flat = self._arrays.flat(_arrays_of(content))
        except RecordError as error:
            self._fail(task, f"its reply cannot be used: {error}")
            return
        self._nodes.answered(task.client, report.num_examples)
        self._tell(Told(task.id, task.client, flat, report, record))

    def _go_wrong(self, task: Task, error: Error) -> None:
        reason = f"{_short(error.reason or 'no reason told')} (Flower's error {error.code})"
        if error.code == NODE_GONE:
            self._nodes.vanish(task.client, reason)
        elif error.code in TOO_LATE:
            self._nodes.late(task.client, reason)
        else:
            self._fail(task, reason)

    def _fail(self, task: Task, reason: str) -> None:
        self._tell(Failed(AT, task.client, reason, task.id))
        self._nodes.failed(task.client, reason)
        self._nodes.rest_after_failing(task.client)


def _short(reason: str) -> str:
    """Fit for a log: a node may tell anything, also lines and colours of its own."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in reason[:LONGEST])
    return plain if len(reason) <= LONGEST else f"{plain} ..."


def _arrays_of(content: RecordDict) -> ArrayRecord:
    records = content.array_records
    if len(records) != 1:
        raise RecordError(f"{len(records)} records of arrays, not one")
    return next(iter(records.values()))
