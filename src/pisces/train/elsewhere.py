"""Training in other processes: what they say to the trainer, and how many of them may die of it."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pisces.errors import RunError
from pisces.types import Task

log = logging.getLogger("pisces")

MOST_DEATHS = 3  # a task that has ended so many workers would end the next one too


@dataclass(frozen=True, slots=True)
class Raised:
    """Training raised an error."""

    error: Exception
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Raised:
        """The error itself, if it survives being sent, and where it comes from."""
        return cls(_portable(error), "".join(traceback.format_exception(error)))

    def from_a(self, worker: str) -> Exception:
        """The error, to be raised on this side."""
        self.error.add_note(f"It was raised in a {worker}:\n\n{self.traceback}")
        return self.error


@dataclass(frozen=True, slots=True)
class Said:
    """A line for the log."""

    level: int
    text: str


class Telling(logging.Handler):
    """Passes on what is logged in a worker; its own log goes nowhere else."""

    def __init__(self, tell: Callable[[Said], None]) -> None:
        super().__init__()
        self._tell = tell
        log.handlers, log.propagate = [self], False

    def emit(self, record: logging.LogRecord) -> None:
        """Pass it on."""
        try:
            said = Said(record.levelno, record.getMessage())
        except Exception:  # what is logged wrongly must not end the training
            self.handleError(record)
        else:
            self._tell(said)


class Hearsay:
    """What workers say is logged once: every one of them says it."""

    def __init__(self) -> None:
        self._heard: set[str] = set()

    def add(self, said: Said) -> None:
        """Log it, if it is news."""
        if said.text not in self._heard:
            self._heard.add(said.text)
            log.log(said.level, said.text)


class Deaths:
    """Of workers at their tasks."""

    def __init__(self) -> None:
        self._of: Counter[int] = Counter()

    def count(self, task: Task, who: str, how: str, remedy: str) -> None:
        """One more died at a task; too many are an error."""
        self._of[task.id] += 1
        how = f"{how} while training client {task.client}"
        log.warning("a %s %s", who, how)
        if self._of[task.id] == MOST_DEATHS:
            raise RunError(f"{MOST_DEATHS} {who}es in a row {how}{remedy}")


def _portable(error: Exception) -> Exception:
    """The error itself, if it survives pickling."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
