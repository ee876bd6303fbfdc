"""Many runs at once, in one-thread worker processes.

The parent learns how they are doing from their run folders. When it must stop (Ctrl-C, or a run
that failed) it interrupts the runs under way, which end cleanly with what they have, and starts no
more. Workers do not outlive it, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from pisces import config
from pisces.cli.progress import REFRESH_S, Board, Standing, shown
from pisces.config import Config
from pisces.errors import ConfigError, RunError
from pisces.record.reader import Run
from pisces.record.tail import Tail
from pisces.record.writer import EVENTS
from pisces.train.processes import born_deaf, end_with_parent


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be made."""

    config: Config
    out: Path


def jobs_of(base: Config, protocols: Sequence[str], seeds: Sequence[int], out: Path) -> list[Job]:
    """One job per seed and protocol; what cannot run is refused before anything starts."""
    from pisces import build

    if not protocols:
        raise ConfigError("--protocols needs at least one protocol, such as pisces,fedbuff")
    jobs = []
    for seed in seeds:
        for protocol in protocols:
            one = base.model_copy(update={"protocol": protocol, "seed": seed})
            jobs.append(Job(build.resolved(one), out / f"{protocol}-seed{seed}"))
    for job in jobs:
        if job.out.exists():
            raise RunError(f"{job.out} exists already: choose another folder with --out")
    for job in jobs[: len(protocols)]:
        build.simulation(job.config)
    return jobs


def run_all(jobs: Sequence[Job], num_workers: int, *, quiet: bool) -> tuple[list[Run], bool]:
    """Make all runs; returns those that were begun, and whether it was interrupted."""
    stop = jobs[0].config.stop
    standings = [Standing(job.config.protocol, job.config.seed, stop) for job in jobs]
    crew = _Crew(jobs, standings, num_workers)
    with shown(Board(stop.metric, standings), quiet) as redraw, crew:
        while crew.work():
            redraw()
    return crew.runs(), crew.interrupted


class _Crew:
    """Worker processes, each with one run at a time."""

    def __init__(
        self, jobs: Sequence[Job], standings: Sequence[Standing], num_workers: int
    ) -> None:
        self.interrupted = False
        self._jobs = jobs
        self._follows = [(Tail(job.out), s) for job, s in zip(jobs, standings, strict=True)]
        self._todo = list(jobs)
        self._busy: set[Future[None]] = set()
        self._num_workers = num_workers
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(num_workers, context, initializer=_prepare)

    def __enter__(self) -> None:
        # Ctrl-C is noted, not raised: raised while a worker starts, it would lose that worker.
        self._handler = signal.signal(signal.SIGINT, self._note_interrupt)

    def __exit__(self, *error: object) -> None:
        """Interrupt the runs under way, wait for them, and end the workers."""
        while self._busy:
            _interrupt_workers()  # again and again: one that is being set up does not listen yet
            self._busy = wait(self._busy, REFRESH_S).not_done
        self._pool.shutdown()
        signal.signal(signal.SIGINT, self._handler)

    def _note_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self.interrupted = True

    def work(self) -> bool:
        """Keep everybody busy, look how they are doing; False when all is done or interrupted."""
        # One job per worker: a job queued in the pool could not be taken back.
        while self._todo and len(self._busy) < self._num_workers:
            with born_deaf():
                job = self._todo.pop(0)
                self._busy.add(self._pool.submit(_make_run, job, self._num_workers))
        done, self._busy = wait(self._busy, REFRESH_S, FIRST_COMPLETED)
        for future in done:
            _finish(future)
        for tail, standing in self._follows:
            if standing.reason is None:
                for line in tail.new_lines():
                    standing.add(line)
        return bool(self._busy or self._todo) and not self.interrupted

    def runs(self) -> list[Run]:
        """The runs that were begun."""
        return [Run.open(job.out) for job in self._jobs if _has_begun(job.out / EVENTS)]


def _interrupt_workers() -> None:
    for child in multiprocessing.active_children():
        if child.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGINT)


def _finish(future: Future[None]) -> None:
    try:
        future.result()
    except KeyboardInterrupt:
        pass  # the terminal's Ctrl-C reached the worker first; the parent notes it too
    except BrokenProcessPool as error:
        raise RunError(
            "a worker process was killed, perhaps for lack of memory: try fewer --jobs"
        ) from error


def _has_begun(events: Path) -> bool:
    return events.exists() and events.stat().st_size > 0


# --- in the workers -------------------------------------------------------------------------------


def _prepare() -> None:
    """Be deaf to Ctrl-C until there is a run to interrupt, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    end_with_parent()


def _make_run(job: Job, num_runs: int) -> None:
    """Make one run out of `num_runs` at a time, which share the cores."""
    from pisces import build
    from pisces.machine import num_cores
    from pisces.simulation import run

    simulation = build.simulation(job.config)
    if simulation.workers is None and simulation.backend in ("auto", "pool"):
        simulation = replace(simulation, workers=max(1, num_cores() // num_runs))
    signal.signal(signal.SIGINT, _interrupt_once)
    try:
        run(
            simulation,
            protocol=job.config.protocol,
            out=job.out,
            config_text=config.to_toml(job.config),
        )
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_once(_signal: int, _frame: FrameType | None) -> None:
    """End the run under way; while it is being saved nothing interrupts it again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
