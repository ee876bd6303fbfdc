"""A run in real time with its journal: the executor that keeps it, and evaluations as it has them.

When an evaluation is done decides when a target stops the run, and what selectors learn. So results
are written down with the moment they were looked at, too, and are not computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pisces.clients.checks import Limits
from pisces.errors import ConfigError
from pisces.evaluate import Evaluator, Nothing
from pisces.execute.base import Executor
from pisces.execute.journal import Journaled
from pisces.execute.tape import Tape
from pisces.record.journal import Journal, Journaling
from pisces.types import Evaluated, State, Weights


def tape_for(
    executor: Executor, run: Path, made: Mapping[str, Any], how: Journaling | None = None
) -> Tape | None:
    """The tape of a run in that folder, if its executor needs one; `made` says what the run is."""
    check_can_be_kept(executor)
    return Tape(Journal(run, made, how)) if executor.capabilities.real_time else None


def check_can_be_kept(executor: Executor) -> None:
    """Refuse to keep a run that could not go on after a kill."""
    if executor.capabilities.real_time and not executor.capabilities.takes_over:
        raise ConfigError(
            f"{type(executor).__name__} cannot take over what another process began, so its runs "
            "cannot be kept: give it take_over (see Executor), or make the run without a folder"
        )


def journaled(
    executor: Executor,
    evaluator: Evaluator,
    tape: Tape,
    like: Weights,
    limits: Limits | None = None,
) -> tuple[Executor, Evaluator]:
    """Both, as a run with a journal has them; `like` are weights of the run, `limits` its own."""
    if not isinstance(evaluator, Nothing):  # of nothing there is nothing to remember
        evaluator = Remembered(evaluator, tape, like)
    return Journaled(executor, tape, like, limits), evaluator


class Remembered(Evaluator):
    """Writes down when which results were there, and tells the same when it is played again."""

    def __init__(self, evaluator: Evaluator, tape: Tape, like: Weights) -> None:
        self._inner, self._tape, self._like = evaluator, tape, like
        self._pending: list[tuple[float, int, Weights]] = []
        self._num_begun = 0  # of these, by this process

    @property
    def busy(self) -> bool:
        """Is a result still to come?"""
        return bool(self._pending)

    def start(self, at: float, version: int, weights: Weights) -> None:
        """Note it; it is evaluated once nothing is played any more."""
        self._pending.append((at, version, weights))
        if not self._tape.plays:
            self._begin()

    def finished(self) -> list[Evaluated]:
        """Results there now, or there at this point before."""
        if self._tape.plays:
            record = self._tape.answered("evaluated")
            return [] if record is None else self._told(record.facts["results"])
        self._begin()
        done = self._inner.finished()
        if not done:
            self._tape.answered("evaluated")
            return []
        results = [_values(evaluated) for evaluated in done]
        self._tape.tell("evaluated", {"results": results})
        return self._forget([Evaluated(*values) for values in results])

    def _told(self, results: Sequence[Sequence[Any]]) -> list[Evaluated]:
        then = [[at, version] for at, version, _ in results]
        now = [[at, version] for at, version, _ in self._pending[: len(then)]]
        self._tape.hold("evaluated: what was looked at", then, now)
        del self._pending[: len(then)]
        return [Evaluated(*result) for result in results]

    def drain(self) -> list[Evaluated]:
        """Wait for all results; the run is over."""
        self._begin()
        return self._forget(self._inner.drain())

    def _begin(self) -> None:
        for pending in self._pending[self._num_begun :]:
            self._inner.start(*pending)
        self._num_begun = len(self._pending)

    def _forget(self, done: list[Evaluated]) -> list[Evaluated]:
        del self._pending[: len(done)]
        self._num_begun -= len(done)
        return done

    def state(self) -> State:
        """What is still to come."""
        state = State({"pending": [[at, version] for at, version, _ in self._pending]})
        state.arrays |= {str(n): weights.flat for n, (*_, weights) in enumerate(self._pending)}
        return state

    def restore(self, state: State) -> None:
        """Take it up."""
        self._pending = [
            (at, version, Weights(state.arrays[str(n)], self._like.layout))
            for n, (at, version) in enumerate(state.values["pending"])
        ]
        self._num_begun = 0


def _values(evaluated: Evaluated) -> list[Any]:
    metrics = {name: float(value) for name, value in evaluated.metrics.items()}
    return [evaluated.at, evaluated.version, metrics]
