"""Which nodes are there, as the loop is told: who comes, goes, and is left alone for a while."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from pisces.errors import ConfigError
from pisces.execute.flower.sizes import Sizes
from pisces.execute.inbox import Said
from pisces.execute.roster import NumberError, Roster
from pisces.types import Joined, Left

log = logging.getLogger("pisces")

AT = 0.0  # of what is told: the loop knows when
REST_S = 30.0  # for a node that Flower takes no message for, and at least for one that was too late
LONGEST_REST_S = 3600.0
WORTH_A_WORD = {1, 3, 10, 30, 100, 300, 1000}  # tasks of a node that failed or were late in a row
MANY = 3  # that failed: it is left alone for a while


class Nodes:
    """Nodes by the numbers they have as clients. A node with a registered key is the same again."""

    def __init__(
        self,
        roster: Roster,
        sizes: Sizes,
        tell: Callable[[Said], None],
        clock: Callable[[], float],
    ) -> None:
        self._roster, self._sizes, self._tell, self._clock = roster, sizes, tell, clock
        self._present: set[int] = set()  # as the loop was told
        self._num_joins: Counter[int] = Counter()  # that it was told of, by client
        self._rests: dict[int, float] = {}  # until when a client is left alone
        self._num_late: Counter[int] = Counter()  # in a row
        self._num_failed: Counter[int] = Counter()  # in a row
        self._is_full = False  # and that was said
        self._has_answered = False  # anybody, be it nonsense
        self._num_listed = -1  # as was said last

    def node_of(self, client: int) -> int:
        """What Flower calls it."""
        return int(self._roster.name_of(client))

    def look(self, nodes: Iterable[int], busy: Collection[int]) -> None:
        """These are there now; of the busy ones that are not, Flower tells by itself."""
        listed = {number for node in nodes if (number := self._number(node)) is not None}
        if len(listed) != self._num_listed:
            self._num_listed = len(listed)
            log.info("nodes that are there: %d", len(listed))
        for client in sorted(listed - self._present):
            if self._clock() >= self._rests.get(client, 0.0):
                self._appear(client, self._sizes.of(client))
        for client in sorted(self._present - listed - set(busy)):
            self.vanish(client, "its node is gone")

    def _number(self, node: int) -> int | None:
        try:
            return self._roster.number_of(str(node))
        except NumberError as error:
            if not self._is_full:
                self._is_full = True
                log.warning("node %d, and whoever comes later, cannot take part: %s", node, error)
            return None

    def take_over(self, present: Iterable[int]) -> None:
        """Those another process had."""
        self._present.update(present)

    # --- what comes of tasks ----------------------------------------------------------------------

    def answered(self, client: int, num_examples: int) -> None:
        """It did its task, and tells how many examples it has."""
        self._has_answered = True
        self._num_failed.pop(client, None)
        self._num_late.pop(client, None)
        for other, size in self._sizes.hear(client, num_examples).items():
            if other in self._present:
                self._appear(other, size)

    def failed(self, client: int, reason: str) -> None:
        """It did not; where that is all that ever happens, the run is over."""
        self._count(client, reason)
        self._check_hope(reason)

    def _count(self, client: int, reason: str) -> None:
        self._num_failed[client] += 1
        self._warn(client, "failed", self._num_failed[client], reason)

    def _warn(self, client: int, what: str, num: int, reason: str) -> None:
        """Now and then that is worth a word."""
        if num in WORTH_A_WORD:
            told = (client, self.node_of(client), what, num, reason)
            log.warning("client %d (node %d): %s %d in a row, the last by: %s", *told)

    def rest_after_failing(self, client: int) -> None:
        """One that fails again and again is left alone, each time for longer."""
        num = self._num_failed[client]
        if num >= MANY:
            self._rest(client, min(REST_S * 2 ** min(num - MANY, 7), LONGEST_REST_S))
            self.vanish(client, f"failed {num} tasks in a row")

    def _check_hope(self, reason: str) -> None:
        """Where no node ever did a task, and each has failed often, none ever will."""
        tried = self._num_failed.values()
        if self._has_answered or self._sizes.is_anything_told:  # also to another process
            return
        if len(tried) < max(self._num_listed, 1) or min(tried) < MANY:
            return
        raise ConfigError(
            f"every node has failed {MANY} tasks and more, and none has done one, the last by: "
            f"{reason}; mend the ClientApp and start again"
        )

    def refused(self, client: int) -> None:
        """Flower takes no message for it."""
        reason = "Flower takes no message for its node"
        self._count(client, reason)
        self._rest(client, REST_S)
        self.vanish(client, reason)

    def late(self, client: int, reason: str) -> None:
        """It may be at it for long, and cannot be asked: each time in a row for twice as long it is
        left alone.
        """
        self._rest(client, min(REST_S * 2 ** self._num_late[client], LONGEST_REST_S))
        self._num_late[client] += 1
        why = f"{reason}; is the timeout too short for it?"
        self._warn(client, "too late", self._num_late[client], why)
        self.vanish(client, reason)

    def expired(self, client: int, num_joins: int, *, is_waited_for: bool) -> None:
        """The loop, having heard of so many joins, counts it as gone, because it took too long."""
        if self._num_joins[client] == num_joins:
            self._present.discard(client)  # else the loop will hear that it is there, after all
        if is_waited_for:
            self.late(client, "its deadline passed")

    def _rest(self, client: int, rest_s: float) -> None:
        self._rests[client] = self._clock() + rest_s

    # --- telling ----------------------------------------------------------------------------------

    def _appear(self, client: int, num_examples: int) -> None:
        self._rests.pop(client, None)
        self._present.add(client)
        self._num_joins[client] += 1
        self._tell(Joined(AT, client, num_examples))

    def vanish(self, client: int, reason: str) -> None:
        """It is gone, and its task with it."""
        if client in self._present:
            self._present.discard(client)
            self._tell(Left(AT, client, reason))
