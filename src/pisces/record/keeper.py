"""When a run is saved: every so often, and at its end; never so often that it takes long."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pisces.errors import RunError
from pisces.record.checkpoint import Checkpoints, Saved, Store
from pisces.stop import REASONS

log = logging.getLogger("pisces")

MOST = 0.02  # of a run's time, for its checkpoints: slow ones come more rarely


class Keeper:
    """Saves a run between its turns.

    `take` takes a checkpoint of it as it stands, `reason` says why it ends, if it does; the clock
    is the wall's; it is saved before its time where `is_urgent` says so, and `after` is told how
    many checkpoints are kept. Where one cannot be written, the run goes on without it and says so.
    """

    def __init__(
        self,
        store: Store,
        how: Checkpoints,
        take: Callable[[], Saved],
        reason: Callable[[], str | None],
        clock: Callable[[], float],
        *,
        is_urgent: Callable[[], bool] = lambda: False,
        after: Callable[[int], None] = lambda _keep: None,
    ) -> None:
        self._store, self._how = store, how
        self._take, self._reason, self._clock = take, reason, clock
        self._is_urgent, self._after = is_urgent, after
        self._due_at = clock() + how.every_s
        self._has_failed = False

    def rest(self) -> None:
        """Save the run if it is time, or if it ends."""
        began_at = self._clock()
        reason = self._reason()
        is_due = began_at >= self._due_at or (self._is_urgent() and not self._has_failed)
        if reason is None and not is_due:
            return
        # What a run that is over leaves is there to go on with later: one is enough.
        self._save(1 if reason in REASONS else self._how.keep)
        ended_at = self._clock()
        rare_s = (ended_at - began_at) * (1 / MOST - 1)
        self._due_at = ended_at + max(self._how.every_s, rare_s)

    def _save(self, keep: int) -> None:
        try:
            self._store.save(self._take(), keep)
            self._has_failed = False
        except (RunError, OSError) as error:  # too many open files, too, is no end of a run
            if not self._has_failed:
                log.warning("no checkpoint was written, and the run goes on without: %s", error)
            self._has_failed = True
        else:
            self._after(keep)
