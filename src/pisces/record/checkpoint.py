"""Checkpoints: all that a run must remember to go on in another process as if nothing had happened.

    <run>/checkpoints/000007.json            what is not an array, and where the arrays are
    <run>/checkpoints/tensors/<hash>.safetensors

A checkpoint is there whole or not at all: its arrays are on the disk before its JSON file takes its
name. It says its format and a checksum of the rest, and arrays are named by theirs, so damage is
found before anything is believed. Nothing in it is code.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pisces.errors import ConfigError, RunError
from pisces.record.blobs import Blobs, Index, as_json, digest, files_of, from_json
from pisces.record.writer import (
    CHECKPOINTS,
    Position,
    read_file,
    refuse_links,
    replace_file,
    sync_folder,
)
from pisces.types import State

TENSORS = "tensors"
FORMAT = 1  # count up when an older Pisces would misread what is written
# What becomes of values that were not written by us, though somebody made their checksum right.
MISFITS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_HEAD = re.compile(rb'\{"format": (\d+), "checksum": "([0-9a-f]*)", "body": ')
_FILE = re.compile(r"(\d{6,})\.json")


class NewerError(RunError):
    """A later Pisces wrote it."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How often a run is saved, and how much of it is kept.

    Every so many seconds of wall time and at the end; an infinite `every_s` means only at the end.
    The last `keep` are kept.
    """

    every_s: float = 60.0
    keep: int = 2

    def __post_init__(self) -> None:
        if not self.every_s > 0 or self.keep < 1:
            raise ConfigError(
                "checkpoint.every_s must be greater than 0 and checkpoint.keep at least 1, not "
                f"{self.every_s} and {self.keep}"
            )


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint: the state, how far the log was, and what run it is of."""

    state: State
    position: Position
    made: Mapping[str, Any]  # what the run is; only a run that is the same may go on from here
    software: str  # versions, for people
    wall_s: float  # spent on the run so far


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint to go on from, if there is one, and why newer ones are not taken."""

    saved: Saved | None
    path: Path | None
    refused: list[str]


Accepts = Callable[[Saved], None]  # raises a RunError that says why a checkpoint cannot be taken


class Store:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path) -> None:
        self._folder = run / CHECKPOINTS
        refuse_links(self._folder, self._folder / TENSORS)
        self._blobs = Blobs(self._folder / TENSORS)
        self._kept: dict[int, Index] = {}  # those that are known to be good

    def save(self, saved: Saved, keep: int) -> Path:
        """Write a checkpoint, then remove what is not needed any more."""
        number = max(self._numbers(), default=0) + 1
        try:
            index = self._write(saved, self._path(number))
        except (RunError, TypeError, ValueError) as error:
            with suppress(OSError):
                self._blobs.take_back()
            if isinstance(error, RunError):
                raise
            raise RunError(
                f"some state is neither JSON nor an array of numbers: {error}"
            ) from error
        self._kept[number] = index
        self._kept = {n: self._kept[n] for n in sorted(self._kept)[-keep:]}
        with suppress(OSError):  # then the next one will
            self._remove_others()
        return self._path(number)

    def _write(self, saved: Saved, path: Path) -> Index:
        index = self._blobs.write(saved.state.arrays)
        replace_file(path, _encoded(saved, index))
        sync_folder(self._folder)
        return index

    def last(self, accepts: Accepts, device: torch.device) -> Found:
        """The newest checkpoint that is whole and that `accepts` does not refuse."""
        refused: list[str] = []
        for number in sorted(self._numbers(), reverse=True):
            path = self._path(number)
            try:
                return Found(self._read(number, accepts, device), path, refused)
            except NewerError as error:  # not the last good one instead: this would be overwritten
                raise RunError(f"{path}: {error}{self._or_before(number)}") from error
            except RunError as error:
                refused.append(f"{path}: {error}")
            except MISFITS as error:
                refused.append(f"{path}: it is not what it should be ({misfit(error)})")
        return Found(None, None, refused)

    def _or_before(self, number: int) -> str:
        before = [other for other in self._numbers() if other < number]
        return f", or remove it to go on from {self._path(max(before))}" if before else ""

    def _read(self, number: int, accepts: Accepts, device: torch.device) -> Saved:
        body = _decoded(self._path(number))
        _check(body)
        index = from_json(body["arrays"])
        state = State(body["values"])
        position = Position(**body["events"])
        saved = Saved(state, position, body["made"], body["software"], body["wall_s"])
        accepts(saved)
        state.arrays |= self._blobs.read(index, device)
        self._kept = {number: index}
        return saved

    def _remove_others(self) -> None:
        for number in self._numbers() - self._kept.keys():
            self._path(number).unlink(missing_ok=True)
        self._blobs.remove_all_but(set(files_of(self._kept.values())))

    def _numbers(self) -> set[int]:
        names = (path.name for path in self._folder.glob("*.json"))
        return {int(found[1]) for name in names if (found := _FILE.fullmatch(name))}

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.json"


def _check(body: Mapping[str, Any]) -> None:
    """Refuse what nothing would stumble over before the run is under way."""
    events = body["events"]
    if not all(type(events[key]) is int and events[key] >= 0 for key in ("num_bytes", "crc32")):
        raise ValueError(f"events is {events}")
    if type(body["wall_s"]) not in (int, float) or not 0 <= body["wall_s"] < math.inf:
        raise ValueError(f"wall_s is {body['wall_s']!r}")
    if not isinstance(body["made"], dict) or not isinstance(body["values"], dict):
        raise ValueError("made and values are no tables")


def misfit(error: Exception) -> str:
    """What is wrong with a value, in a part of a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _encoded(saved: Saved, index: Index) -> bytes:
    body = {
        "made": saved.made,
        "software": saved.software,
        "wall_s": saved.wall_s,
        "events": saved.position.as_json(),
        "values": saved.state.values,
        "arrays": as_json(index),
    }
    text = json.dumps(body).encode()
    head = f'{{"format": {FORMAT}, "checksum": "{digest(text)}", "body": '
    return head.encode() + text + b"}\n"


def _decoded(path: Path) -> dict[str, Any]:
    """The file's content, if it is what was written."""
    try:
        content = read_file(path)
    except OSError as error:
        raise RunError(f"it cannot be read: {error.strerror or error}") from error
    head = _HEAD.match(content)
    if head is None:
        raise RunError("it is damaged: it does not begin as a checkpoint does")
    if int(head[1]) > FORMAT:
        raise NewerError(
            f"it has format {int(head[1])}, and this Pisces knows formats up to {FORMAT}: "
            "use the Pisces that wrote it"
        )
    text = content[head.end() : -2]
    if digest(text).encode() != head[2] or content[-2:] != b"}\n":
        raise RunError("it is damaged: its checksum is another")
    body: dict[str, Any] = json.loads(text)
    return body
