"""When a run is saved: how often, at its end, and what happens when it cannot be."""

from __future__ import annotations

import errno
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pisces.errors import RunError
from pisces.record.checkpoint import Checkpoints, Saved, Store
from pisces.record.keeper import Keeper
from pisces.record.writer import Position
from pisces.types import State


@dataclass
class Scene:
    """A keeper, a clock moved by hand, and a store that takes its time."""

    every_s: float = 60.0
    takes_s: float = 0.0
    now: float = 0.0
    reason: str | None = None
    is_full: bool = False
    saves: list[tuple[float, int]] = field(default_factory=list)  # when, and how many are kept

    def keeper(self) -> Keeper:
        how = Checkpoints(self.every_s, keep=3)
        return Keeper(_Store(self), how, self._take, lambda: self.reason, lambda: self.now)

    def _take(self) -> Saved:
        return Saved(State(), Position(), {}, "", 0.0)


class _Store(Store):
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def save(self, saved: Saved, keep: int) -> Path:
        if self._scene.is_full:
            raise RunError("cannot write x: No space left on device")
        self._scene.saves.append((self._scene.now, keep))
        self._scene.now += self._scene.takes_s
        return Path()


def play(scene: Scene, until_s: float, turn_s: float = 1.0) -> list[float]:
    """Turn after turn; when it was saved."""
    keeper = scene.keeper()
    while scene.now < until_s:
        scene.now += turn_s
        keeper.rest()
    return [at for at, _ in scene.saves]


def test_every_so_many_seconds() -> None:
    assert play(Scene(), 200.0) == [60.0, 120.0, 180.0]
    assert play(Scene(), 200.0, turn_s=45.0) == [90.0, 180.0]  # only between turns


def test_or_only_at_the_end() -> None:
    scene = Scene(every_s=math.inf)
    assert play(scene, 1e6, turn_s=1e5) == []
    scene.reason = "interrupted"
    scene.keeper().rest()
    assert len(scene.saves) == 1


def test_a_slow_disk_takes_no_more_than_a_fiftieth_of_the_time() -> None:
    # 6 s each: 294 s lie between two of them, though a minute was asked for.
    assert play(Scene(takes_s=6.0), 1000.0) == [60.0, 360.0, 660.0, 960.0]
    # 1 s each: that is less than a fiftieth of a minute and a second
    assert play(Scene(takes_s=1.0), 200.0) == [60.0, 121.0, 182.0]


@pytest.mark.parametrize(("reason", "keep"), [("time", 1), ("interrupted", 3)])
def test_at_its_end_a_run_is_saved_and_one_that_is_over_keeps_one(reason: str, keep: int) -> None:
    scene = Scene(reason=reason)
    scene.keeper().rest()
    assert scene.saves == [(0.0, keep)]


def test_a_full_disk_is_told_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(is_full=True)
    with caplog.at_level(logging.WARNING, "pisces"):
        assert play(scene, 200.0) == []
    assert [record.message for record in caplog.records] == [
        "no checkpoint was written, and the run goes on without: "
        "cannot write x: No space left on device"
    ]
    scene.is_full = False  # somebody made room
    assert play(scene, 300.0) == [260.0]


def test_too_many_open_files_are_no_end_of_a_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    scene = Scene()
    monkeypatch.setattr(_Store, "save", refuse)
    with caplog.at_level(logging.WARNING, "pisces"):
        assert play(scene, 200.0) == []
    assert "Too many open files" in caplog.text
