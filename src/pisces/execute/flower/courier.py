"""The thread that talks to Flower: hands messages to the grid, asks for replies and for nodes.

Flower brings nothing by itself, so one has to ask: for replies the more often the less time has
passed since something happened, for nodes every few seconds. A reply is handed out once and cannot
be acknowledged; a task cannot be called off, so what comes of one that was is never asked for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from pisces.execute.flower.api import (
    ArrayRecord,
    ConfigRecord,
    Error,
    Grid,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from pisces.execute.flower.arrays import Arrays, RecordError
from pisces.execute.flower.replies import Metrics
from pisces.execute.flower.sizes import Sizes
from pisces.execute.inbox import Broken, Landed, Said
from pisces.execute.roster import NumberError, Roster
from pisces.types import Failed, Joined, Left, Plan, Task

log = logging.getLogger("pisces")

LOOK_S = 2.0  # between two looks at who is there
QUICKEST_S, SLOWEST_S = 0.05, 1.0  # between two questions for replies
SHARE = 0.1  # of the time since something happened: what a late answer may cost
REST_S = 30.0  # for a node that Flower takes no message for, and at least for one that was too late
LONGEST_REST_S = 3600.0
CLOSE_S = 5.0  # Flower may be trying to reach a SuperLink that is gone for good
AT = 0.0  # of what is told: the loop knows when
WORTH_A_WORD = {3, 10, 30, 100, 300, 1000}  # tasks of a node that failed in a row
TOO_LATE, NODE_GONE = (3, 4), 5  # codes of Flower's errors; any other is about the task alone


@dataclass(frozen=True, slots=True)
class Letters:
    """How a task is put: where arrays and settings are found, and the settings of one's own."""

    arrays: str = "arrays"
    config: str = "config"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def letter(self, task: Task, node: int, arrays: ArrayRecord) -> Message:
        """The task as ClientApps know it: a round of training is one more than the version."""
        told = {**self.settings, **_about(task.plan), "server-round": task.version + 1}
        return Message(
            RecordDict({self.arrays: arrays, self.config: ConfigRecord(told)}),
            node,
            MessageType.TRAIN,
            ttl=task.deadline_s,
            group_id=str(task.version + 1),
        )


