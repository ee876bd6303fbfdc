"""A run and its checkpoints: what it is, how it is saved while it goes on, and how it is taken up.

What a run is decides which checkpoints it may go on from. Its stop is no part of that, nor is who
trains it, as long as the same numbers come out.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.coordinator import Coordinator
from pisces.errors import ConfigError, FinishedError, RunError
from pisces.execute.tape import Tape
from pisces.federation import Federation
from pisces.machine import software
from pisces.parts import Simulation
from pisces.record.blobs import digest
from pisces.record.checkpoint import MISFITS, Checkpoints, Saved, Store, misfit
from pisces.record.keeper import Keeper
from pisces.record.lines import Line
from pisces.record.reader import Run
from pisces.record.summary import Tally
from pisces.record.writer import CHECKPOINTS, CONFIG, EVENTS, Position, RunFolder
from pisces.stop import REASONS

log = logging.getLogger("pisces")


def identity(federation: Federation, protocol: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is, as far as can be told; `made` are settings it was made with, and the like."""
    its = federation
    told = {
        "protocol": protocol,
        "seed": its.seed,
        "model's weights": digest(repr(its.weights.layout).encode()),
        **made,
        "plan": repr(its.plans(0)),
        "tick_s and deadline_s": [its.tick_s, its.deadline_s],
    }
    as_saved: dict[str, Any] = json.loads(json.dumps(told))
    return as_saved


def particulars(simulation: Simulation, made: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a simulation what it is, beside what makes any run so."""
    its = simulation
    return {
        "number of clients": its.data.num_clients,
        "training": its.rounded_by(),
        **made,
        "data": _digest_of([its.data.targets, *_some(its.data.inputs), *its.data.rows]),
        "recipe": repr(its.recipe),
    }


def _some(inputs: torch.Tensor) -> list[torch.Tensor]:
    """The first inputs and the last: all of them may be gigabytes."""
    return [inputs[:100], inputs[-100:]]


def _digest_of(arrays: Sequence[torch.Tensor | NDArray[np.int64]]) -> str:
    told = hashlib.blake2b(digest_size=8)
    for array in arrays:
        values = array.numpy(force=True) if isinstance(array, torch.Tensor) else array
        told.update(np.ascontiguousarray(values).tobytes())
    return told.hexdigest()


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any], within: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The keys, dotted, in which two nested tables differ, with the values of both."""
    for key in [*one, *(key for key in other if key not in one)]:
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{within}{key}.")
        elif a != b:
            yield f"{within}{key}", a, b


def check_kinds(one: Any, other: Any, within: str = "") -> None:
    """Refuse saved values that are of another kind than those of a run that begins.

    Kinds are what JSON has, tensors and columns; nothing stands for anything, and what is in lists
    is not looked at.
    """
    if one is None or other is None:
        return
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in one.keys() & other.keys():
            check_kinds(one[key], other[key], f"{within}.{key}" if within else str(key))
    elif _kind(one) != _kind(other):
        raise TypeError(f"{within} is {_kind(other)}, not {_kind(one)}")


def _speakable(given: object) -> str:
    """Whatever somebody wrote there: halves of characters cannot be told to anybody."""
    return str(given)[:200].encode("utf-8", "backslashreplace").decode()


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool | str):
        return type(value).__name__
    if isinstance(value, torch.Tensor | np.ndarray):
        return "a tensor" if isinstance(value, torch.Tensor) else "a column"
    return "a list" if isinstance(value, list | tuple) else "a number"


def open_folder(out: str | Path | None, config_text: str, *, resume: bool) -> RunFolder | None:
    """The folder a run is written to: a new one, or the one it goes on in."""
    if out is None:
        if resume:
            raise ConfigError("resume: say with `out` in which folder the run is")
        return None
    if resume and (Path(out) / EVENTS).exists():
        return RunFolder.reopen(out)
    return RunFolder.create(out, config_text)


