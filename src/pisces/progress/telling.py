"""Progress as lines: sentences where nobody watches, JSON where a program does.

One line when a run begins, reaches its target and ends, and one every few seconds.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, Protocol

from pisces.progress.boards import ending, measured, times
from pisces.progress.standing import Clock, Standing, Whole
from pisces.quantities import duration, percent, plain_text
from pisces.record.lines import plain

EVERY_S = 5.0
SLOWEST_S = 60.0  # a log of many hours need not be as dense as one of a minute
GROWS = 0.02  # of the time so far
JSON_EVERY_S = 1.0

Milestone = Literal["begun", "target", "finished"]


class Words(Protocol):
    """How things are said."""

    def every_s(self, elapsed_s: float) -> float:
        """How long to be silent, so long after the beginning."""
        ...

    def of_run(self, run: Standing, milestone: Milestone) -> Iterable[str]:
        """What a run has come to."""
        ...

    def meanwhile(self, whole: Whole) -> Iterable[str]:
        """Now and then."""
        ...


class Teller:
    """Tells of each run what it has come to, once, and now and then how far all are."""

    def __init__(
        self,
        whole: Whole,
        words: Words,
        write: Callable[[str], None],
        now: Clock = time.monotonic,
    ) -> None:
        self._whole, self._words, self._write, self._now = whole, words, write, now
        self._open = [(run, set[Milestone]()) for run in whole.runs]
        self._due = now() + words.every_s(0.0)

    def tell(self) -> None:
        """Say what is new, if anything is."""
        for run, told in self._open:
            for milestone in _milestones(run):
                if milestone not in told:
                    told.add(milestone)
                    self._say(self._words.of_run(run, milestone))
        self._open = [(run, told) for run, told in self._open if "finished" not in told]
        if self._open and self._now() >= self._due:
            self._say(self._words.meanwhile(self._whole))
            self._due = self._now() + self._words.every_s(self._whole.elapsed_s)

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._write(line)


def _milestones(run: Standing) -> Iterator[Milestone]:
    if run.has_begun:
        yield "begun"
    if run.reached_at is not None:
        yield "target"
    if run.reason is not None:
        yield "finished"


def write(text: str) -> None:
    """A line on stderr; a run does not end because nobody reads it any more."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # a broken pipe, a full disk, a closed file
        return


# --- sentences ------------------------------------------------------------------------------------


class Sentences:
    """For people who look into a log later: whole lines, the run's name first."""

    def every_s(self, elapsed_s: float) -> float:
        """A few seconds, in a long run a minute."""
        return min(SLOWEST_S, max(EVERY_S, GROWS * elapsed_s))

    def of_run(self, run: Standing, milestone: Milestone) -> Iterator[str]:
        """One line each; of a run that ends at its target, one for both."""
        if milestone == "begun":
            yield _line(run, f"{_beginning(run)}, until {_until(run)}")
        elif milestone == "target" and run.reason is None:
            yield _line(run, f"reached {_target(run)} at {_time(run.reached_at)}")
        elif milestone == "finished":
            yield _line(run, f"{ending(run)} at {_time(run.at)}, {_facts(run)}{_when(run)}")

    def meanwhile(self, whole: Whole) -> Iterator[str]:
        """Of one run where it stands, of many how many are done."""
        if len(whole.runs) > 1:
            num = sum(len(batch.under_way) for batch in whole.batches)
            yield f"runs: {whole.num_done} of {len(whole.runs)} done, {num} running; {times(whole)}"
            return
        for run in whole.runs:
            if run.has_begun:
                done = f"{percent(run.share)} done, " if run.share else ""
                yield _line(run, f"at {_time(run.at)}, {_facts(run)}; {done}{times(run)}")


def _line(run: Standing, text: str) -> str:
    return plain_text(f"{run.name}: {text}")


def _beginning(run: Standing) -> str:
    return f"goes on at {_time(run.at)}" if run.share_before else "begun"


def _until(run: Standing) -> str:
    stop = run.stop
    limits = [] if stop.target is None else [_target(run)]
    if stop.time_s is not None and math.isfinite(stop.time_s):
        limits.append(_time(stop.time_s))
    limits += [f"{stop.versions} versions"] if stop.versions else []
    limits += [f"{stop.updates} updates"] if stop.updates else []
    return " or ".join(limits) or "it stops"


def _facts(run: Standing) -> str:
    metric = run.stop.metric
    told = [f"version {run.version}", f"{run.num_updates} updates"]
    if run.reason is None:
        told.append(f"{run.num_at_work} running")
    if run.value is not None:
        told.append(f"{metric} {measured(run.value, run.stop.target)}")
    if run.best is not None:
        told.append(f"best {measured(run.best, run.stop.target)}")
    return ", ".join(told)


def _when(run: Standing) -> str:
    took = f"; took {duration(run.elapsed_s)}"
    if run.reached_at is None:
        return took
    return f", {_target(run)} reached at {_time(run.reached_at)}{took}"


def _target(run: Standing) -> str:
    return f"{run.stop.metric} {run.stop.target:g}"


def _time(seconds: float | None) -> str:
    return f"{seconds or 0.0:,.0f} s"


# --- JSON -----------------------------------------------------------------------------------------


class JsonLines:
    """For programs: an object per line, with its `kind`."""

    def every_s(self, elapsed_s: float) -> float:
        """Every second."""
        del elapsed_s
        return JSON_EVERY_S

    def of_run(self, run: Standing, milestone: Milestone) -> Iterator[str]:
        """One line each."""
        yield _encoded({"kind": milestone, **_described(run)})

    def meanwhile(self, whole: Whole) -> Iterator[str]:
        """One line for each run under way, and of many one for all."""
        for batch in whole.batches:
            for run in batch.under_way:
                yield _encoded({"kind": "progress", **_described(run)})
        if len(whole.runs) > 1:
            yield _encoded({"kind": "all", **_described_together(whole)})


def _described(run: Standing) -> dict[str, Any]:
    group = {"group": run.group} if run.group else {}
    return {
        "run": f"{run.protocol}-seed{run.seed}",
        **group,
        "protocol": run.protocol,
        "seed": run.seed,
        "at": run.at,
        "version": run.version,
        "updates": run.num_updates,
        "running": run.num_at_work,
        "metric": run.stop.metric,
        "value": run.value,
        "best": run.best,
        "target": run.stop.target,
        "time_to_target_s": run.reached_at,
        "reason": run.reason,
        **_timed(run),
    }


def _described_together(whole: Whole) -> dict[str, Any]:
    running = sum(len(batch.under_way) for batch in whole.batches)
    return {"done": whole.num_done, "runs": len(whole.runs), "running": running, **_timed(whole)}


def _timed(of: Standing | Whole) -> dict[str, Any]:
    left_s = None if of.left_s is None else round(of.left_s, 3)
    return {
        "share": round(of.share, 4),
        "elapsed_s": round(of.elapsed_s, 3),
        "left_s": left_s,
        "at_most": of.may_end_early,
    }


def _encoded(value: dict[str, Any]) -> str:
    return json.dumps(plain(value), allow_nan=False)