def _about(plan: Plan) -> dict[str, float | int]:
    """What protocols ask of a client beside the app's own settings, named as FedProx names it."""
    told: dict[str, float | int] = {}
    if plan.proximal:
        told["proximal-mu"] = plan.proximal
    if plan.max_steps is not None:
        told["max-steps"] = plan.max_steps
    return told


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
        heard: Callable[[int, MetricRecord], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grid, self._arrays, self._roster, self._tell = grid, arrays, roster, tell
        self._letters, self._metrics, self._heard = letters, metrics, heard
        self._clock = clock
        self._sizes = Sizes()
        self._given: dict[str, Task] = {}  # by the message it went out with
        self._present: set[int] = set()  # as the loop was told
        self._num_joins: Counter[int] = Counter()  # that it was told of, by client
        self._rests: dict[int, float] = {}  # until when a client is left alone
        self._num_late: Counter[int] = Counter()  # in a row
        self._num_failed: Counter[int] = Counter()  # in a row
        self._version: tuple[int, ArrayRecord | None] = (-1, None)  # sent last
        self._looked_at = self._asked_at = -float("inf")
        self._stirred_at = clock()  # when something happened last
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
        """End the thread, unless Flower keeps it."""
        if self._thread.is_alive():
            self.post(self._end)
            self._thread.join(CLOSE_S)

    def _end(self) -> None:
        self._is_over = True

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
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
            self._look()
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
            self._posted.get(timeout=timeout_s)()
            while True:
                self._posted.get_nowait()()
        except Empty:
            return

    # --- what the loop says -----------------------------------------------------------------------

    def give(self, task: Task) -> None:
        """Send a task on its way."""
        node = int(self._roster.name_of(task.client))
        letter = self._letters.letter(task, node, self._record(task))
        taken = [message for message in self._grid.push_messages([letter]) if message]
        if taken:
            self._given[taken[0]] = task
            self._stirred_at = self._clock()
        else:
            self._rest(task.client, REST_S)
            self._vanish(task.client, "Flower takes no message for its node")

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
        """Its client may be at it for long, and cannot be asked: it is left alone for a while."""
        self.call_off(task, "its deadline passed")
        if self._num_joins[client] == num_joins:
            self._late(client)
            self._present.discard(client)

    def take_over(self, given: Iterable[Task], present: Iterable[int]) -> None:
        """Send what another process was waiting for once more: that was another run of Flower's."""
        self._present.update(present)
        for task in given:
            self.give(task)

    # --- what Flower says -------------------------------------------------------------------------

    def _look(self) -> None:
        listed = {
            number for node in self._grid.get_node_ids() if (number := self._number(node)) >= 0
        }
        busy = {task.client for task in self._given.values()}
        for client in sorted(listed - self._present):
            if self._clock() >= self._rests.get(client, 0.0):
                self._appear(client, self._sizes.of(client))
        for client in sorted(self._present - listed - busy):  # of the busy ones Flower tells
            self._vanish(client, "its node is gone")

    def _number(self, node: int) -> int:
        try:
            return self._roster.number_of(str(node))
        except NumberError as error:
            log.warning("node %d cannot take part: %s", node, error)
            return -1

    def _ask(self) -> None:
        for reply in self._pulled(list(self._given)):
            self._stirred_at = self._clock()
            task = self._given.pop(reply.metadata.reply_to_message_id, None)
            if task is None:
                log.debug("a reply to no message of ours: %s", reply.metadata)
            elif reply.has_error():
                self._go_wrong(task, reply.error)
            else:
                self._take_in(task, reply.content)

    def _pulled(self, messages: list[str]) -> list[Message]:
        return list(self._grid.pull_messages(messages))

    def _take_in(self, task: Task, content: RecordDict) -> None:
        try:
            report, record = self._metrics.report(content)
            flat = self._arrays.flat(self._arrays_of(content))
        except RecordError as error:
            self._fail(task, f"its reply cannot be used: {error}")
            return
        self._num_failed[task.client] = self._num_late[task.client] = 0
        for client, size in self._sizes.hear(task.client, report.num_examples).items():
            if client in self._present:
                self._appear(client, size)
        self._heard(task.id, record)
        self._tell(Landed(task.id, task.client, flat, report))

    def _arrays_of(self, content: RecordDict) -> ArrayRecord:
        records = content.array_records
        if len(records) != 1:
            raise RecordError(f"{len(records)} records of arrays, not one")
        return next(iter(records.values()))

    def _go_wrong(self, task: Task, error: Error) -> None:
        reason = f"{error.reason or 'no reason told'} (Flower's error {error.code})"
        if error.code == NODE_GONE:
            self._vanish(task.client, reason)
        elif error.code in TOO_LATE:
            self._late(task.client)
            self._vanish(task.client, reason)
        else:
            self._fail(task, reason)

    def _fail(self, task: Task, reason: str) -> None:
        self._num_failed[task.client] += 1
        if self._num_failed[task.client] in WORTH_A_WORD:
            told = (task.client, self._num_failed[task.client], reason)
            log.warning("client %d: %d tasks failed in a row, the last by: %s", *told)
        self._tell(Failed(AT, task.client, reason, task.id))

    def _late(self, client: int) -> None:
        """Each time in a row it is left alone for twice as long."""
        rest_s = min(REST_S * 2 ** self._num_late[client], LONGEST_REST_S)
        self._num_late[client] += 1
        self._rest(client, rest_s)

    def _rest(self, client: int, rest_s: float) -> None:
        self._rests[client] = self._clock() + rest_s

    def _appear(self, client: int, num_examples: int) -> None:
        self._present.add(client)
        self._num_joins[client] += 1
        self._tell(Joined(AT, client, num_examples))

    def _vanish(self, client: int, reason: str) -> None:
        if client in self._present:
            self._present.discard(client)
            self._tell(Left(AT, client, reason))
