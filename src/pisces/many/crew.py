"""Who has many runs made at once, wherever a pool makes them.

The parent learns how they are doing from their run folders. When it must stop (Ctrl-C, SIGTERM, or
a run that failed) it interrupts the runs under way, which end cleanly with what they have, and
starts no more. Workers do not outlive it, however it ends.
"""

from __future__ import annotations

import shutil
import signal
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from types import FrameType

from pisces.errors import RunError
from pisces.many.jobs import Job
from pisces.many.where import Where
from pisces.progress import screen
from pisces.progress.boards import Board
from pisces.progress.showing import REFRESH_S, Manner, shown
from pisces.progress.standing import Standing
from pisces.record.tail import Tail
from pisces.signals import ends

MOST_BROKEN = 3  # processes that died around a run before it is given up


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that came to nothing, and why."""

    job: Job
    error: Exception


def run_all(jobs: Sequence[Job], where: Where, manner: Manner) -> bool:
    """Make all runs; was it interrupted?"""
    stop = jobs[0].config.stop
    standings = [Standing(job.name, job.config.seed, stop) for job in jobs]
    crew = Crew(jobs, standings, where)
    with shown(Board(standings), manner) as changed, crew:
        while crew.work():
            changed()
    for failure in crew.failures:
        raise failure.error
    return crew.interrupted


@dataclass(slots=True, eq=False)
class _Work:
    """A job and how it is doing."""

    job: Job
    standing: Standing
    tail: Tail
    num_broken: int = 0  # workers that ended while they were at it, or another at its own
    num_restarts: int = 0  # of its record, that were heeded

    def look(self) -> None:
        """Note what the run has recorded since the last look."""
        for line in self.tail.new_lines():
            if self.tail.num_restarts > self.num_restarts:
                self.num_restarts = self.tail.num_restarts
                self.standing.begin_anew()
            self.standing.add(line)


class Crew:
    """Workers of a pool, each with one run at a time.

    A run that fails ends the work, unless `keep_going`: it is then noted in `failures`, and the
    others go on in fresh processes, for what failed may have spoilt its own (a GPU's state, say).
    What was left of a run that was begun before is then removed as it is begun anew; otherwise only
    where its job says so.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        standings: Sequence[Standing],
        where: Where,
        *,
        keep_going: bool = False,
        when_done: Callable[[Job], None] = lambda _job: None,
    ) -> None:
        self.interrupted = False
        self.failures: list[Failure] = []
        pairs = zip(jobs, standings, strict=True)
        self._todo = deque(_Work(job, standing, Tail(job.out)) for job, standing in pairs)
        self._busy: dict[Future[None], _Work] = {}
        self._num_workers = where.num_workers
        self._keep_going = keep_going
        self._when_done = when_done
        self._spoilt = False
        self._new_pool = partial(where.pool, where.num_workers)
        self._pool = self._new_pool()

    def __enter__(self) -> None:
        # Ctrl-C is noted, not raised: raised while a worker starts, it would lose that worker.
        asked = (signal.SIGINT, *ends())
        self._handlers = {number: signal.signal(number, self._note_interrupt) for number in asked}

    def __exit__(self, *error: object) -> None:
        """Interrupt the runs under way, wait for them, and end the workers."""
        busy = set(self._busy)
        if self.interrupted:
            screen.forget_if_closed()
        if busy and self.interrupted:
            runs = "the run" if len(busy) == 1 else f"the {len(busy)} runs"
            screen.stderr.say(f"waiting for {runs} under way to end")
        while busy:
            self._pool.interrupt()  # again and again: one that is being set up does not listen yet
            busy = wait(busy, REFRESH_S).not_done
        self._pool.shutdown()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self.interrupted = True

    def work(self) -> bool:
        """Keep everybody busy, look how they are doing; False when all is done or over."""
        self._hand_out()
        done, _ = wait(self._busy, REFRESH_S, FIRST_COMPLETED)
        for work in self._busy.values():
            work.look()
        for future in done:
            self._settle(future, self._busy.pop(future))
        over = self.interrupted or (self.failures and not self._keep_going)
        return bool(self._busy or self._todo) and not over

    def _hand_out(self) -> None:
        """A job for each free worker; a job queued in the pool could not be taken back."""
        if self._spoilt and not self._busy:
            self._pool.shutdown()
            self._pool, self._spoilt = self._new_pool(), False
        while self._todo and len(self._busy) < self._num_workers and not self._spoilt:
            work = self._todo.popleft()
            if self._keep_going or work.job.again:
                shutil.rmtree(work.job.out, ignore_errors=True)  # begun once, not finished
            self._busy[self._pool.submit_run(work.job)] = work

    def _settle(self, future: Future[None], work: _Work) -> None:
        try:
            future.result()
            self._when_done(work.job)
        except KeyboardInterrupt:
            pass  # the terminal's Ctrl-C reached the worker first; the parent notes it too
        except BrokenProcessPool:
            self._try_again(work)
        except Exception as error:
            self._spoilt = self._pool.one_spoils_all
            self.failures.append(Failure(work.job, error))

    def _try_again(self, work: _Work) -> None:
        """A worker died and took all others with it: nobody knows whose fault it was."""
        self._spoilt = True
        work.num_broken += 1
        if self.interrupted:
            return  # it was sent to all of them, and nobody is to blame
        if not self._keep_going or work.num_broken == MOST_BROKEN:
            error = RunError(
                "a worker process was killed, perhaps for lack of memory: try fewer --jobs"
            )
            self.failures.append(Failure(work.job, error))
            return
        work.tail, work.num_restarts = Tail(work.job.out), 0
        work.standing.begin_anew()
        self._todo.append(work)
