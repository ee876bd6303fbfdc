"""A run from its beginning to its end, whoever trains: folder, journal, checkpoints and signals."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from pisces import build
from pisces import config as cfg
from pisces.coordinator import Coordinator
from pisces.errors import PiscesError, Terminated
from pisces.execute.base import Executor
from pisces.execute.tape import Tape
from pisces.federation import Federation
from pisces.journaling import tape_for
from pisces.keeping import Kept, identity, open_folder
from pisces.machine import software
from pisces.models.flat import named_tensors
from pisces.record.checkpoint import Checkpoints
from pisces.record.journal import Journaling
from pisces.record.lines import Line, Memory, Recorder, Tee
from pisces.record.sample import WHOLE_KINDS
from pisces.record.summary import Tally
from pisces.record.trackers.base import Tracker
from pisces.record.trackers.guarded import Tracked
from pisces.record.trackers.subject import subject_of
from pisces.record.writer import RunFolder
from pisces.signals import ends
from pisces.types import Weights

if TYPE_CHECKING:
    from pisces.parts import Simulation
    from pisces.progress.following import Follower

ASK_AGAIN_S = 0.1
Opens = Callable[[Path | None], Executor]  # given the run's folder, which is there by then
Tensors = Callable[[Weights], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What a run came to."""

    weights: Weights
    summary: Mapping[str, Any]
    folder: Path | None
    memory: Memory


def run(
    federation: Federation,
    opens: Opens,
    *,
    protocol: str,
    by_whom: str,
    made: Mapping[str, Any],
    out: str | Path | None = None,
    about: str | None = None,
    tensors: Tensors = named_tensors,
    listener: Recorder | None = None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    recall: Callable[[Line], None] = lambda _line: None,
    journaling: Journaling | None = None,
    ready: Callable[[], None] = lambda: None,
    trackers: Sequence[Tracker] = (),
    progress: bool = False,
    share: float = 1.0,
) -> Ran:
    """Run a federation to its end, on the executor that `opens` gives.

    Ctrl-C ends it early: what there is so far is saved, then `KeyboardInterrupt` is raised. So does
    SIGTERM where there are `checkpoints`, and a terminal that is closed (SIGHUP); they raise
    `Terminated`. `about` is written to the folder's config; `made` says what the run is, beside
    what the federation says; `tensors` are what is saved of the last version. `ready` is called
    when nothing keeps it from beginning. The `trackers` hear of it beside all else: what they do
    changes nothing. With `progress` it is shown while it goes on. The log tells of a `share` of the
    clients, the summary of all.
    """
    about = about or made_here(federation, protocol)
    what = identity(federation, protocol, made)
    tally, memory, folder = Tally(), Memory(), open_folder(out, about, resume=resume)
    if folder is not None:
        folder.write_sample(share)
    is_sampled = folder is not None and folder.is_sampled
    path = None if folder is None else folder.path
    # First to disk, or to memory if there is no folder: what is shown anywhere is kept already.
    tracked, shown = Tracked(trackers), _followers(federation, protocol) if progress else []
    listeners = [*([] if listener is None else [listener]), tracked, *shown]
    recorder = Tee(folder or memory, tally, *listeners)
    clock = _stopwatch()
    with (
        closing(recorder),
        _wired(federation, recorder, opens, folder, what, journaling) as wired,
        _on_signals(wired[0], also_terminated=checkpoints is not None) as heard,
    ):
        coordinator, tape = wired
        kept = folder and Kept(
            folder, coordinator, what, clock, tape, tally if is_sampled else None
        )
        if kept and resume:
            for line in kept.take_up(about, federation.weights.flat.device):
                if is_sampled and line["kind"] not in WHOLE_KINDS:
                    continue  # the tally was saved; who shows the run counts from here on
                if not is_sampled:
                    tally.add(line)
                recall(line)
                tracked.add(line)
                for follower in shown:
                    follower.recall(line)
        ready()
        if tracked:
            tracked.begin(subject_of(protocol, path, about, made, time.time()))
        weights = coordinator.run(kept.rest(checkpoints) if kept else lambda: None)
        wall_s = kept.wall_s if kept else clock()
        summary = _summary(federation, protocol, tally, by_whom)
        if folder is not None:
            folder.finish(summary, tensors(weights), wall_s)
        tracked.end({**summary, "wall_s": wall_s})
    if coordinator.reason == "interrupted":
        raise Terminated if heard - {signal.SIGINT} else KeyboardInterrupt
    return Ran(weights, {**summary, "wall_s": wall_s}, path, memory)


