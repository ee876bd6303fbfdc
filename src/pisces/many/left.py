"""What is left of a comparison that was begun before in the same folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pisces import config
from pisces.errors import RunError
from pisces.many.jobs import Job, has_begun, make_folder
from pisces.progress import screen
from pisces.record.reader import Run
from pisces.record.writer import EVENTS, SUMMARY
from pisces.report.settings import dotted

NUM_TOLD = 3  # settings that differ, so that the message stays readable


@contextmanager
def left_in(folder: Path, jobs: Sequence[Job], *, quiet: bool = False) -> Iterator[list[Job]]:
    """The jobs not done yet in a folder, which is made; what stays empty is removed at the end."""
    if (folder / EVENTS).exists():
        raise RunError(f"{folder} is a run itself: choose another folder with --out")
    was_there = folder.exists()
    make_folder(folder)
    try:
        with _alone_in(folder):
            left = [job for job in map(_looked_at, jobs) if job is not None]
            if not quiet:
                _tell(left, len(jobs), folder)
            try:
                yield left
            finally:
                _remove_empty(left)
    finally:
        if not was_there:
            with suppress(OSError):  # there is something in it
                folder.rmdir()


def _remove_empty(jobs: Sequence[Job]) -> None:
    """Runs that were interrupted before they had anything to record."""
    for job in jobs:
        if job.out.exists() and not has_begun(job.out):
            shutil.rmtree(job.out, ignore_errors=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two at work would remove each other's runs as cut short."""
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(place)
        raise RunError(
            f"another pisces is at work in {folder}: wait for it, or choose another --out"
        ) from error
    except OSError:
        pass  # not every file system locks folders
    try:
        yield
    finally:
        os.close(place)


def _looked_at(job: Job) -> Job | None:
    """The job, to be made again if it was begun; None if it is done."""
    if not job.out.exists():
        return job
    if not (job.out / EVENTS).is_file():
        raise RunError(f"{job.out} exists already and is no run: choose another folder with --out")
    if not has_begun(job.out):
        return replace(job, again=True)
    run = Run.open(job.out)
    _check_same(run, job)
    is_done = (job.out / SUMMARY).exists() and not run.counts.is_cut_short
    return None if is_done else replace(job, again=True)


def _check_same(run: Run, job: Job) -> None:
    matters = config.described(job.config, {}).keys() | run.config.keys()
    matters -= {"record"}  # what is written down besides
    now = tomllib.loads(config.to_toml(job.config))
    there = dotted({name: table for name, table in run.config.items() if name in matters})
    here = dotted({name: table for name, table in now.items() if name in matters})
    keys = [key for key in here | there if here.get(key) != there.get(key)]
    if keys:
        told = [f"{k} was {_value(there, k)} and is {_value(here, k)}" for k in keys[:NUM_TOLD]]
        more = [f"{len(keys) - NUM_TOLD} more"] if len(keys) > NUM_TOLD else []
        raise RunError(
            f"{run.path} was made with other settings: {', '.join(told + more)}; set them as they "
            "were, or choose another folder with --out"
        )


def _value(settings: Mapping[str, Any], key: str) -> str:
    return repr(settings[key]) if key in settings else "none"


def _tell(left: Sequence[Job], num_jobs: int, folder: Path) -> None:
    """Say what is taken as it is and, before it is, what is replaced."""
    again = [job.out.name for job in left if job.again]
    if len(left) == num_jobs and not again:
        return
    text = f"going on in {folder}: {num_jobs - len(left)} of {num_jobs} runs are done"
    if again:
        text += f"; made again, for they were cut short: {', '.join(again)}"
    screen.stderr.say(text)
