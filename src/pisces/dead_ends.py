"""Whether a run still gets anywhere, and what to say of one that does not (docs/decisions/005).

Two ways of going on for ever without a version make no event to notice: free clients of whom none
is ever selected, and tasks that are called off again and again without a word from anybody.
"""

from __future__ import annotations

import logging

import numpy as np

from pisces.clients.view import View
from pisces.types import State, Stateful

log = logging.getLogger("pisces")

TRIES = 10  # tasks in a row, for each client, that may be called off before all count as silent
_NOBODY = np.zeros(0, np.bool_)


class DeadEnds(Stateful):
    """Remembers who was refused, and how many were called off, since something last happened."""

    def __init__(self) -> None:
        self._num_called_off = 0  # since an event
        self._refused = _NOBODY  # who was free and not selected, since somebody last was

    def heard(self) -> None:
        """Something happened."""
        self._num_called_off = 0

    def called_off(self) -> None:
        """A task was, without having ended by itself."""
        self._num_called_off += 1

    def asked(self, view: View, *, anybody_picked: bool) -> None:
        """A selector was asked to pick.

        Where nobody runs and nothing waits, nothing but others to pick from could change its mind.
        """
        if anybody_picked:
            self._refused = _NOBODY
        elif not (view.buffer or len(view.running)):
            if not len(self._refused):
                log.warning("t=%.1f nobody runs and none of the free is selected", view.now)
            refused = view.is_selectable.copy()
            refused[: len(self._refused)] |= self._refused
            self._refused = refused

    def in_vain(self, view: View) -> bool:
        """Has everybody been asked many times over, and called off, without a word from any?"""
        return self._num_called_off > TRIES * len(view.clients.trusted)

    def reason(self, view: View, *, quiet: bool, num_clients: int | None) -> str | None:
        """Why to give up, if nobody can be started; none: somebody may come, or come back."""
        trusted = view.clients.trusted
        everybody_came = len(trusted) == num_clients
        if everybody_came and not trusted.any():
            return "no trusted clients left"
        if everybody_came and len(self._refused) == num_clients and self._refused[trusted].all():
            return "nobody may be selected"
        if not (quiet or self.in_vain(view)):
            return None
        if len(view.running):
            return "silent clients"
        return "nobody may be selected" if len(view.free) else "no clients left"

    def state(self) -> State:
        """Both."""
        return State({"num_called_off": self._num_called_off}, {"refused": self._refused})

    def restore(self, state: State) -> None:
        """Take them up."""
        self._num_called_off = state.values["num_called_off"]
        self._refused = np.array(state.arrays["refused"])
