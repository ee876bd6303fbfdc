"""One-thread worker processes of this machine, which make runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import FrameType

from pisces import config
from pisces.many.jobs import Job
from pisces.train.processes import born_deaf, end_with_parent, stay_deaf


class Processes(ProcessPoolExecutor):
    """Processes of this machine, which share its cores."""

    one_spoils_all = True

    def __init__(self, num_workers: int) -> None:
        from pisces.machine import num_cores  # torch is slow to import

        context = multiprocessing.get_context("spawn")
        super().__init__(num_workers, context, initializer=prepare)
        self._num_cores = max(1, num_cores() // num_workers)

    def submit_run(self, job: Job) -> Future[None]:
        """Make it in the next process that is free."""
        with born_deaf():
            return self.submit(make_run, job, self._num_cores)

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        interrupt_children()


def interrupt_children() -> None:
    """Of this process, all."""
    for child in multiprocessing.active_children():
        if child.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGINT)


# --- in the workers -------------------------------------------------------------------------------


def prepare() -> None:
    """Be deaf to Ctrl-C until there is a run to interrupt, and end with the parent."""
    stay_deaf()
    end_with_parent()


def make_run(job: Job, num_cores: int) -> None:
    """Make a run that has so many cores to itself."""
    from pisces import build, tracking
    from pisces.simulation import run

    simulation = build.simulation(job.config)
    if simulation.workers is None and simulation.backend in ("auto", "pool"):
        simulation = replace(simulation, workers=num_cores)
    before = signal.signal(signal.SIGINT, _interrupt_once)
    try:
        run(
            simulation,
            protocol=job.name,
            out=job.out,
            config_text=config.to_toml(job.config),
            trackers=tracking.of(job.config.record, job.out),
        )
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_once(_signal: int, _frame: FrameType | None) -> None:
    """End the run under way; while it is being saved nothing interrupts it again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