def made_here(
    its: Federation | Simulation,
    protocol: str,
    where: str = "Python",
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """What stands in place of a config: who looks at the run knows what it is about.

    What a config has, too, stands where a config has it. `tables` are such as those of
    `build.tables_of`.
    """
    tables = tables or {}
    what = {"made_in": where, "protocol": protocol, "seed": its.seed, "tick_s": its.tick_s}
    clients = {**tables.get("clients", {}), "deadline_s": its.deadline_s}
    return cfg.told({**what, **tables, "clients": clients, "stop": asdict(its.stop)})


def _followers(federation: Federation, protocol: str) -> list[Follower]:
    from pisces.progress.following import Follower  # who does not look need not wait for it

    return [Follower(protocol, federation.seed, federation.stop)]


def _stopwatch() -> Callable[[], float]:
    began = time.perf_counter()
    return lambda: time.perf_counter() - began


@contextmanager
def _wired(
    federation: Federation,
    recorder: Recorder,
    opens: Opens,
    folder: RunFolder | None,
    what: Mapping[str, Any],
    journaling: Journaling | None,
) -> Iterator[tuple[Coordinator, Tape | None]]:
    """The coordinator, and its tape if it keeps a journal; what was opened is closed at the end."""
    path = None if folder is None else folder.path
    with _abandoned_if_refused(folder), ExitStack() as stack:
        executor = opens(path)
        stack.callback(executor.close)
        tape = None if path is None else tape_for(executor, path, what, journaling)
        coordinator = build.wire(federation, recorder, executor, tape)
        stack.pop_all()  # all went well
    with closing(coordinator):
        if folder is not None and coordinator.is_real_time:
            folder.write_behind()
        yield coordinator, tape


@contextmanager
def _abandoned_if_refused(folder: RunFolder | None) -> Iterator[None]:
    """Whoever mends what was wrong may then take the same folder."""
    try:
        yield
    except PiscesError:
        if folder is not None:
            folder.abandon()
        raise


@contextmanager
def _on_signals(coordinator: Coordinator, *, also_terminated: bool) -> Iterator[set[int]]:
    """Turn Ctrl-C into a wish; only the main thread ever hears of it. Tells which were heard.

    Where the loop cannot be broken off just then, it is asked again: it may be about to wait for
    something that never happens.
    """
    heard: set[int] = set()
    timers: list[threading.Timer] = []

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.add(number)
        coordinator.interrupt()
        if coordinator.reason is None and hasattr(signal, "pthread_kill"):
            main = threading.main_thread().ident
            timers[:] = [threading.Timer(ASK_AGAIN_S, signal.pthread_kill, (main, number))]
            timers[0].start()

    in_main = threading.current_thread() is threading.main_thread()
    numbers = [signal.SIGINT, *(ends() if also_terminated else [])] if in_main else []
    before = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield heard
    finally:
        for timer in timers:  # while they still would be heard here
            timer.cancel()
            timer.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(federation: Federation, protocol: str, tally: Tally, by_whom: str) -> dict[str, Any]:
    stop = federation.stop
    reached = None if stop.target is None else tally.time_to_target(stop.target, stop.metric)
    return {
        "protocol": protocol,
        "seed": federation.seed,
        "metric": stop.metric,
        "target": stop.target,
        "time_to_target_s": reached,
        "trained_by": by_whom,
        "made_with": software(),
        **tally.summary(),
    }
