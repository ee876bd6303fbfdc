"""Whole runs on the nodes of a cluster: one worker each, which makes it in a process of its own.

A run folder comes over while it grows, so that whoever looks at it here sees what there is. The run
of a worker that died, or of its node, is begun anew on another.
"""

from __future__ import annotations

import logging
import shutil
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from pisces.cluster.base import Answer, Cluster, Died, Evicted, Heard, Ref, Refused, Share, Worker
from pisces.config import Config
from pisces.errors import RunError
from pisces.many.crew import MOST_BROKEN
from pisces.many.jobs import Job
from pisces.many.outpost import News, Outpost, Piece
from pisces.many.where import Pool
from pisces.progress.showing import REFRESH_S

LONG = 150  # refreshes without a single run, before one says so
LAST_WORD_S = 10.0  # of workers that are asked to leave

log = logging.getLogger("pisces")


def share_of(config: Config) -> Share:
    """What a run takes of its node: a core for each process, and a GPU if it trains on one."""
    gpus = 1.0 if config.train.device.startswith("cuda") else 0.0
    return Share(float(config.train.workers or 1), gpus)


@dataclass(slots=True, eq=False)
class _Away:
    """A run that is made elsewhere."""

    job: Job
    future: Future[None]
    worker: Worker
    has_begun: bool = False  # there may be no room for it
    is_told: bool = False  # to end early: once, until it has heard of it
    num_deaths: int = 0


class Spread(Pool):
    """Makes runs on a cluster; a thread of its own hears how they go."""

    one_spoils_all = False

    def __init__(self, cluster: Cluster, share: Share) -> None:
        from pisces.train import hands  # torch is slow to import

        self._cluster, self._share, self._software = cluster, share, hands.software()
        self._lock = threading.Lock()
        self._asked: dict[Ref, tuple[_Away, str]] = {}  # with the question
        self._runs: set[_Away] = set()
        self._listener: threading.Thread | None = None
        self._interrupted = False
        self._num_waits = 0  # with nobody at work

    def submit_run(self, job: Job) -> Future[None]:
        """Make a run as soon as there is room for it."""
        future: Future[None] = Future()
        with self._lock:
            away = _Away(job, future, self._cluster.hire(Outpost, self._share))
            self._runs.add(away)
            self._begin(away)
            if self._listener is None:
                self._listener = threading.Thread(target=self._listen, daemon=True)
                self._listener.start()
        return future

    def interrupt(self) -> None:
        """Have all runs end early; those for which there was no room yet end at once."""
        with self._lock:
            self._interrupted = True
            for away in list(self._runs):
                if not away.has_begun:
                    self._settle(away, KeyboardInterrupt())
                elif not away.is_told:
                    away.is_told = True
                    self._ask(away, "interrupt")

    def shutdown(self) -> None:
        """Wait until all is heard that was asked."""
        listener = self._listener
        if listener is not None:
            listener.join(LAST_WORD_S)

    def _ask(self, away: _Away, question: str, *given: object) -> None:
        self._asked[away.worker.ask(question, *given)] = (away, question)

    def _begin(self, away: _Away) -> None:
        away.has_begun = away.is_told = False
        self._ask(away, "begin", away.job, self._software)

    def _listen(self) -> None:
        while True:
            with self._lock:
                asked = list(self._asked)
                if not asked:
                    self._listener = None
                    return
            try:
                answers = self._cluster.answers(asked, REFRESH_S)
            except Exception as error:  # of the cluster itself: nobody knows whose
                self._give_up(error)
                return
            self._say_once_that_one_waits()
            for ref, answer in answers:
                with self._lock:
                    if ref in self._asked:
                        self._hear(*self._asked.pop(ref), answer)

    def _say_once_that_one_waits(self) -> None:
        self._num_waits = 0 if any(away.has_begun for away in self._runs) else self._num_waits + 1
        if self._num_waits == LONG:
            log.warning(
                "no run has begun yet, with %s each: workers are still starting, or others use the "
                "cluster",
                self._share.in_words(),
            )

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            self._listener = None
            for away in list(self._runs):
                self._settle(away, error)
            self._asked.clear()

    def _hear(self, away: _Away, question: str, answer: Heard) -> None:
        if question == "leave":
            away.worker.end()
            return
        try:
            match answer:
                case Answer() if question == "interrupt":
                    away.is_told = False
                case Answer(value=News() as news):
                    self._take(away, news)
                case Died(why) | Evicted(why):
                    self._begin_anew(away, why)
                case Refused(why):
                    raise RunError(f"a node of the cluster cannot make this run: {why}")
        except Exception as error:  # also on this side: a full disk, say
            self._settle(away, error)

    def _take(self, away: _Away, news: News) -> None:
        away.has_begun = True
        for piece in news.pieces:
            _write(away.job.out, piece)
        if not news.over:
            self._ask(away, "look")
        elif news.was_killed:
            self._begin_anew(away, "its process was killed, perhaps for lack of memory")
        elif news.error is not None:
            self._settle(away, news.error.from_a("process on another node"))
        else:
            self._settle(away, KeyboardInterrupt() if news.interrupted else None)

    def _begin_anew(self, away: _Away, why: str) -> None:
        away.num_deaths += 1
        self._forget(away)
        away.worker.end()
        if self._interrupted:
            away.has_begun = False
            self._settle(away, KeyboardInterrupt())
            return
        if away.num_deaths == MOST_BROKEN:
            raise RunError(f"{MOST_BROKEN} workers died at this run, the last of: {why}")
        shutil.rmtree(away.job.out, ignore_errors=True)
        away.worker = self._cluster.hire(Outpost, self._share)
        self._begin(away)

    def _settle(self, away: _Away, error: BaseException | None) -> None:
        self._runs.discard(away)
        self._forget(away)
        if away.has_begun:
            self._ask(away, "leave")
        else:
            away.worker.end()
        if error is None:
            away.future.set_result(None)
        else:
            away.future.set_exception(error)

    def _forget(self, away: _Away) -> None:
        self._asked = {ref: of for ref, of in self._asked.items() if of[0] is not away}


def _write(folder: Path, piece: Piece) -> None:
    path = folder / piece.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if piece.at else "wb") as file:
        file.seek(piece.at)
        file.write(piece.content)
