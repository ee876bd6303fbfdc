"""Many runs at once, in one-thread worker processes.

The parent learns how they are doing from their run folders. On Ctrl-C it interrupts the runs under
way, which end cleanly with what they have, and starts no more.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from rich.live import Live

from pisces import build, config
from pisces.cli.console import stderr
from pisces.cli.progress import REFRESH_S, Board, Standing
from pisces.config import Config
from pisces.record.reader import Run
from pisces.record.tail import Tail


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be made."""

    config: Config
    out: Path


def jobs_of(base: Config, protocols: Sequence[str], seeds: Sequence[int], out: Path) -> list[Job]:
    """One job per seed and protocol; what cannot run is refused before anything starts."""
    jobs = []
    for seed in seeds:
        for protocol in protocols:
            one = base.model_copy(update={"protocol": protocol, "seed": seed})
            jobs.append(Job(build.resolved(one), out / f"{protocol}-seed{seed}"))
    for job in jobs[: len(protocols)]:
        build.simulation(job.config)
    return jobs


def run_all(jobs: Sequence[Job], num_workers: int, *, quiet: bool) -> tuple[list[Run], bool]:
    """Make all runs; returns those that were begun, and whether it was interrupted."""
    stop = jobs[0].config.stop
    standings = [Standing(job.config.protocol, job.config.seed, stop) for job in jobs]
    board = Board(stop.metric, standings)
    crew = _Crew(jobs, standings, num_workers)
    with Live(board, console=stderr, auto_refresh=False, transient=True) as live:
        try:
            while crew.work():
                if not quiet:
                    live.refresh()
        except KeyboardInterrupt:
            crew.interrupt()
        finally:
            crew.close()
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

    def work(self) -> bool:
        """Keep everybody busy, look how they are doing; False once all is done."""
        # One job per worker: a job queued in the pool could not be taken back.
        while self._todo and len(self._busy) < self._num_workers:
            self._busy.add(self._pool.submit(_make_run, self._todo.pop(0)))
        done, self._busy = wait(self._busy, REFRESH_S, FIRST_COMPLETED)
        for future in done:
            future.result()
        for tail, standing in self._follows:
            if standing.reason is None:
                for line in tail.new_lines():
                    standing.add(line)
        return bool(self._busy or self._todo)

    def interrupt(self) -> None:
        """Ask the runs under way to end, and wait for them."""
        self.interrupted = True
        self._todo.clear()
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGINT)
        wait(self._busy)

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown(cancel_futures=True)

    def runs(self) -> list[Run]:
        """The runs that were begun."""
        return [Run.open(job.out) for job in self._jobs if (job.out / "events.jsonl").exists()]


def _prepare() -> None:
    """A worker leaves the terminal's Ctrl-C to its parent, which passes it on to a run."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make_run(job: Job) -> None:
    import torch

    from pisces.simulation import run

    torch.set_num_threads(job.config.train.threads)
    simulation = build.simulation(job.config)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(
            simulation,
            protocol=job.config.protocol,
            out=job.out,
            config_text=config.to_toml(job.config),
        )
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