class Kept:
    """A run that is being kept; the clock counts the seconds since this process took it on."""

    def __init__(
        self,
        folder: RunFolder,
        coordinator: Coordinator,
        made: Mapping[str, Any],
        clock: Callable[[], float],
        tape: Tape | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._folder, self._coordinator, self._made = folder, coordinator, made
        self._clock = clock
        self._spent_s = 0.0  # by processes before this one
        self._store = Store(folder.path)
        self._tape = tape
        self._tally = tally  # to be saved, where the log is not enough to count again
        self._segments: list[int] = []  # of the journal, that the kept checkpoints go on from

    @property
    def wall_s(self) -> float:
        """Seconds that were spent on the run so far, by all processes."""
        return self._spent_s + self._clock()

    def rest(self, how: Checkpoints | None) -> Callable[[], None]:
        """What to do between the turns of the run."""
        coordinator, tape, rest = self._coordinator, self._tape, lambda: None
        if how is not None:
            rest = Keeper(
                *(self._store, how, self._take, lambda: coordinator.reason, self._clock),
                is_urgent=lambda: tape is not None and tape.journal.is_full,
                after=self._go_to_next_segment,
            ).rest
        return rest if tape is None else partial(self._rest_with, tape, rest)

    def _rest_with(self, tape: Tape, rest: Callable[[], None]) -> None:
        """Save the run if it is time; what its end calls off is no part of the journal."""
        rest()
        tape.is_over = self._coordinator.reason is not None

    def _go_to_next_segment(self, keep: int) -> None:
        if self._tape is not None:
            self._segments = [*self._segments, self._tape.segment][-keep:]
            self._tape.saved(self._segments)

    def _take(self) -> Saved:
        self._folder.sync()  # a checkpoint must not know more than the log
        if self._tape is not None:
            self._tape.sync()
        state = self._coordinator.state()
        if self._tally is not None:
            state.add("tally", self._tally.state())
        return Saved(state, self._folder.position, self._made, software(), self.wall_s)

    # --- taking up --------------------------------------------------------------------------------

    def take_up(self, config_text: str, device: torch.device) -> Iterator[Line]:
        """Go back to the last good checkpoint; gives the log up to there."""
        found = self._store.last(self._check, device)
        if found.saved is None:
            self._begin_anew(found.refused)
            if self._tape is not None:
                made = self._tape.journal.made_then()
                self._check_made(self._made if made is None else made)
                self._tape.go_to()
            return self._folder.go_on_from(Position(), config_text)
        for why in found.refused:
            log.warning("%s; going on from %s", why, found.path)
        self._restore(found.saved, found.path)
        return self._folder.go_on_from(found.saved.position, config_text)

    def _check_made(self, made: Mapping[str, Any]) -> None:
        for key, then, now in differences(made, self._made):
            was, is_now = repr(then)[:200], repr(now)[:200]  # whatever somebody wrote there
            raise RunError(f"it is of another run: {_speakable(key)} was {was}, and is {is_now}")

    def _check(self, saved: Saved) -> None:
        self._check_made(saved.made)
        if not self._folder.holds(saved.position):
            raise RunError(f"{EVENTS} is not what it was then: it was cut, or changed")

    def _restore(self, saved: Saved, path: Path | None) -> None:
        if saved.software != software():
            log.warning(
                "saved by %s, and this is %s: it may go on otherwise",
                _speakable(saved.software),
                software(),
            )
        try:
            begun = self._coordinator.state()
            check_kinds(begun.values, saved.state.values)
            check_kinds(begun.arrays, saved.state.arrays)
            self._coordinator.restore(saved.state)
            if self._tally is not None:
                self._tally.restore(saved.state.part("tally"))
            if not isinstance(self._coordinator.reason, str | None):
                raise TypeError(f"reason is {_kind(self._coordinator.reason)}, not text")
        except MISFITS as error:
            raise RunError(
                f"{path} is not what such a run saves ({misfit(error)}): was it made with other "
                "settings? If not, it is damaged: with it put aside the one before is taken"
            ) from error
        if self._tape is not None:
            self._segments = [self._tape.segment]
        self._go_on(self._coordinator.reason)
        self._spent_s = saved.wall_s

    def _go_on(self, reason: str | None) -> None:
        """Take the stop of now instead of the one at which the run ended, if it did."""
        coordinator, path = self._coordinator, self._folder.path
        coordinator.go_on()
        if coordinator.reason is None:
            return
        if self._folder.is_finished and reason in REASONS:
            raise FinishedError(
                f"{path} is finished ({reason}); to go on, give a later stop, such as stop.time_s"
            )
        if reason not in REASONS:  # it was under way, or interrupted and taken up again since
            raise RunError(
                f"{path} is further than this stop ({coordinator.reason}): give a later one, or "
                "none to go on to its own"
            )

    def _begin_anew(self, refused: list[str]) -> None:
        """Where no checkpoint was written yet; not where something would be lost by it."""
        path = self._folder.path
        again = f"make the run again in another folder ({path / CONFIG} says what it was)"
        if refused:
            whys = "; ".join(refused)
            raise RunError(f"no checkpoint can be taken ({whys}); the log stays as it is; {again}")
        if self._folder.is_finished:
            how = "was interrupted" if Run(path).counts.is_cut_short else "is finished"
            raise RunError(
                f"{path} {how} and has no {CHECKPOINTS} to go on from (runs of compare and "
                f"reproduce have none: the same command makes them again); {again}"
            )
        if (path / EVENTS).stat().st_size and self._tape is None:
            log.warning("%s has no checkpoint: it begins anew, and its log with it", path)
