"""Small runs for trackers to hear of, killed and resumed where asked, and what their logs say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pisces
from pisces.coordinator import Coordinator
from pisces.record.trackers.base import Point, Subject, Tracker
from pisces.record.trackers.meter import Meter
from pisces.simulation import Result
from pisces.types import Plan


class Killed(BaseException):
    """As good as a kill: nothing is saved or wound up."""


class Notes(Tracker):
    """Remembers what it is told."""

    name = "notes"

    def __init__(self) -> None:
        self.runs: list[Subject] = []
        self.points: list[Point] = []
        self.summaries: list[Any] = []

    def begin(self, run: Subject) -> None:
        self.runs.append(run)

    def track(self, points: Sequence[Point]) -> None:
        self.points += points

    def end(self, summary: Any) -> None:
        self.summaries.append(summary)


def _pair(number: int, num: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(num, 2, generator=generator)
    return inputs, (inputs.sum(dim=1) > 0).long()


def simulated(out: Path | None, **changes: Any) -> Result:
    """Six clients, some twenty versions, each evaluated."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
    settings: dict[str, Any] = {
        "model": model,
        "clients": [_pair(number, 8 + number) for number in range(6)],
        "test": _pair(99, 50),
        "concurrency": 3,
        "plan": Plan(epochs=2, batch_size=4, learning_rate=0.05),
        "latency": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "stop": pisces.Stop(time_s=20.0),
        "device": "cpu",
        "backend": "sequential",
    }
    return pisces.simulate("pisces", **(settings | {"out": out} | changes))


OFTEN = pisces.Checkpoints(every_s=1e-9)


def killed(out: Path, num_turns: int, **changes: Any) -> None:
    """The same, killed after so many turns."""
    real, turns = Coordinator.step, iter(range(num_turns))

    def step(self: Coordinator) -> None:
        if next(turns, None) is None:
            raise Killed
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coordinator, "step", step)
        patch.setattr("pisces.record.keeper.MOST", 1.0)
        with pytest.raises(Killed):
            simulated(out, checkpoints=OFTEN, **changes)


def points_of(folder: Path) -> list[Point]:
    """What a log comes to."""
    meter = Meter()
    points = map(meter.add, pisces.load(folder).events())
    return [point for point in points if point is not None]


def series_of(points: Sequence[Point]) -> dict[str, list[tuple[int, float]]]:
    """The (version, value) pairs by name."""
    found: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        for name, value in point.values.items():
            found.setdefault(name, []).append((point.version, float(value)))
    return found
