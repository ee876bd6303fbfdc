"""What a client has to do and what it has done, between its training and its connection.

All of it happens in the network's thread, but for the queue that the training takes its work from.
What is finished is sent and put on the disk at the same time: the disk is what takes long.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from queue import SimpleQueue

from pisces.execute.network.client.connection import Connection
from pisces.execute.network.client.holding import Held, Holding
from pisces.execute.network.client.incoming import Ears
from pisces.execute.network.client.progress import Progress, Watcher
from pisces.execute.network.client.stock import Stock
from pisces.execute.network.client.work import Job, Trained, Work
from pisces.execute.network.messages import (
    Acknowledged,
    CalledOff,
    Failure,
    Hello,
    Order,
    Pull,
    Result,
    Welcome,
)
from pisces.execute.network.packing import Flat, can_decompress, digest, pack, pack_step

log = logging.getLogger("pisces")

MOST_WAITING = 8  # tasks of one client
CALLED_OFF = "called off"  # the reason of a failure that nobody minds


class Bench(Ears):
    """Hears what the server wants, and keeps what was done until the server has it."""

    def __init__(self, about: Hello, holding: Holding, on: Watcher | None = None) -> None:
        self.todo: SimpleQueue[Welcome | int | None] = SimpleQueue()  # None: no more, ever
        self.unheard: set[int] = set()  # results sent over this connection, not acknowledged
        self._about, self._stock, self._on = about, Stock(holding), on
        self._run = self._stock.latest_run()
        self._welcome: Welcome | None = None
        self._member: Connection | None = None
        self._jobs: dict[int, Job] = {}
        self._at: int | None = None  # the task being trained
        self._spoken: set[int] = set()  # tasks whose end was told over this connection
        self._failures: dict[int, str] = {}  # that could not be told
        self._trains: set[int] = set()  # what the server was told of
        self._version: tuple[int, Flat] | None = None  # the last one received
        self._progress = Progress()

    # --- for the training -------------------------------------------------------------------------

    def begin(self, task: int) -> Job | None:
        """What to do for a task; None: nothing any more. From the training's thread."""
        self._at = task
        return self._jobs.get(task)

    def packed(self, job: Job, trained: Trained) -> Held:
        """A result as it travels, by what the server asked for. From any thread."""
        how = self._welcome
        zstd = how is not None and how.zstd and can_decompress()
        if how is not None and how.encoding == "float16":
            content, data = pack_step(trained.flat, job.began, zstd=zstd)
        else:
            content, data = pack(trained.flat, zstd=zstd)
        result = Result(job.work.task, trained.report, content, digest(job.layout))
        return Held(job.run, result, data)

    def finished(self, job: Job, held: Held) -> None:
        """A task is done; thrown away if nobody waits for it."""
        if not self._ends(job):
            return
        self._send(held)
        self._stock.keep(held)
        self.tell(loss=held.result.report.loss)

    def failed(self, job: Job, reason: str) -> None:
        """A task cannot be done."""
        if self._ends(job):
            self._fail(job.work.task, reason)
            self.tell()

    def _ends(self, job: Job) -> bool:
        """Take a task off the bench; False: nobody waits for what came of it."""
        task = job.work.task
        if self._jobs.get(task) is not job:
            return False
        del self._jobs[task]
        if job.work.called_off:  # the server waits to hear that its client is free
            self._fail(task, CALLED_OFF)
            self.tell()
        return not job.work.called_off

    def _fail(self, task: int, reason: str) -> None:
        """Say that a task failed, now or when there is somebody to say it to."""
        if self._is_welcome:
            self._say_failure(task, reason)
        else:
            self._failures[task] = reason

    @property
    def _is_welcome(self) -> bool:
        return self._member is not None and self._member.is_welcome

    def _send(self, held: Held | int) -> None:
        task = held if isinstance(held, int) else held.task
        if self._is_welcome and self._speaks_of(task):
            self.unheard.add(task)
            self._out.say(held)

    def _say_failure(self, task: int, reason: str) -> None:
        if self._speaks_of(task):
            self._out.say(Failure(task, reason))

    def _speaks_of(self, task: int) -> bool:
        """The end of a task is told once over a connection; more is not understood."""
        is_new = task not in self._spoken
        self._spoken.add(task)
        return is_new

    @property
    def _out(self) -> Connection:
        assert self._member is not None
        return self._member

    async def find(self, task: int) -> Held | None:
        """A result that is kept; one that cannot be read any more has failed."""
        held = await self._stock.find(self._run, task)
        if held is None and task in self.unheard:
            self.unheard.discard(task)
            self._out.say(Failure(task, "its result was lost on the client's disk"))
        return held

    # --- for the connection -----------------------------------------------------------------------

    def hello(self) -> Hello:
        """What to say first."""
        self._trains = {*self._jobs, *self._failures}
        return replace(
            self._about,
            run=self._run,
            holds=tuple(sorted(self._stock.tasks(self._run))),
            trains=tuple(sorted(self._trains)),
            pulls=True,
            zstd=can_decompress(),
        )

    def connected(self, member: Connection | None) -> None:
        """From now on this is whom to talk through; None: nobody."""
        self._member = member
        self.unheard.clear()
        self._spoken.clear()

    def welcomed(self, welcome: Welcome) -> bool:
        """Taken in: send what is wanted, forget what is settled."""
        if welcome.run != self._run:
            self._change_run(welcome.run)
            if self._stock.tasks(welcome.run):
                return False  # that was not told
        self._prepare(welcome)
        for task in welcome.settled:
            self._forget(task)
        finished = sorted(filter(self._has, self._trains))  # since Hello
        for task in (*welcome.wanted, *finished):
            self._send(task)
        while self._failures:
            self._say_failure(*self._failures.popitem())
        self._stock.tidy(welcome.run)
        self.tell(state="connected", reason="", number=welcome.number)
        return True

    def _change_run(self, run: str) -> None:
        """What was of another run is of no use to anybody."""
        self.call_all_off()
        self._failures.clear()
        self._run, self._version = run, None

    def _prepare(self, welcome: Welcome) -> None:
        """The training is to know of it, unless it does."""
        known = self._welcome
        self._welcome = welcome
        facts = ("number", "run", "layout", "settings")
        if known is None or any(getattr(known, f) != getattr(welcome, f) for f in facts):
            self.todo.put(welcome)

    def received(self, version: int, weights: Flat) -> None:
        """Weights; the server thinks that they are here, also if their task is called off."""
        self._version = version, weights

    def ordered(self, order: Order) -> None:
        """A task; one that is known is not done twice."""
        task = order.task
        if task in self._jobs:
            return
        self._spoken.discard(task)
        if self._has(task):
            self._send(task)
        elif self._version is None or self._version[0] != order.version:
            self._say_failure(task, f"version {order.version} is not here")
        elif len(self._jobs) >= MOST_WAITING:
            self._say_failure(task, f"{len(self._jobs)} tasks wait already")
        else:
            self._put(order, self._version[1])

    def _has(self, task: int) -> bool:
        return self._stock.has(self._run, task)

    def _put(self, order: Order, began: Flat) -> None:
        assert self._welcome is not None
        work = Work(order.task, order.version, order.plan, order.seed)
        self._jobs[order.task] = Job(self._run, work, began, self._welcome.layout)
        self.todo.put(order.task)
        self.tell()

    def told(self, said: Acknowledged | CalledOff | Pull) -> None:
        """Word of a task."""
        match said:
            case Pull(task):
                if task in self._jobs:
                    self._jobs[task].work.pull()
            case Acknowledged(task):
                num_done = self._progress.num_done + (task in self.unheard)
                self._forget(task)
                self._spoken.discard(task)  # nothing more is said of it
                self.tell(num_done=num_done)
            case CalledOff(task, reason):
                log.info("task %d is called off: %s", task, reason)
                self._call_off(task)
                self.tell()

    def _call_off(self, task: int) -> None:
        """What is being trained ends as soon as it looks; the server hears of it then."""
        job = self._jobs.get(task)
        if job is not None and task == self._at:
            job.work.call_off()
            return
        self._forget(task)
        self._say_failure(task, CALLED_OFF)

    def _forget(self, task: int) -> None:
        """Nobody waits for it, or it is safe."""
        job = self._jobs.pop(task, None)
        if job is not None:
            job.work.call_off()
        self._failures.pop(task, None)
        self._stock.forget(self._run, task)
        self.unheard.discard(task)

    # --- the end ----------------------------------------------------------------------------------

    def call_all_off(self) -> None:
        """Nobody waits for anything any more."""
        for job in list(self._jobs.values()):
            job.work.call_off()
        self._jobs.clear()

    async def kept(self) -> None:
        """All that is finished is on the disk."""
        await self._stock.settled()

    def tell(self, **changes: object) -> None:
        """Tell who watches where things stand."""
        work = next((job.work for job in self._jobs.values()), None)  # the oldest: it is at it
        self._progress = replace(
            self._progress,
            task=None if work is None else work.task,
            version=self._progress.version if work is None else work.version,
            **changes,  # type: ignore[arg-type]
        )
        if self._on is not None:
            held = len(self._stock.tasks(self._run))
            self._progress = replace(self._progress, num_held=held)
            self._on(self._progress)
