"""The executor over a real network: the loop's side of it.

What clients say is put into an inbox by the network's thread and taken out by `wait`, all that is
there at once. What the loop says is posted to the network's thread. Each side has its own idea of
which tasks run; the loop's is the one that counts, so a result that crosses with its being called
off is not handed out.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from pisces.clients.checks import Limits, update_bytes
from pisces.errors import ConfigError
from pisces.execute.base import Capabilities, Executor, Handover
from pisces.execute.network.coding import to_client
from pisces.execute.network.messages import Over, Welcome
from pisces.execute.network.packing import MOST_MESSAGE_BYTES
from pisces.execute.network.server.desk import Desk
from pisces.execute.network.server.door import Door
from pisces.execute.network.server.inbox import Inbox, Said
from pisces.execute.network.server.members import Landed
from pisces.execute.network.server.roster import Roster
from pisces.execute.network.server.service import Service, clock
from pisces.execute.network.server.stats import Stats
from pisces.execute.network.server.terms import Terms
from pisces.types import Arrived, Event, Failed, Joined, Layout, Left, Task, Weights

ABOUT_TASKS_BYTES = 32_768  # of a Welcome: what a client held and may forget
LATE_S = 1.0  # further behind than this, the loop does not catch up instant by instant
LONGEST_S = 1.0  # of one sleep: a signal that another thread took wakes nobody


class NetworkExecutor(Executor):
    """Runs tasks on clients that connect to it; time is the machine's, once enough are there."""

    def __init__(
        self,
        listen: str,
        layout: Layout,
        door: Door,
        *,
        roster: Roster | None = None,
        terms: Terms | None = None,
        limits: Limits | None = None,
        settings: str = "",
    ) -> None:
        self._layout, self._limits = layout, limits or Limits()
        update_bytes(layout, self._limits)  # refused now if an update may not be that large
        _check_welcome(layout, settings)
        self._terms = terms or Terms()
        self._roster = roster or Roster(max_clients=self._limits.max_clients)
        self._settings = settings
        self._inbox = Inbox(clock)
        self._present: set[int] = set()  # as the loop was told
        self._num_joins: Counter[int] = Counter()  # that it was told of, by client
        self._running: dict[int, Task] = {}
        self._due: list[tuple[float, int]] = []  # when a task's time is up
        self._handed_out: list[int] = []
        self._unsaid: list[Callable[[], None]] = []  # goes out with `send`
        self._began: float | None = None
        self._now = 0.0
        self._listens = self._is_open = self._is_over = False
        self._service = Service(self._make_desk, door, listen)
        self._desk = self._service.desk
        host = listen.rpartition(":")[0]
        self.address = f"{host}:{self._service.port}"

    def _make_desk(self, service: Service) -> Desk:
        return Desk(
            roster=self._roster,
            layout=self._layout,
            terms=self._terms,
            tell=self._inbox.put,
            later=service.later,
            limits=self._limits,
            settings=self._settings,
        )

    @property
    def stats(self) -> Stats:
        """What is counted by now, tasks that clients have included; from any thread."""
        return self._service.stats.copy(len(self._running))

    def refuse(self, reason: str) -> None:
        """Count somebody whom the TLS handshake kept out; from any thread."""
        self._service.post(partial(self._service.refuse, reason))

    # --- the contract -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """When the last wait was over, in seconds since the run began."""
        return self._now

    @property
    def capabilities(self) -> Capabilities:
        """Clients can be told to stop, and most can hand in what there is."""
        return Capabilities(real_time=True, cancels=True, pulls=True, takes_over=True)

    @property
    def quiet(self) -> bool:
        """Never: somebody may always come."""
        return False

    @property
    def interruptible(self) -> bool:
        """While it only listens."""
        return self._listens

    def submit(self, task: Task) -> None:
        """Give the task to its client, or keep it for when that is back."""
        self._run(task, self._now)
        self._unsaid.append(partial(self._desk.give, task))

    def _run(self, task: Task, started_at: float) -> None:
        self._running[task.id] = task
        if task.deadline_s is not None:
            self._forget_due()
            heapq.heappush(self._due, (started_at + task.deadline_s, task.id))

    def cancel(self, task_id: int) -> None:
        """Tell its client to stop."""
        if self._running.pop(task_id, None) is not None:
            self._unsaid.append(partial(self._desk.call_off, task_id, "called off"))

    def pull(self, task_id: int) -> None:
        """Ask its client for what there is."""
        if task_id in self._running:
            self._unsaid.append(partial(self._desk.pull, task_id))

    def send(self) -> None:
        """Let it all go out."""
        if self._unsaid:
            words, self._unsaid = self._unsaid, []
            self._service.post(*words)

    def acknowledge(self, but_not: Collection[int] = ()) -> None:
        """Tell clients that their results are safe."""
        safe = [task_id for task_id in self._handed_out if task_id not in but_not]
        if safe:
            self._handed_out = [task_id for task_id in self._handed_out if task_id in but_not]
            self._unsaid.append(partial(self._desk.settle, safe))

    def wait(self, until: float) -> list[Event]:
        """All that came in; at first, until there are clients enough."""
        self.open()
        self.send()
        if self._began is None:
            return self._begin()
        wake_at = min(until, self._next_due())
        self._listen(lambda: bool(self._inbox) or self._elapsed() >= wake_at, wake_at)
        return [*self._taken(wake_at), *self._expired()]

    def take_over(self, left: Handover) -> None:
        """Go on with those that were there, and what they were at."""
        self._now, self._began = left.now, clock() - left.now
        self._present.update(left.present)
        for task, started_at in left.running:
            self._run(task, started_at)
        given = [task for task, _ in left.running]
        self._service.post(partial(self._desk.take_over, given, left.present))
        self.open()

    def dismiss(self) -> None:
        """Send everybody home."""
        self._end(Over("the run is over", again=False))

    def close(self) -> None:
        """Tell everybody, wait until they heard it, hang up."""
        self._end(Over("the server goes away, and may come back", again=True))
        self._service.stop()
        self._roster.sync()

    def _end(self, over: Over) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.send()
        if self._is_open:
            self._service.post(partial(self._desk.end, over))

    # --- time -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let clients in, unless they are: they may come before the first wait."""
        if not self._is_open:
            self._is_open = True
            self._service.start()

    def _begin(self) -> list[Event]:
        """The clock starts when there are clients enough."""
        self._listen(lambda: self._inbox.num_present >= self._terms.at_least, float("inf"))
        self._began = clock()
        return self._taken(0.0)

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else clock() - self._began

    def _forget_due(self) -> None:
        """Those that ended before, now and then: a deadline may be days away."""
        if len(self._due) > 100 + 2 * len(self._running):
            self._due = [entry for entry in self._due if entry[1] in self._running]
            heapq.heapify(self._due)

    def _next_due(self) -> float:
        while self._due and self._due[0][1] not in self._running:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else float("inf")

    # --- hearing ----------------------------------------------------------------------------------

    def _listen(self, is_enough: Callable[[], bool], until: float) -> None:
        """Until it is enough; it can be broken off."""
        while not is_enough():
            left = until - self._elapsed()
            with self._listening():
                self._inbox.wait(min(max(left, 0.0), LONGEST_S))

    def _taken(self, until: float) -> list[Event]:
        """What came up to an instant, even if it is a little later by now: the loop decides as of
        then, and hears of the rest afterwards, as it would in virtual time.
        """
        began, elapsed = self._began or 0.0, self._elapsed()
        is_behind = elapsed - until >= LATE_S
        heard = self._inbox.take(began, math.inf if is_behind else until)
        if heard:
            first = math.nextafter(self._now, math.inf) if self._now else 0.0  # none comes twice
            self._now = max(first, *(at for at, _ in heard))
        else:
            self._now = max(self._now, elapsed if is_behind else until)
        self._roster.sync()  # before the loop hears of a new number
        return [event for _, said in heard for event in self._events(said)]

    @contextmanager
    def _listening(self) -> Iterator[None]:
        self._listens = True
        try:
            yield
        finally:
            self._listens = False

    def _events(self, said: Said) -> list[Event]:
        """What it means to the loop; nothing if it is about a task that ended here already."""
        match said:
            case Landed():
                return self._landed(said)
            case Joined():
                self._present.add(said.client)
                self._num_joins[said.client] += 1
                return [Joined(self._now, said.client, said.num_examples)]
            case Failed(task_id=int(task_id)):
                if self._running.pop(task_id, None) is None:
                    return []
                return [Failed(self._now, said.client, said.reason, task_id)]
            case Left() if said.client in self._present:
                return [self._left(said.client, said.reason)]
            case _:
                return []

    def _landed(self, said: Landed) -> list[Event]:
        task = self._running.pop(said.task, None)
        if task is None:
            self._unsaid.append(partial(self._desk.settle, [said.task]))
            return []
        self._handed_out.append(said.task)
        flat = torch.from_numpy(said.flat).to(task.weights.flat.device)
        weights = Weights(flat, self._layout)
        return [Arrived(self._now, said.task, said.client, weights, said.report)]

    def _left(self, client: int, reason: str) -> Left:
        """With it go its tasks: one, usually."""
        self._present.discard(client)
        tasks = [task.id for task in self._running.values() if task.client == client]
        for task_id in tasks:
            del self._running[task_id]
            self._unsaid.append(partial(self._desk.call_off, task_id, reason))
        return Left(self._now, client, reason, tasks[0] if tasks else None)

    def _expired(self) -> list[Event]:
        events: list[Event] = []
        while self._next_due() <= self._now:
            _, task_id = heapq.heappop(self._due)
            client = self._running[task_id].client
            num_joins = self._num_joins[client]
            self._unsaid.append(partial(self._desk.expire, task_id, client, num_joins))
            events.append(self._left(client, "deadline passed"))
        return events


def _check_welcome(layout: Layout, settings: str) -> None:
    """Refuse what no client could be told."""
    size = len(to_client(Welcome(0, "", layout, settings))) + ABOUT_TASKS_BYTES
    if size > MOST_MESSAGE_BYTES:
        raise ConfigError(
            f"what clients are told of the model takes {size} bytes, more than the "
            f"{MOST_MESSAGE_BYTES} of a message: tell less, or use fewer and larger tensors"
        )
